//! A small seeded generator: splitmix64 (Steele, Lea and Flood, 2014), which needs no crate and
//! gives the same numbers on every target.

/// A stream of numbers that only its seed determines.
#[derive(Debug)]
pub(crate) struct Random(u64);

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// A number below `end` whose size in bits is as likely as any other: tiny and huge ones.
    pub(crate) fn spread(&mut self, end: u64) -> u64 {
        let bits = self.below(u64::from(end.ilog2()) + 1);
        self.below(end) >> bits
    }

    /// True `percent` times out of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = self.below(end as u64 + 1) as usize;
            items.swap(end, other);
        }
    }
}
