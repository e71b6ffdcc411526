//! What a coordinator below another borrows of its parent, and lends on.
//!
//! To its parent such a coordinator is one client, which speaks for many: it asks for what its own
//! clients want together, by priority, and divides what it gets between them. Three things make law
//! 1 hold over all levels:
//!
//! - **What it has** is the most that its clients may be using, not what it was last lent. When the
//!   parent lowers a lease, the difference stays in use until the clients have given it back, and
//!   until then it is said to the parent, which goes on counting it. So the acknowledgement that a
//!   lowered lease needs (see [`resource`](crate::resource)) comes from the leaves.
//! - **How long**: nothing is lent for longer than it is borrowed. So when the parent counts a lease
//!   as expired, nobody below uses any of it.
//! - **What it does not know** it does not free: one that has started without books says that what
//!   it has may be more than it says ([`Claim::AtLeast`](crate::lease::Claim)).
//!
//! The parent counts the runs of such a coordinator as one client, because a new run goes on with
//! what the one before has lent: of a node that was master before, or before a restart. Its terms
//! order the runs (see [`Run::Term`]): the parent refuses whatever comes of a lower term, however
//! late, as it refuses a lower sequence of the same one. Who is refused does not try a higher term:
//! it has a successor, or is not the only one of its name, and two that overtook each other would
//! both lend what one has borrowed.
//!
//! [`Run::Term`]: crate::lease::Run::Term
//!
//! A parent that is away changes nothing until the borrowed lease ends. Then the safe capacity is
//! lent, for each client what the parent last sent, else what the limit says; if neither says
//! anything, nothing is lent, and clients do what their mode says.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

mod bound;
mod loan;

pub(crate) use self::bound::{Bound, Source};
use self::loan::Loan;
pub use self::loan::LoanView;
use crate::client::Todo;
use crate::lease::{Answer, Demand, EpochError, Origin, ResourceId};
use crate::limit::Limit;
use crate::pool::Needs;
use crate::units::{Capacity, Instant};

/// How long what the parent said of a resource is remembered without clients: as long as a lease
/// by default, so that a resource whose leases have all ended with the parent's is no newcomer.
const LINGER: Duration = Duration::from_secs(10);

/// Requests that become due so soon after the first are sent with it.
const TOGETHER: Duration = Duration::from_millis(20);

/// What a coordinator borrows of its parent, by resource.
#[derive(Debug)]
pub struct Tree {
    loans: BTreeMap<ResourceId, Loan>,
    /// For each loan one instant, not after its next request.
    due: BTreeSet<(Instant, ResourceId)>,
    /// Of the last request, whatever it was for.
    sequence: u64,
    /// How many coordinators are above.
    level: u32,
    call_timeout: Duration,
    /// The most loans that are remembered for resources without clients.
    idle_max: usize,
    idle: usize,
}

/// What the books say of a resource at the time of a request.
#[derive(Debug)]
pub(crate) struct Asked {
    /// What its clients want.
    pub(crate) demand: Demand,
    /// The most that they may be using.
    pub(crate) has: Capacity,
    /// Whether that is hearsay: they may be using more than is known, or less than the books say that
    /// were taken over, for these do not age on their way.
    pub(crate) hearsay: bool,
}

// === impl Tree ===

impl Tree {
    /// Nothing borrowed. Requests are counted from `sequence` on; one without an answer after
    /// `call_timeout` is lost.
    pub fn new(sequence: u64, call_timeout: Duration, idle_max: usize) -> Self {
        Self {
            loans: BTreeMap::new(),
            due: BTreeSet::new(),
            sequence,
            level: 1,
            call_timeout,
            idle_max,
            idle: 0,
        }
    }

    /// What may be lent now of the resource `id` under `limit`, its own.
    pub(crate) fn bound(&self, now: Instant, id: &ResourceId, limit: &Limit) -> Bound {
        match self.loans.get(id) {
            Some(loan) => loan.bound(now, limit, self.level),
            None => Bound::pending(self.level),
        }
    }

    /// Says how many coordinators are above, at least one.
    pub(crate) fn set_level(&mut self, level: u32) {
        self.level = level.max(1);
    }

    /// Takes what has become of a resource's sums; what was lent of it before this tree knew of it
    /// ends at `lent_until`. Asks at once for one that is new here, and early if what is wanted has
    /// changed much.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        id: &ResourceId,
        lent_until: Instant,
        needs: &Needs,
    ) {
        if let Some(loan) = self.loans.get_mut(id) {
            if loan.is_idle() {
                self.idle = self.idle.saturating_sub(1);
            }
            if loan.note(now, lent_until, needs) {
                requeue(&mut self.due, id, loan);
            }
            return;
        }
        self.due.insert((now, id.clone()));
        self.loans.insert(id.clone(), Loan::new(now, lent_until));
    }

    /// When [`Tree::ask`] next has something to say.
    pub(crate) fn poll_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// What there is to say to the parent now, of at most `max` resources; `look` tells what the
    /// books say of one, if they know it.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        max: usize,
        mut look: impl FnMut(&ResourceId) -> Option<Asked>,
    ) -> Vec<(ResourceId, Todo)> {
        let mut todo = Vec::new();
        if self.due.first().is_none_or(|(at, _)| *at > now) {
            return todo;
        }
        let horizon = now.saturating_add(TOGETHER);
        while todo.len() < max && self.due.first().is_some_and(|(at, _)| *at <= horizon) {
            let Some((_, id)) = self.due.pop_first() else {
                break;
            };
            let asked = look(&id);
            if let Some(say) = self.ask_one(now, horizon, &id, asked) {
                todo.push((id, say));
            }
        }
        todo
    }

    /// What there is to say of one resource, of which the queue has been relieved.
    fn ask_one(
        &mut self,
        now: Instant,
        horizon: Instant,
        id: &ResourceId,
        asked: Option<Asked>,
    ) -> Option<Todo> {
        let loan = self.loans.get_mut(id)?;
        let waits = loan.is_waiting() && loan.due() > now;
        if loan.due() > horizon || waits {
            // It was put off after it had been queued.
            loan.queued_at = loan.due();
            self.due.insert((loan.queued_at, id.clone()));
            return None;
        }
        self.sequence = self.sequence.saturating_add(1);
        let todo = match asked {
            Some(asked) => Some(loan.ask(now, self.sequence, self.call_timeout, asked)),
            None if loan.is_idle() => {
                self.idle = self.idle.saturating_sub(1);
                self.loans.remove(id);
                return None;
            }
            None => {
                let released = loan.release(now, self.sequence, LINGER);
                if self.idle >= self.idle_max {
                    self.loans.remove(id);
                    return released;
                }
                self.idle = self.idle.saturating_add(1);
                released
            }
        };
        loan.queued_at = loan.due();
        self.due.insert((loan.queued_at, id.clone()));
        todo
    }

    /// Checks whether an answer from `origin` for the resource `id` may be applied.
    pub(crate) fn check_origin(&self, id: &ResourceId, origin: Origin) -> Result<(), EpochError> {
        let loan = self.loans.get(id);
        loan.map_or(Ok(()), |loan| loan.check_origin(origin))
    }

    /// Takes the parent's answer to the request of `sequence`. True if it counts.
    pub(crate) fn handle_answer(
        &mut self,
        now: Instant,
        id: &ResourceId,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> bool {
        let Some(loan) = self.loans.get_mut(id) else {
            return false;
        };
        let counts = loan.handle_answer(now, sequence, origin, answer);
        requeue(&mut self.due, id, loan);
        counts
    }

    /// Notes that the request of `sequence` failed.
    pub(crate) fn handle_failure(&mut self, now: Instant, id: &ResourceId, sequence: u64) {
        if let Some(loan) = self.loans.get_mut(id) {
            loan.handle_failure(now, sequence);
            requeue(&mut self.due, id, loan);
        }
    }

    /// All that is borrowed, by resource.
    pub fn loans(&self, now: Instant) -> impl Iterator<Item = (&ResourceId, LoanView)> {
        self.loans
            .iter()
            .map(move |(id, loan)| (id, loan.view(now)))
    }

    /// What is borrowed of the resource `id`, if it was ever asked for.
    pub fn loan(&self, now: Instant, id: &ResourceId) -> Option<LoanView> {
        self.loans.get(id).map(|loan| loan.view(now))
    }
}

// === free functions ===

/// Sees to it that the next request is looked at in time; an instant that is too early stays.
fn requeue(due: &mut BTreeSet<(Instant, ResourceId)>, id: &ResourceId, loan: &mut Loan) {
    let next = loan.due();
    if next < loan.queued_at
        && let Some((_, id)) = due.take(&(loan.queued_at, id.clone()))
    {
        due.insert((next, id));
        loan.queued_at = next;
    }
}

#[cfg(test)]
mod tests;
