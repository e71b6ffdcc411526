//! A worker that counts the bytes of bodies: known only when they have passed, and paid after.

use tollgate_core::client::{DrawResult, LeaseState};
use tollgate_core::token_cache::TokenCache;
use tollgate_core::units::Tokens;

use super::work::{Desk, Tally, Worker, balance};
use crate::random::Random;

/// A slab, and what no slab has paid.
pub(super) struct Meter {
    /// Bytes of a usual body.
    usual: u64,
    /// Whether some bodies are large.
    bulky: bool,
    cache: TokenCache,
    owed: Tokens,
    /// Bytes that the holder has not counted as wanted.
    attempts: u64,
    /// How much may be owed before it is paid.
    step: Tokens,
    tally: Tally,
}

// === impl Meter ===

impl Meter {
    /// How many usual bodies a large one is.
    pub(super) const BULKY: u64 = 20;

    pub(super) fn new(usual: u64) -> Self {
        Self {
            usual,
            bulky: true,
            cache: TokenCache::default(),
            owed: Tokens::ZERO,
            attempts: 0,
            step: Tokens::ZERO,
            tally: Tally::default(),
        }
    }

    /// Whether a request may begin: none does while bytes are owed.
    fn advance(&mut self, desk: &mut Desk<'_>) -> bool {
        if self.owed == Tokens::ZERO && self.cache.left() > Tokens::ZERO {
            return true;
        }
        self.pay(desk);
        let (now, policy, workers) = (desk.now, desk.policy, desk.workers);
        let draw = desk.rate().advance(now, policy, workers);
        if let DrawResult::Tokens(tokens) = draw {
            self.cache.add(tokens);
        }
        matches!(draw, DrawResult::Tokens(_))
    }

    /// Pays what is owed, of which no more becomes a debt than the policy allows.
    fn pay(&mut self, desk: &mut Desk<'_>) {
        let (now, policy, workers) = (desk.now, desk.policy, desk.workers);
        let (attempts, owed) = (self.attempts, self.owed);
        let holder = desk.rate();
        let before = balance(holder, now, policy);
        holder.pay(now, policy, attempts, owed);
        let after = balance(holder, now, policy);
        self.step = holder.owed_max(workers);
        let (rate, _) = holder.flow(now, policy);
        let most = rate.tokens_in(policy.max_debt).as_micros() as f64 / 1e6;
        let forgiven = after - (before - owed.as_micros() as f64 / 1e6);
        // A token for what the bucket's answers are rounded to.
        let old = holder.state(now) == LeaseState::Pending || attempts == 0;
        desk.ensure(old || after >= -most - 1.0, || {
            format!("{after} of at most {most} owed")
        });
        if forgiven > 1.0 && after < 1.0 {
            *desk.forgiven += forgiven;
            self.tally.forgiven += 1;
        }
        (self.attempts, self.owed) = (0, Tokens::ZERO);
    }
}

impl Worker for Meter {
    fn attempt(&mut self, desk: &mut Desk<'_>, random: &mut Random) -> u64 {
        if !self.advance(desk) {
            self.attempts += self.usual;
            return 0;
        }
        let times = if self.bulky && random.chance(2) {
            Self::BULKY
        } else {
            1
        };
        let bytes = self.usual * times;
        let all = Tokens::from_whole(bytes);
        self.attempts += bytes;
        let paid = self.cache.left().min(all);
        self.cache.take(paid);
        self.owed = self.owed.saturating_add(all.saturating_sub(paid));
        if self.owed > self.step {
            self.pay(desk);
        }
        bytes
    }

    fn tick(&mut self, desk: &mut Desk<'_>, _random: &mut Random, tidy: bool) -> u64 {
        if tidy {
            if self.attempts == 0 && self.owed == Tokens::ZERO {
                let (now, policy) = (desk.now, desk.policy);
                desk.rate().give_back(now, policy, self.cache.drain());
            }
            self.pay(desk);
        }
        0
    }

    fn calm(&mut self) {
        self.bulky = false;
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
