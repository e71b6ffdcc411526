//! A worker that counts requests, and refuses those beyond the limit.

use tollgate_core::client::DrawResult;
use tollgate_core::token_cache::TokenCache;
use tollgate_core::units::Tokens;

use super::work::{Desk, Worker};
use crate::random::Random;

/// Its slab.
#[derive(Default)]
pub(super) struct Counter(TokenCache);

// === impl Counter ===

impl Worker for Counter {
    fn attempt(&mut self, desk: &mut Desk<'_>, _random: &mut Random) -> u64 {
        let now = desk.now;
        desk.rate().count(now, 1);
        take(&mut self.0, desk).is_ok().into()
    }

    /// Workers return stale slabs.
    fn tick(&mut self, desk: &mut Desk<'_>, _random: &mut Random, tidy: bool) -> u64 {
        if tidy {
            let (now, policy) = (desk.now, desk.policy);
            desk.rate().give_back(now, policy, self.0.drain());
        }
        0
    }
}

// === free functions ===

/// Takes one token from the slab, which it fills if need be, or says what the holder said.
pub(super) fn take(cache: &mut TokenCache, desk: &mut Desk<'_>) -> Result<(), DrawResult> {
    if cache.take(Tokens::ONE) {
        return Ok(());
    }
    let (now, policy, workers) = (desk.now, desk.policy, desk.workers);
    match desk.rate().draw(now, policy, Tokens::ONE, workers) {
        DrawResult::Tokens(tokens) => {
            cache.add(tokens);
            assert!(cache.take(Tokens::ONE), "a draw gives what was needed");
            Ok(())
        }
        draw => Err(draw),
    }
}
