//! Steps of a run. Indices of clients, members and messages count around; amounts are in the
//! smallest parts of the unit.

use crate::lease::Band;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Wait(u64),
    /// A client asks, and has the answer at once.
    Exchange(usize),
    Ask(usize),
    Release(usize),
    /// A message arrives; some arrive twice.
    Deliver {
        mail: usize,
        again: bool,
    },
    Lose(usize),
    /// A client wants something else.
    Want(usize, Band),
    /// A client dies, and starts again, with its id or with another.
    Crash {
        client: usize,
        keeps_id: bool,
    },
    /// The master is lost, and another one learns.
    Restart,
    /// Another master goes on, by another clock.
    HandOver {
        offset_ms: u64,
    },
    /// An operator changes a capacity, and the lease.
    Limit {
        member: usize,
        parts: u64,
        shorter_ms: u64,
    },
    PoolLimit(u64),
    /// A member leaves the pool, or comes back with another weight.
    Move {
        member: usize,
        weight: u32,
    },
}
