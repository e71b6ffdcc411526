//! The bytes of all calls together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::bounds::CONNECTION_PARTS;

/// A connection that holds no more than this, in bytes, is small: a client with a few calls.
const SMALL: usize = 64 << 10;

/// Bytes that a call counts for beside those on the wire, for the state of its stream: while its answer is
/// made, and again for each part of the answer that is not sent. A stream with nothing to send has none.
pub(super) const CALL_LEN: usize = 4 << 10;

/// Counts the bytes of requests that are being received or answered and of answers that are not
/// sent, over all connections; clones share the count.
///
/// The last quarter is for small connections, so that those who use up the rest keep only each
/// other out.
///
/// The bytes are those on the wire, and `CALL_LEN` for each call. A decoded call takes up to twenty
/// times as much: 22 bytes of a scope with four units become 390. Calls stay decoded while they wait for the driver, so there the
/// driver bounds them by number: of those for more than 64 scopes there are at most 64, 0.4 MB each.
/// Smaller ones, 25 kB at most, are bounded only by these bytes and by the second that they wait.
#[derive(Clone, Debug)]
pub struct CallMemory(Arc<HeldBytes>);

#[derive(Debug)]
struct HeldBytes {
    max: usize,
    bytes: AtomicUsize,
    /// Whether a call was refused since there was last half of it left.
    exhausted: AtomicBool,
}

// === impl CallMemory ===

impl CallMemory {
    /// At most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(HeldBytes {
            max,
            bytes: AtomicUsize::new(0),
            exhausted: AtomicBool::new(false),
        }))
    }

    /// The bytes that are held now.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// The most that one connection may hold.
    pub(super) fn max_of_connection(&self) -> usize {
        self.0.max / CONNECTION_PARTS
    }

    /// Whether a connection that holds `held` bytes may begin another call.
    pub(super) fn has_room(&self, held: usize) -> bool {
        self.fits(self.bytes().saturating_add(1), held)
    }

    /// Counts `bytes` more of a connection that now holds `held` and says whether they fit.
    pub(super) fn take(&self, bytes: usize, held: usize) -> bool {
        let before = self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.fits(before.saturating_add(bytes), held)
    }

    /// Counts `bytes` less.
    pub(super) fn give_back(&self, bytes: usize) {
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes to be freed by closing connections: what is above half, once a call was refused.
    pub(super) fn excess(&self) -> usize {
        if !self.0.exhausted.load(Ordering::Relaxed) {
            return 0;
        }
        let excess = self.bytes().saturating_sub(self.0.max / 2);
        if excess == 0 {
            self.0.exhausted.store(false, Ordering::Relaxed);
        }
        excess
    }

    /// Whether `bytes` in all are within the bound of a connection that holds `held` of them.
    /// If they are not, that is remembered as a sign of exhaustion.
    fn fits(&self, bytes: usize, held: usize) -> bool {
        let max = self.0.max;
        let fits = bytes <= if held <= SMALL { max } else { max / 4 * 3 };
        if !fits {
            self.0.exhausted.store(true, Ordering::Relaxed);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::{CallMemory, SMALL};

    #[test]
    fn memory_is_freed_down_to_half_once_a_call_was_refused() {
        let memory = CallMemory::new(100);
        assert!(memory.take(100, 1));
        assert_eq!(memory.excess(), 0, "nothing was refused");
        assert!(!memory.take(1, 1));
        memory.give_back(1);
        assert!(!memory.has_room(1));
        assert_eq!(memory.excess(), 50);
        memory.give_back(60);
        assert_eq!(memory.excess(), 0);
        assert!(
            memory.take(30, 1) && memory.excess() == 0,
            "it was forgotten"
        );
        assert_eq!(memory.max_of_connection(), 12);
    }

    #[test]
    fn the_last_quarter_is_for_small_connections() {
        let memory = CallMemory::new(400);
        assert!(memory.take(300, SMALL + 1));
        assert!(!memory.has_room(SMALL + 1));
        assert!(memory.has_room(SMALL));
        assert!(memory.take(100, 100));
        assert!(!memory.has_room(0));
    }
}
