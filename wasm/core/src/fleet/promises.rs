//! Tokens of the fleet's bucket that are kept for clients that get less than their part.
//!
//! First come, first served starves the modest: a client that asks a hundred times as often finds each new
//! token. So a client that draws in vain has the next one kept for it for a while: from those that ask for more
//! than their part all the time, and for much more than it does, and had their last token later. Of clients that want
//! about as much, none needs it, and a token that waits may find no room for the next.

use alloc::vec::Vec;

use crate::units::{Capacity, Instant, Tokens};

/// The most clients for which tokens are kept at a time.
const PROMISES_MAX: usize = 16;

/// As often as this a client asks for a token that one is kept from.
const MUCH_MORE: u64 = 4;

/// Tokens that are kept, by client.
#[derive(Debug, Default)]
pub(super) struct Promises(Vec<Promise>);

/// Tokens that are kept for one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    /// The client, by its tie-break.
    pub(super) client: u64,
    /// Time of its last token.
    pub(super) served_at: Instant,
    pub(super) wants: Capacity,
    pub(super) tokens: Tokens,
    pub(super) until: Instant,
}

// === impl Promises ===

impl Promises {
    /// Tokens that are kept at `now` from a client that wants `wants` and had its last one at `served_at`: for
    /// others that have waited for longer and want much less.
    pub(super) fn for_others(
        &mut self,
        now: Instant,
        wants: Capacity,
        served_at: Instant,
    ) -> Tokens {
        self.0.retain(|promise| promise.until > now);
        let much_less = |other: &Promise| other.wants.saturating_mul(MUCH_MORE) <= wants;
        let others = self.0.iter();
        let others = others.filter(|other| other.served_at < served_at && much_less(other));
        others.fold(Tokens::ZERO, |sum, promise| {
            sum.saturating_add(promise.tokens)
        })
    }

    /// Keeps tokens for a client at `now`, unless some are kept for it. Of too many those go that were served
    /// last.
    pub(super) fn make(&mut self, now: Instant, promise: Promise) {
        self.0.retain(|other| other.until > now);
        if self.0.iter().any(|other| other.client == promise.client) {
            return;
        }
        self.0.push(promise);
        let last = self.0.iter().enumerate();
        let last = last.max_by_key(|(_, other)| other.served_at);
        if let Some((index, _)) = last
            && self.0.len() > PROMISES_MAX
        {
            self.0.swap_remove(index);
        }
    }

    /// Keeps nothing for anybody any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps nothing for `client` any more.
    pub(super) fn end(&mut self, client: u64) {
        self.0.retain(|promise| promise.client != client);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(secs))
    }

    fn promise(client: u64, until: u64) -> Promise {
        Promise {
            client,
            served_at: at(client),
            wants: Capacity::from_whole(1),
            tokens: Tokens::ONE,
            until: at(until),
        }
    }

    /// Tokens that are kept from a client that wants four a second.
    fn kept(promises: &mut Promises, now: u64, served_at: u64) -> Tokens {
        promises.for_others(at(now), Capacity::from_whole(4), at(served_at))
    }

    #[test]
    fn tokens_are_kept_from_others_that_were_served_later() {
        let mut promises = Promises::default();
        promises.make(at(0), promise(1, 10));
        promises.make(at(0), promise(1, 20));
        promises.make(at(0), promise(2, 20));
        assert_eq!(kept(&mut promises, 0, 2), Tokens::ONE);
        assert_eq!(kept(&mut promises, 0, 3), Tokens::from_whole(2));
        assert_eq!(kept(&mut promises, 0, 1), Tokens::ZERO);
        promises.end(2);
        assert_eq!(kept(&mut promises, 9, 3), Tokens::ONE);
        assert_eq!(kept(&mut promises, 10, 3), Tokens::ZERO);
        promises.make(at(10), promise(1, 20));
        assert_eq!(kept(&mut promises, 10, 3), Tokens::ONE);
    }

    #[test]
    fn none_are_kept_from_one_that_wants_little_more() {
        let mut promises = Promises::default();
        promises.make(at(0), promise(1, 10));
        let wants = Capacity::from_whole(3);
        assert_eq!(promises.for_others(at(0), wants, at(2)), Tokens::ZERO);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let mut promises = Promises::default();
        for client in (0..100).rev() {
            promises.make(at(0), promise(client, 10));
        }
        assert_eq!(kept(&mut promises, 0, 2), Tokens::from_whole(2));
        let most = Tokens::from_whole(PROMISES_MAX as u64);
        assert_eq!(kept(&mut promises, 0, 1000), most);
    }
}
