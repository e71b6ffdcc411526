//! Lack: capacity that a client has to wait for until others have given back.

use core::time::Duration;

use crate::units::{Capacity, Instant};

/// Capacity that a client is entitled to and does not get, because others have not given back yet.
///
/// It is remembered until that client must have asked again, which says it anew.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lack {
    amount: Capacity,
    until: Instant,
}

// === impl Lack ===

impl Lack {
    /// Notes that a client lacks `amount`, for the time `lasts`. The largest of several counts.
    pub(crate) fn note(&mut self, now: Instant, amount: Capacity, lasts: Duration) {
        *self = Self {
            amount: amount.max(self.at(now)),
            until: now.saturating_add(lasts),
        };
    }

    /// Returns the amount; zero if nobody lacks anything.
    pub(crate) fn at(self, now: Instant) -> Capacity {
        if now < self.until {
            self.amount
        } else {
            Capacity::ZERO
        }
    }
}
