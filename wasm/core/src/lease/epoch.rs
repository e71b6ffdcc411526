//! Terms of masters.

use crate::cluster::ShardId;

/// Term of a master; a later master has a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Master that an answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Its shard; none of a coordinator that is alone.
    pub shard: Option<ShardId>,
    /// Its term.
    pub epoch: Epoch,
}

/// Reason for which an answer is not applied, by the epochs of its master and of the one that
/// answered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochError {
    /// An earlier master of the same shard has answered late.
    #[error("epoch {} is lower than {}, that of a master that has answered before", .answered.0, .known.0)]
    Lower {
        /// The epoch of the answer.
        answered: Epoch,
        /// The epoch of the last answer that was applied.
        known: Epoch,
    },
    /// No real master has this epoch after the other; see [`Origin::check_after`].
    #[error(
        "epoch {} cannot follow {}: no epoch is above {}, and one that counts from a clock advances \
         by at most {}", .answered.0, .known.0, Epoch::MAX.0, Epoch::ADVANCE_MAX
    )]
    Jump {
        /// The epoch of the answer.
        answered: Epoch,
        /// The epoch of the last answer that was applied; 0 before the first one.
        known: Epoch,
    },
}

// === impl Epoch ===

impl Epoch {
    /// The highest epoch that a master can have: the milliseconds since 1970 in May 2109. Epochs count
    /// from a wall clock or from a number that an operator chose, so that a higher one is a mistake
    /// or a lie; and a client that believed it would ignore every real master afterwards.
    pub const MAX: Self = Self((1 << 42) - 1);

    /// The most by which an epoch that counts from a clock advances at once: 795 days in
    /// milliseconds, for a coordinator that ran so long before its restart, or as many revisions of
    /// the etcd that a cluster's epochs are counted by.
    const ADVANCE_MAX: u64 = 1 << 36;

    /// The least epoch that counts from a clock: November 2004. A lower one was given by an operator
    /// (`--epoch 5`), or by a machine whose clock was not set; a clock may follow it.
    const CLOCK_MIN: u64 = 1 << 40;

    /// Whether a master can have this epoch.
    pub fn is_possible(self) -> bool {
        self <= Self::MAX
    }
}

// === impl Origin ===

impl Origin {
    /// A coordinator without a cluster, in its term `epoch`.
    pub const fn alone(epoch: Epoch) -> Self {
        Self { shard: None, epoch }
    }

    /// Checks whether an answer from here may be applied after one from `last`: it may not if the
    /// same shard has had a later master, nor if its epoch is none that can follow. Epochs of
    /// different shards say nothing of each other, and an impossible epoch that was believed by an
    /// earlier version says nothing either.
    ///
    /// A client may know that nothing of `last` is left, see
    /// [`LeaseClient::check_origin`](crate::lease_client::LeaseClient::check_origin).
    ///
    /// # Errors
    /// If the answer must not be applied.
    pub fn check_after(self, last: Self) -> Result<(), EpochError> {
        let answered = self.epoch;
        let comparable = self.shard == last.shard && last.epoch.is_possible();
        let known = if comparable {
            last.epoch
        } else {
            Epoch::default()
        };
        if answered < known {
            return Err(EpochError::Lower { answered, known });
        }
        let advance = answered.0.saturating_sub(known.0);
        let leaps = known.0 >= Epoch::CLOCK_MIN && advance > Epoch::ADVANCE_MAX;
        if leaps || !answered.is_possible() {
            return Err(EpochError::Jump { answered, known });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_follows_if_a_real_master_can_have_it() {
        let clock = 1_790_000_000_000;
        let rows = [
            // The first answer, a second one, the next start.
            (0, clock, "ok"),
            (clock, clock, "ok"),
            (clock, clock + 86_400_000, "ok"),
            (clock, clock + (1 << 36), "ok"),
            (clock, clock - 1, "lower"),
            // From `--epoch 5` to the clock.
            (5, clock, "ok"),
            (clock, clock + (1 << 36) + 1, "jump"),
            (clock, (1 << 42) - 1, "jump"),
            (0, (1 << 42) - 1, "ok"),
            (0, 1 << 42, "jump"),
            (clock, u64::MAX, "jump"),
            // An earlier version may have applied an epoch that is refused now.
            (u64::MAX, clock, "ok"),
            (u64::MAX, u64::MAX, "jump"),
        ];
        for (known, answered, want) in rows {
            let of = |epoch| Origin::alone(Epoch(epoch));
            let found = match of(answered).check_after(of(known)) {
                Ok(()) => "ok",
                Err(EpochError::Lower { .. }) => "lower",
                Err(EpochError::Jump { .. }) => "jump",
            };
            assert_eq!(found, want, "{answered} after {known}");
        }
        let of_shard = |shard, epoch| Origin {
            shard: Some(ShardId(shard)),
            epoch: Epoch(epoch),
        };
        let (one, two) = (of_shard(1, clock + 9), of_shard(2, clock));
        assert_eq!(two.check_after(one), Ok(()));
        let lie = of_shard(2, u64::MAX).check_after(one);
        assert!(matches!(lie, Err(EpochError::Jump { .. })), "{lie:?}");
    }
}
