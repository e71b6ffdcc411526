//! Fairness of a division, measured against the max-min division of the same capacity.
//!
//! The plain index of Jain over leases would punish a client for wanting little: wants of 10 and
//! 1000 of a capacity of 100 are divided fairly as 10 and 90, and the plain index of that is 0.61. So
//! each lease counts as a part of the client's max-min share, and the index of equal parts is 1.

use std::time::Duration;

/// Part of a capacity in the wrong hands with which a division still counts as fair.
const FAIR_WITHIN: f64 = 0.05;

/// Claim of one client on a capacity, or of one member on a pool's.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Rate that it wants.
    pub wants: f64,
    /// Rate that it has.
    pub has: f64,
    /// Weight among the others, 1 for a client.
    pub weight: f64,
    /// Number of the client or member.
    pub number: usize,
}

/// Fairness of one division at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fairness {
    /// Jain's index over what clients have as a part of their max-min shares; none while they have
    /// nothing.
    index: Option<f64>,
    /// Part of the fair shares that others have, or that nobody has.
    misplaced: f64,
}

/// Fairness over a run.
#[derive(Debug, Default)]
pub struct FairnessLog {
    index_sum: f64,
    index_count: u64,
    /// Times since which divisions are unfair, by the number of what is divided.
    unfair_since: Vec<Option<Duration>>,
    contended: u64,
    /// Number of the stretches of unfair time that have ended, their sum, and the longest.
    stretches: (u64, Duration, Duration),
}

/// Figures of a [`FairnessLog`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FairnessFigures {
    /// Divisions that were looked at: capacities that more was wanted of than there is, in each sample.
    pub contended: u64,
    /// Mean of the indices.
    pub index: Option<f64>,
    /// Mean seconds of a stretch; none without a contended capacity.
    pub mean: Option<f64>,
    /// Seconds of the longest stretch.
    pub longest: Option<f64>,
    /// Divisions that are still unfair.
    pub unfair: usize,
}

// === impl Claim ===

impl Claim {
    /// Returns the claim of a client that wants and has nothing.
    pub fn of(number: usize) -> Self {
        Self {
            wants: 0.0,
            has: 0.0,
            weight: 1.0,
            number,
        }
    }
}

// === impl Fairness ===

impl Fairness {
    /// Returns the fairness of a division of `capacity`; none if there is enough for all, or nothing
    /// to divide, or only one client.
    pub fn of(capacity: f64, claims: &[Claim]) -> Option<Self> {
        let wanted: f64 = claims.iter().map(|claim| claim.wants).sum();
        if claims.len() < 2 || capacity <= 0.0 || wanted <= capacity {
            return None;
        }
        let shares = max_min(capacity, claims);
        let (mut sum, mut squares, mut missing, mut excess) = (0.0, 0.0, 0.0, 0.0);
        for (claim, share) in claims.iter().zip(&shares) {
            // Headroom that a client does not want is no injustice.
            let has = claim.has.min(claim.wants);
            let part = has / share.max(f64::MIN_POSITIVE);
            sum += part;
            squares += part * part;
            missing += (share - has).max(0.0);
            excess += (has - share).max(0.0);
        }
        let index = sum * sum / (claims.len() as f64 * squares);
        Some(Self {
            index: (squares > 0.0).then_some(index),
            misplaced: f64::max(missing, excess) / capacity,
        })
    }

    fn is_fair(&self) -> bool {
        self.misplaced <= FAIR_WITHIN
    }
}

// === impl FairnessLog ===

impl FairnessLog {
    /// Notes the fairness at `elapsed` of a division that is called by a number; none while it is not
    /// contended.
    pub fn note(&mut self, elapsed: Duration, number: usize, fairness: Option<Fairness>) {
        if self.unfair_since.len() <= number {
            self.unfair_since.resize(number + 1, None);
        }
        let since = &mut self.unfair_since[number];
        if let Some(index) = fairness.and_then(|fairness| fairness.index) {
            self.index_sum += index;
            self.index_count += 1;
        }
        self.contended += u64::from(fairness.is_some());
        if fairness.is_some_and(|fairness| !fairness.is_fair()) {
            since.get_or_insert(elapsed);
        } else {
            if let Some(since) = since.take() {
                add(&mut self.stretches, elapsed.saturating_sub(since));
            }
        }
    }

    /// Returns the figures; stretches that go on are counted until `elapsed`.
    pub fn figures(&self, elapsed: Duration) -> FairnessFigures {
        let mut stretches = self.stretches;
        let open = self.unfair_since.iter().flatten();
        let unfair = open.clone().count();
        for since in open {
            add(&mut stretches, elapsed.saturating_sub(*since));
        }
        let any = self.contended > 0;
        let (count, sum, longest) = stretches;
        let mean = sum.as_secs_f64() / count.max(1) as f64;
        FairnessFigures {
            contended: self.contended,
            index: (self.index_count > 0).then(|| self.index_sum / self.index_count as f64),
            mean: any.then_some(mean),
            longest: any.then_some(longest.as_secs_f64()),
            unfair,
        }
    }
}

// === free functions ===

fn add((count, sum, longest): &mut (u64, Duration, Duration), length: Duration) {
    *count += 1;
    *sum += length;
    *longest = length.max(*longest);
}

/// Returns the weighted max-min shares of `claims` in `capacity`, in their order.
pub(crate) fn max_min(capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let per_weight = |claim: &Claim| claim.wants / claim.weight;
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by(|a, b| per_weight(&claims[*a]).total_cmp(&per_weight(&claims[*b])));
    let mut weights: f64 = claims.iter().map(|claim| claim.weight).sum();
    let mut left = capacity;
    let mut shares = vec![0.0; claims.len()];
    for index in order {
        let Claim { wants, weight, .. } = claims[index];
        let share = wants.min(left * weight / weights.max(f64::MIN_POSITIVE));
        shares[index] = share;
        left -= share;
        weights -= weight;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(of: &[(f64, f64)]) -> Vec<Claim> {
        let claims = of.iter().map(|(wants, has)| Claim {
            wants: *wants,
            has: *has,
            ..Claim::of(0)
        });
        claims.collect()
    }

    #[test]
    fn shares_are_those_of_the_definition() {
        let wants = [1000.0, 27.0, 22.0, 21.0, 1.0].map(|wants| (wants, 0.0));
        assert_eq!(
            max_min(100.0, &claims(&wants)),
            [29.0, 27.0, 22.0, 21.0, 1.0]
        );
        let mut weighted = claims(&[(100.0, 0.0), (100.0, 0.0), (5.0, 0.0)]);
        weighted[0].weight = 3.0;
        assert_eq!(max_min(85.0, &weighted), [60.0, 20.0, 5.0]);
    }

    #[test]
    fn the_index_is_one_for_max_min_and_less_for_all_else() {
        let rows = [
            // Small wants are not punished.
            (vec![(10.0, 10.0), (1000.0, 90.0)], 1.0, 0.0),
            // Headroom that the first does not want counts for nothing.
            (vec![(10.0, 50.0), (1000.0, 90.0)], 1.0, 0.0),
            (vec![(70.0, 70.0), (70.0, 30.0)], 0.862_068, 0.2),
            // All have twice their share: equal, and too much.
            (vec![(200.0, 100.0), (200.0, 100.0)], 1.0, 1.0),
            (vec![(100.0, 100.0), (100.0, 0.0)], 0.5, 0.5),
        ];
        for (of, index, misplaced) in rows {
            let fairness = Fairness::of(100.0, &claims(&of)).unwrap();
            assert!((fairness.index.unwrap() - index).abs() < 1e-5, "{of:?}");
            assert!((fairness.misplaced - misplaced).abs() < 1e-9, "{of:?}");
        }
        let nobody = Fairness::of(100.0, &claims(&[(100.0, 0.0), (100.0, 0.0)])).unwrap();
        assert_eq!((nobody.index, nobody.misplaced), (None, 1.0));
        for enough in [&[(50.0, 0.0), (50.0, 50.0)][..], &[(500.0, 20.0)]] {
            assert_eq!(Fairness::of(100.0, &claims(enough)), None);
        }
    }

    #[test]
    fn a_stretch_lasts_from_the_first_unfair_sample_to_the_next_fair_one() {
        let (fair, unfair) = (vec![(90.0, 50.0); 2], vec![(90.0, 80.0), (90.0, 20.0)]);
        let at = |of: &[(f64, f64)]| Fairness::of(100.0, &claims(of));
        let mut log = FairnessLog::default();
        assert_eq!(log.figures(Duration::ZERO), FairnessFigures::default());
        let course = [&fair, &unfair, &unfair, &fair, &unfair];
        for (second, of) in course.into_iter().enumerate() {
            log.note(Duration::from_secs(second as u64), 3, at(of));
        }
        let figures = log.figures(Duration::from_secs(10));
        let times = (figures.mean, figures.longest, figures.unfair);
        assert_eq!(times, (Some(4.0), Some(6.0), 1));
        assert_eq!(figures.contended, 5);
        // The demand falls: there is nothing to divide any more.
        log.note(Duration::from_secs(11), 3, None);
        let figures = log.figures(Duration::from_secs(20));
        assert_eq!((figures.longest, figures.unfair), (Some(7.0), 0));
    }
}
