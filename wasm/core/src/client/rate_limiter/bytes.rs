//! Rate limiter of bytes: nobody knows how many a request will bring, so one that is left lets it go on. As many as
//! usual are taken then, and what it brings more is paid afterwards.

use super::draw::{Credit, OWED_PARTS};
use super::{DrawResult, Phase, RateLimiter, micros};
use crate::client::{AwaitAction, Policy};
use crate::units::{Instant, Tokens};

// === impl RateLimiter ===

impl RateLimiter {
    /// Lets a request go on that has `usual` bytes as a rule, unless none are left, or some are owed. Returns the bytes
    /// that one of `workers` workers may let pass for it, with a lease also a token cache of more. The worker
    /// [gives back](RateLimiter::give_back) those that do not come, and [pays](RateLimiter::pay) for those that come
    /// beyond.
    pub fn draw_bytes(
        &mut self,
        now: Instant,
        policy: &Policy,
        usual: Tokens,
        workers: u32,
        action: AwaitAction,
    ) -> DrawResult {
        if self.lease.phase == Phase::Idle && usual == Tokens::ZERO {
            // A client whose requests have no bodies needs no lease.
            let taken = self.take_bytes(now, usual, workers);
            if matches!(taken, DrawResult::Tokens(_)) {
                return taken;
            }
        }
        let (holds, credit) = match action {
            AwaitAction::Hold => (true, Credit::None),
            AwaitAction::Refuse => (false, Credit::OfMany),
            AwaitAction::Admit => (false, Credit::OfAll),
        };
        let usual = usual.max(Tokens::ONE);
        self.draws.cost = usual;
        if holds && let Some(until) = self.hold_for_lease(now, policy, usual) {
            return DrawResult::Pending { until };
        }
        self.lease.rouse(now, policy);
        self.settle_bucket(now, policy);
        self.set_flow(now, policy);
        if !self.can_draw(now) {
            return self.take_bytes(now, usual, workers);
        }
        let usual = usual.min(self.whole_burst());
        if let Some(tokens) = self.draws.take_part(now, usual) {
            return DrawResult::Tokens(tokens);
        }
        if self.may_owe_bytes(now, usual) {
            self.owe_fleet(now, policy, usual);
            return DrawResult::Tokens(usual);
        }
        let result = self.draw_of_fleet(now, policy, usual, credit);
        if holds {
            self.held(now, result)
        } else {
            result
        }
    }

    /// Takes `usual` bytes or a token cache of its own bucket, or what is there.
    fn take_bytes(&mut self, now: Instant, usual: Tokens, workers: u32) -> DrawResult {
        let want = self.cache_size(workers).max(usual).max(Tokens::ONE);
        self.take_up_to(now, Tokens::ONE, want)
    }

    /// Whether a request may owe `usual` bytes: nobody has half of the burst, as far as it is known, and the coordinator
    /// knows of all but a small part of what is owed.
    fn may_owe_bytes(&self, now: Instant, usual: Tokens) -> bool {
        let burst = self.whole_burst();
        let level = self.draws.level(now, self.whole_rate(), burst);
        let most = Tokens::from_micros(burst.as_micros() / OWED_PARTS).max(usual);
        // A killed client could not tell of them.
        self.draws.quota.is_none()
            && level >= micros(Tokens::from_micros(burst.as_micros() / 2))
            && self.draws.owed.saturating_add(usual) <= most
    }
}
