//! Rate limiter that draws, and whose calls fail: its standby capacity, and tokens on credit.

use core::time::Duration;

use super::{DrawResult, RateLimiter, micros};
use crate::client::{Mode, Policy};
use crate::lease::Answer;
use crate::lease_client::HeldLease;
use crate::units::{Capacity, Instant, Rate, Tokens, mul_div};

// === impl RateLimiter ===

impl RateLimiter {
    /// Whether it draws, and the coordinator does not answer.
    pub(super) fn is_cut_off(&self) -> bool {
        let is_unanswered = self.draws.is_unanswered || self.lease.client.failures > 0;
        self.draws.offered && is_unanswered
    }

    /// Draws while no answer comes: of what the standby capacity, or else the safe capacity, has earned; or on
    /// credit, where the fleet had tokens by the last answer: its part of these, or as many as a bucket of safe
    /// capacity holds.
    pub(super) fn draw_cut_off(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        workers: u32,
    ) -> DrawResult {
        let taken = self.take(now, need, workers);
        let retry_at = match taken {
            DrawResult::Denied { retry_at } => retry_at,
            DrawResult::ExceedsBurst { .. } if need <= self.whole_burst() => None,
            _ => return taken,
        };
        let most = self.credit_max(policy);
        let level = self.draws.level(now, self.whole_rate(), self.whole_burst());
        if self.draws.owed.saturating_add(need) <= most && level >= micros(need) {
            self.draws.owe(now, need, most);
            self.draws.on_credit = self.draws.on_credit.saturating_add(need);
            return DrawResult::Tokens(need);
        }
        if matches!(taken, DrawResult::ExceedsBurst { .. }) {
            return taken;
        }
        // By then it may draw again.
        let earned_at = self.earned_at(now, need);
        DrawResult::Denied {
            retry_at: retry_at.min(earned_at).or(retry_at),
        }
    }

    /// Capacity that it may use because it is cut off, until its lease ends; if `policy` is optimistic what is
    /// wanted passes without it.
    pub fn standby(&self, now: Instant, policy: &Policy) -> Option<Capacity> {
        self.lease.client.valid_lease(now)?;
        let counts = self.is_cut_off() && policy.no_lease != Mode::Optimistic;
        Some(self.draws.standby).filter(|standby| counts && *standby > Capacity::ZERO)
    }

    /// Rate and burst of the standby capacity: what it earns in a second, but a token at least.
    pub(super) fn standby_flow(&self, standby: Capacity) -> (Rate, Tokens) {
        let rate = standby.as_rate();
        let burst = rate.tokens_in(Duration::from_secs(1)).max(Tokens::ONE);
        (rate, burst.min(self.whole_burst()))
    }

    /// Tokens that may be owed while it is cut off: its part of those that nobody had by the last answer, or as
    /// many as a bucket of safe capacity holds.
    fn credit_max(&self, policy: &Policy) -> Tokens {
        let (fleet, standby) = (self.draws.fleet, self.draws.standby);
        let whole = u128::from(self.whole_rate().as_micros());
        let part = mul_div(fleet.as_micros(), standby.as_micros(), whole.max(1));
        let (_, burst) = self.flow_without_lease(policy);
        match self.draws.quota {
            // The safe capacity that it spends is counted apart.
            Some(_) => Tokens::ZERO,
            None => burst.max(Tokens::from_micros(part)),
        }
    }

    /// The lease that stays in force with `answer`, because it draws and the coordinator learns.
    pub(super) fn standby_lease(&self, now: Instant, answer: &Answer) -> Option<HeldLease> {
        let learns = answer.lease.is_none() && answer.draw.is_none();
        let lease = self.lease.client.valid_lease(now);
        lease.filter(|_| self.draws.offered && learns)
    }

    /// Rate and burst without a lease, and without standby capacity.
    pub(super) fn flow_without_lease(&self, policy: &Policy) -> (Rate, Tokens) {
        let known = self.known_limit(policy);
        policy.flow_without_lease(self.unit, known, self.demand.wants())
    }
}
