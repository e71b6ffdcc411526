//! The only source of randomness in a simulation.

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Probability of an event: so many of so many cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    part: u64,
    of: u64,
}

// === impl Random ===

impl Random {
    /// Returns a generator whose numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a generator of its own, so that another one's use does not change its numbers.
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.bits() % (high - low + 1)
    }

    /// Returns true in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.happens(Chance::percent(percent))
    }

    /// Returns true with the probability `chance`.
    pub fn happens(&mut self, chance: Chance) -> bool {
        self.between(1, chance.of) <= chance.part
    }

    /// Returns one of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() as u64 - 1) as usize]
    }

    /// Returns a number from 0 to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the time to the next event of a Poisson process of rate 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.fraction()).ln()
    }

    /// Returns a number that is normally distributed, with mean 0 and standard deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }
}

// === impl Chance ===

impl Chance {
    /// The probability of what never happens.
    pub const NEVER: Self = Self::percent(0);

    /// Returns a probability in percent.
    pub const fn percent(part: u64) -> Self {
        Self { part, of: 100 }
    }

    /// Returns whether it is that of what never happens.
    pub fn is_never(self) -> bool {
        self.part == 0
    }

    /// Returns a probability from 0 to 1, rounded to millionths.
    pub fn share(share: f64) -> Self {
        const MILLION: u64 = 1_000_000;
        Self {
            part: (share * MILLION as f64).round() as u64,
            of: MILLION,
        }
    }
}
