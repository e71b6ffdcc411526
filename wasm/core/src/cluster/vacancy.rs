//! Knowledge of a node since when shards have been without a master.
//!
//! A new master learns until the leases of the one before have ended. It counts from its own
//! election, unless it knows that there had been no master before. A node that looks at the
//! candidates knows more: at a revision of the cluster's store at which no other node is the first
//! candidate, no other node is master, and those that were have granted nothing since. Whether one
//! was elected and lost again between that look and the node's own election, even if the node was
//! cut off then, the store tells as well: each master leaves the revision at which its term began.

use alloc::collections::BTreeMap;

use super::{Election, ShardId};
use crate::lease::Epoch;
use crate::units::Instant;

/// For each shard, the time since which no other node can have granted leases; empty for a node that
/// knows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vacancies(BTreeMap<ShardId, Vacancy>);

/// Absence of a master, as it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vacancy {
    since: Instant,
    /// Revision of the store at that time, or before it.
    revision: Epoch,
}

// === impl Vacancies ===

impl Vacancies {
    /// Takes what the node sees of the `election`, in the store's state of `revision`, which it was
    /// told at `now`. `spent` are candidacies under which it has been master: they may still stand
    /// while that term ends.
    pub fn handle_view(
        &mut self,
        now: Instant,
        revision: Epoch,
        election: &Election<'_>,
        spent: &BTreeMap<ShardId, Epoch>,
    ) {
        for shard in ShardId::all(election.shards) {
            let leads = election.led.iter().any(|(led, _)| *led == shard);
            let vacant = match election.master(shard) {
                None => true,
                Some(first) => {
                    first.node == election.node && spent.get(&shard) != Some(&first.epoch)
                }
            };
            if !vacant || leads {
                self.0.remove(&shard);
            } else {
                let vacancy = Vacancy {
                    since: now,
                    revision,
                };
                self.0.entry(shard).or_insert(vacancy);
            }
        }
    }

    /// Notes that the node's own term, which began at `revision`, has granted nothing since `since`.
    pub fn handle_end(&mut self, since: Instant, shard: ShardId, revision: Epoch) {
        self.0.insert(shard, Vacancy { since, revision });
    }

    /// Returns the time since which no other node can have been master of `shard`, for a node that
    /// is elected at the revision `elected` after a term that began at `last`, 0 if there was none.
    /// Forgets it: from now on there is a master.
    pub fn take(&mut self, shard: ShardId, last: Epoch, elected: Epoch) -> Option<Instant> {
        let vacancy = self.0.remove(&shard)?;
        // A store that was set back to an earlier state tells nothing.
        let unbroken = last <= vacancy.revision && vacancy.revision < elected;
        unbroken.then_some(vacancy.since)
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU16;

    use super::super::Candidate;
    use super::*;

    const SHARD: ShardId = ShardId(0);

    /// Second, revision and candidates.
    type View<'a> = (u64, u64, &'a [(&'a str, u64)]);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// Returns the knowledge of the node `me` after these views.
    fn seen(views: &[View<'_>], led: &[(ShardId, Epoch)]) -> Vacancies {
        let mut vacancies = Vacancies::default();
        let spent = [(SHARD, Epoch(90))].into();
        for (second, revision, candidates) in views {
            let candidates = candidates.iter().map(|&(node, epoch)| Candidate {
                shard: SHARD,
                epoch: Epoch(epoch),
                node,
            });
            let candidates: alloc::vec::Vec<_> = candidates.collect();
            let election = Election {
                shards: NonZeroU16::MIN,
                node: "me",
                members: &["me"],
                candidates: &candidates,
                led,
            };
            vacancies.handle_view(at(*second), Epoch(*revision), &election, &spent);
        }
        vacancies
    }

    #[test]
    fn a_shard_is_vacant_since_no_other_was_first_without_a_break() {
        let none: &[(&str, u64)] = &[];
        let (other, me, both) = (
            &[("a", 5)][..],
            &[("me", 8)][..],
            &[("me", 8), ("a", 9)][..],
        );
        let spent = &[("me", 90)][..];
        for (row, views, last, want) in [
            ("it sees nothing", &[][..], 5, None),
            ("another stands", &[(10, 20, other)], 5, None),
            ("nobody stands", &[(10, 20, none)], 5, Some(10)),
            (
                "since the first look",
                &[(10, 20, none), (15, 25, none)],
                5,
                Some(10),
            ),
            (
                "it stands itself",
                &[(10, 20, none), (15, 25, me)],
                5,
                Some(10),
            ),
            ("it stands before another", &[(12, 20, both)], 5, Some(12)),
            ("its own last term is ending", &[(10, 95, spent)], 5, None),
            (
                "another stood between",
                &[(10, 20, none), (15, 25, other), (20, 30, me)],
                5,
                Some(20),
            ),
            ("another was master unseen", &[(10, 20, none)], 21, None),
            (
                "another just before the look",
                &[(10, 20, none)],
                20,
                Some(10),
            ),
            ("the store was set back", &[(10, 200, none)], 5, None),
        ] {
            let since = seen(views, &[]).take(SHARD, Epoch(last), Epoch(100));
            assert_eq!(since, want.map(at), "{row}");
        }
        let leading = seen(&[(10, 20, &[])], &[(SHARD, Epoch(8))]);
        assert_eq!(leading, Vacancies::default(), "it is the master itself");
    }

    #[test]
    fn a_former_master_knows_of_its_own_end_unless_another_followed() {
        for (last, want) in [(30, Some(at(7))), (31, None)] {
            let mut vacancies = Vacancies::default();
            vacancies.handle_end(at(7), SHARD, Epoch(30));
            assert_eq!(vacancies.take(SHARD, Epoch(last), Epoch(40)), want);
            assert_eq!(vacancies.take(SHARD, Epoch(last), Epoch(50)), None, "once");
        }
    }
}
