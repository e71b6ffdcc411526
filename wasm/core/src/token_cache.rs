//! Token cache: tokens that one worker has drawn ahead and may spend by itself.
//!
//! A process's bucket is shared between its workers and costs a compare-and-swap to draw from. A
//! token cache is the worker's own, so spending from it is a comparison and a subtraction, and
//! reads no clock. Its tokens have left the bucket already; they do not grow and go back unspent.

use crate::units::Tokens;

/// Tokens drawn by one worker and not yet spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCache {
    left: Tokens,
}

// === impl TokenCache ===

impl TokenCache {
    /// A cache of the tokens just drawn.
    pub const fn new(drawn: Tokens) -> Self {
        Self { left: drawn }
    }

    /// Tokens not yet spent.
    pub const fn left(&self) -> Tokens {
        self.left
    }

    /// Spends `need` tokens, or none and says `false`.
    #[inline]
    pub const fn take(&mut self, need: Tokens) -> bool {
        let Some(left) = self.left.as_micros().checked_sub(need.as_micros()) else {
            return false;
        };
        self.left = Tokens::from_micros(left);
        true
    }

    /// Adds tokens just drawn, or those of a request that did not go on after all.
    #[inline]
    pub const fn add(&mut self, tokens: Tokens) {
        self.left = self.left.saturating_add(tokens);
    }

    /// Takes out all that is left, to be given back to the bucket.
    pub const fn drain(&mut self) -> Tokens {
        let left = self.left;
        self.left = Tokens::ZERO;
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_cache_spends_exactly_what_was_drawn() {
        let mut cache = TokenCache::new(Tokens::from_whole(2));
        cache.add(Tokens::ONE);
        let passed = (0..10).filter(|_| cache.take(Tokens::ONE)).count();
        assert_eq!((passed, cache.left()), (3, Tokens::ZERO));
    }

    #[test]
    fn a_refused_take_costs_nothing_and_drain_empties() {
        let mut cache = TokenCache::new(Tokens::from_micros(2_999_999));
        assert!(!cache.take(Tokens::from_whole(3)));
        assert_eq!(cache.drain(), Tokens::from_micros(2_999_999));
        assert_eq!(cache.drain(), Tokens::ZERO);
        assert!(!cache.take(Tokens::from_micros(1)));
        assert!(cache.take(Tokens::ZERO));
    }
}
