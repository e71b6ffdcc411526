//! The side whose turn it is on a connection.

use tokio::time::Instant;

/// Side for which the other waits, and since when without a pause.
#[derive(Clone, Copy, Debug)]
pub(in crate::connections) enum Turn {
    /// The client's: it may send a request, and none is complete.
    Client { since: Instant },
    /// Ours: so many requests are complete and their answers are being made.
    Ours { since: Instant, answers: usize },
}

// === impl Turn ===

impl Turn {
    /// A request is complete, its answer is being made.
    pub(super) fn begin_answer(&mut self, now: Instant) {
        match self {
            Self::Client { .. } => {
                *self = Self::Ours {
                    since: now,
                    answers: 1,
                };
            }
            Self::Ours { answers, .. } => *answers += 1,
        }
    }

    /// An answer is made.
    pub(super) fn end_answer(&mut self, now: Instant) {
        if let Self::Ours { answers, .. } = self {
            *answers -= 1;
            if *answers == 0 {
                *self = Self::Client { since: now };
            }
        }
    }

    /// Whether it is ours.
    pub(in crate::connections) fn is_ours(self) -> bool {
        matches!(self, Self::Ours { .. })
    }

    /// Since when it is that side's.
    pub(in crate::connections) fn since(self) -> Instant {
        match self {
            Self::Client { since } | Self::Ours { since, .. } => since,
        }
    }
}
