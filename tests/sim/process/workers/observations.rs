//! Outside observations of a process's workers, most of them of their writes.

use tollgate_core::client::{KnownLimit, ScopeState};
use tollgate_core::lease::{Answer, Origin, Unit, UnitAnswer};
use tollgate_core::units::{Capacity, Instant};

use super::super::view::{balance, debt_max};
use super::super::work::Tally;
use super::Workers;

/// Answer for the unit under test.
#[derive(Clone, Copy, Debug)]
pub(in crate::process) struct HandedAnswer {
    pub(in crate::process) origin: Origin,
    pub(in crate::process) answer: UnitAnswer,
}

/// Outside observations of the workers.
#[derive(Debug, Default)]
pub(in crate::process) struct Observations {
    /// Tokens that were spent since the last look of a law.
    pub(in crate::process) admitted: u64,
    /// Bytes that passed and need not be paid, since the last look of a law: their worker was lost.
    pub(in crate::process) forgiven: f64,
    /// Whether a debt was forgiven that was larger than may be owed, since then.
    pub(in crate::process) debt_cut: bool,
    /// The first broken invariant.
    pub(in crate::process) broken: Option<String>,
    /// The limit of the last answer that told one.
    pub(in crate::process) limit_sent: Option<KnownLimit>,
    pub(in crate::process) applied: u64,
    pub(in crate::process) tally: Tally,
    pub(in crate::process) trapped_at: Option<Instant>,
    /// Time of the first request that can miss the permits of the worker that was lost last.
    pub(in crate::process) missed_at: Option<Instant>,
    /// Bytes of requests that went on together with others beyond one body each time, since the last
    /// look of a law.
    pub(in crate::process) together: u64,
}

// === impl Workers ===

impl Workers {
    /// Checks a write of the scope's slot.
    pub(super) fn see_write(&self, worker: usize, before: &[u8], after: &[u8]) {
        let handed = self.handed.borrow().get(&worker).copied();
        let unit = self.setup.work.unit();
        if unit == Unit::Requests && handed.is_none() {
            return;
        }
        let (Some(mut before), Some(after)) = (self.own(before), self.own(after)) else {
            return;
        };
        self.see_permits(&before, &after);
        self.see_debt(&mut before, &after);
        let Some(handed) = handed else { return };
        let (now, policy) = (self.now(), &self.setup.policy);
        let HandedAnswer { origin, answer } = handed;
        if before.handle_answer(now, policy, origin, &answer) {
            let mut seen = self.seen.borrow_mut();
            let Answer {
                lease,
                safe,
                capacity,
                burst,
                ..
            } = answer.answer;
            let unlimited = capacity.is_unlimited();
            let free = lease.is_some_and(|terms| terms.capacity.is_unlimited() && unlimited);
            // A coordinator that waits for its parent knows of no limit yet.
            if lease.is_some() || !unlimited || seen.limit_sent.is_none() {
                seen.limit_sent = Some(KnownLimit {
                    capacity,
                    burst,
                    safe: safe.or_else(|| free.then_some(Capacity::UNLIMITED)),
                });
            }
            seen.applied += 1;
        }
    }

    /// Checks that no more permits are given than there are.
    fn see_permits(&self, before: &ScopeState, after: &ScopeState) {
        let (Some(before), Some(after)) = (&before.concurrency, &after.concurrency) else {
            return;
        };
        let (held, limit) = (after.held(), after.limit(self.now(), &self.setup.policy));
        self.ensure(held <= before.held() || held <= limit, || {
            format!("{held} permits are held of {limit}")
        });
    }

    /// Checks that the debt is within its limit.
    fn see_debt(&self, before: &mut ScopeState, after: &ScopeState) {
        let unit = self.setup.work.unit();
        let mut after = after.clone();
        let (Some(before), Some(after)) = (before.rate_mut(unit), after.rate_mut(unit)) else {
            return;
        };
        if self.setup.work.usual() == 1 {
            return;
        }
        let (now, policy) = (self.now(), &self.setup.policy);
        let had = balance(before, now, policy);
        let (left, most) = (balance(after, now, policy), debt_max(after, now, policy));
        // One token for the rounding of the bucket's answers.
        let grows = left < had.min(0.0) - 1.0;
        // At another rate the same debt would be too large, and at none it cannot be seen. It seems to
        // grow when a lease of nothing is given back, after which the safe capacity shows it.
        let is_seen = most > 0.0 && most == debt_max(before, now, policy);
        let is_bounded = !grows || left >= -most - 1.0 || !is_seen;
        self.ensure(is_bounded, || format!("{} of at most {most} owed", -left));
        // Also a debt from a higher rate is cut to what may be owed at the present one.
        let was_larger = had < -most - 1.0 && left > had + 1.0;
        if was_larger || grows && left <= -most + 1.0 {
            let mut seen = self.seen.borrow_mut();
            seen.debt_cut = true;
            seen.tally.forgiven += 1;
        }
    }
}
