//! Sync leader: the worker of a process that talks to the coordinator.
//!
//! Every worker looks at the lock's record on its tick. The leader renews its heartbeat; a lock
//! whose heartbeat is old belongs to a worker that has died or is stuck, and the first worker that
//! sees it takes it over. Two workers that both believe they are the leader, for one tick, do no
//! harm: each refresh is claimed in its resource's own record.

use core::time::Duration;

use crate::units::Instant;

/// Interval at which the leader renews its heartbeat. Renewing at each tick would only add writes.
const RENEW_AFTER: Duration = Duration::from_millis(100);
/// A heartbeat this old is missed: the leader has not ticked for several of its ticks.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// Record of the sync leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderLock {
    /// A worker, by a number that it drew at its start.
    pub owner: u64,
    /// Time at which the leader last renewed it.
    pub heartbeat: Instant,
}

/// Role of a worker now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderRole {
    /// It is the leader.
    Hold,
    /// It is the leader once it has written [`LeaderLock`] with itself as owner: to take over or to
    /// renew the heartbeat.
    Write(LeaderLock),
    /// Another worker is the leader.
    Leave,
}

impl LeaderLock {
    /// The length of an encoded lock, in bytes.
    pub const ENCODED_LEN: usize = 17;
    const VERSION: u8 = 1;

    /// Returns the role of worker `me` at `now`, given the record.
    pub fn decide(record: Option<Self>, now: Instant, me: u64) -> LeaderRole {
        let mine = LeaderRole::Write(Self {
            owner: me,
            heartbeat: now,
        });
        let Some(lock) = record else { return mine };
        let age = now.saturating_since(lock.heartbeat);
        // A heartbeat from the future is a record of another boot or hostile, and is never renewed.
        let future = lock.heartbeat > now.saturating_add(LOST_AFTER);
        let is_mine = lock.owner == me;
        if is_mine && age < RENEW_AFTER && !future {
            LeaderRole::Hold
        } else if is_mine || age >= LOST_AFTER || future {
            mine
        } else {
            LeaderRole::Leave
        }
    }

    /// The record's bytes.
    pub fn encode(self) -> [u8; Self::ENCODED_LEN] {
        let mut fields = [Self::VERSION]
            .into_iter()
            .chain(self.owner.to_le_bytes())
            .chain(self.heartbeat.as_nanos().to_le_bytes());
        core::array::from_fn(|_| fields.next().unwrap_or_default())
    }

    /// Reads the lock in `bytes`; none if they are of another version, truncated or too long.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (owner, rest) = rest.split_first_chunk()?;
        let (heartbeat, rest) = rest.split_first_chunk()?;
        (*version == Self::VERSION && rest.is_empty()).then_some(Self {
            owner: u64::from_le_bytes(*owner),
            heartbeat: Instant::from_nanos(u64::from_le_bytes(*heartbeat)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decide_rows() {
        let at = |ms| Instant::ZERO.saturating_add(Duration::from_millis(ms));
        let lock = |owner, ms| {
            Some(LeaderLock {
                owner,
                heartbeat: at(ms),
            })
        };
        let write = |ms| {
            LeaderRole::Write(LeaderLock {
                owner: 1,
                heartbeat: at(ms),
            })
        };
        let rows = [
            ("nobody has it", None, 1000, write(1000)),
            ("mine, fresh", lock(1, 950), 1000, LeaderRole::Hold),
            ("mine, to renew", lock(1, 900), 1000, write(1000)),
            ("another's, alive", lock(2, 501), 1000, LeaderRole::Leave),
            ("another's, lost", lock(2, 500), 1000, write(1000)),
            ("from the future", lock(2, 9000), 1000, write(1000)),
        ];
        for (name, record, now, want) in rows {
            assert_eq!(LeaderLock::decide(record, at(now), 1), want, "{name}");
        }
    }

    #[test]
    fn decode_takes_back_what_encode_gave_and_nothing_else() {
        let lock = LeaderLock {
            owner: 7,
            heartbeat: Instant::from_nanos(9),
        };
        let bytes = lock.encode();
        assert_eq!(LeaderLock::decode(&bytes), Some(lock));
        for len in 0..bytes.len() {
            assert_eq!(LeaderLock::decode(&bytes[..len]), None);
        }
        assert_eq!(LeaderLock::decode(&[bytes.as_slice(), &[0]].concat()), None);
        assert_eq!(LeaderLock::decode(&[&[9], &bytes[1..]].concat()), None);
    }
}
