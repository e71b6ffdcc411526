//! Zipf's law: few scopes have most of the requests.

use crate::random::Random;

/// Choice among scopes whose probabilities follow Zipf's law.
#[derive(Debug)]
pub(crate) struct Zipf {
    /// Sums of the probabilities up to each; the last is 1.
    sums: Vec<f64>,
}

// === impl Zipf ===

impl Zipf {
    /// Returns a choice among `count`, the k-th from 1 in proportion to k to the power of minus
    /// `exponent`.
    pub(crate) fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=count).map(|k| {
            sum += (k as f64).powf(-exponent);
            sum
        });
        let mut sums: Vec<f64> = sums.collect();
        for part in &mut sums {
            *part /= sum;
        }
        Self { sums }
    }

    /// Returns the probability of the k-th from 0.
    pub(crate) fn weight(&self, k: usize) -> f64 {
        let before = k.checked_sub(1).and_then(|k| self.sums.get(k));
        let until = self.sums.get(k).copied().unwrap_or(0.0);
        until - before.copied().unwrap_or(0.0)
    }

    /// Returns one at random.
    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        let drawn = random.fraction();
        let k = self.sums.partition_point(|sum| *sum <= drawn);
        k.min(self.sums.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_has_twice_as_many_as_the_second() {
        let zipf = Zipf::new(1000, 1.0);
        let mut random = Random::new(7);
        let mut drawn = vec![0_u32; 1000];
        for _ in 0..200_000 {
            drawn[zipf.draw(&mut random)] += 1;
        }
        for k in [0, 1, 9] {
            let want = zipf.weight(k) * 200_000.0;
            let got = f64::from(drawn[k]);
            assert!((got / want - 1.0).abs() < 0.05, "{k}: {got}, not {want}");
        }
        assert!((zipf.weight(0) / zipf.weight(1) - 2.0).abs() < 1e-9);
        let all: f64 = (0..1000).map(|k| zipf.weight(k)).sum();
        assert!((all - 1.0).abs() < 1e-9);
    }
}
