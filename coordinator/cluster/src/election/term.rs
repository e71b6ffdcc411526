//! Term of a master.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::lease::Epoch;
use tollgate_net::clock::boot_time;

/// The term of a master: its epoch, and whether it still holds.
///
/// Clones share their end. A term that ended by its deadline can hold again, if etcd confirms that
/// no other node can have been elected meanwhile; one that was [ended](Self::end) cannot.
#[derive(Clone, Debug)]
pub struct Term {
    epoch: Epoch,
    deadline: TermDeadline,
    over: Arc<AtomicBool>,
}

/// Deadline of all terms of a node, by the clock that counts from the machine's boot and goes on
/// while it sleeps: in nanoseconds, `u64::MAX` for never. Clones share it.
#[derive(Clone, Debug)]
pub struct TermDeadline(Arc<AtomicU64>);

// === impl Term ===

impl Term {
    /// A term that holds until `deadline`.
    pub fn new(epoch: Epoch, deadline: TermDeadline) -> Self {
        Self {
            epoch,
            deadline,
            over: Arc::default(),
        }
    }

    /// A term without a deadline.
    pub fn for_ever(epoch: Epoch) -> Self {
        Self::new(epoch, TermDeadline::never())
    }

    /// Its epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the master may grant leases now.
    pub fn holds(&self) -> bool {
        !self.over.load(Ordering::Acquire) && self.deadline.is_ahead()
    }

    /// Remaining time; `None` without a deadline.
    pub fn left(&self) -> Option<Duration> {
        if self.over.load(Ordering::Acquire) {
            return Some(Duration::ZERO);
        }
        let is_never = self.deadline.0.load(Ordering::Acquire) == u64::MAX;
        (!is_never).then(|| self.deadline.left())
    }

    /// Ends the term for good, for all clones.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }
}

// === impl TermDeadline ===

impl TermDeadline {
    /// A deadline at `time` since the machine's boot.
    pub fn at(time: Duration) -> Self {
        let deadline = Self(Arc::default());
        deadline.extend(time);
        deadline
    }

    /// A deadline that never comes.
    pub fn never() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    /// Moves the deadline to `time` since the machine's boot, unless it is later already.
    pub fn extend(&self, time: Duration) {
        self.0.fetch_max(nanos(time), Ordering::AcqRel);
    }

    /// Its time since the machine's boot.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Remaining time; zero once it has passed.
    pub fn left(&self) -> Duration {
        self.time().saturating_sub(boot_time())
    }

    fn is_ahead(&self) -> bool {
        let deadline = self.0.load(Ordering::Acquire);
        // A node alone need not read the clock for every answer.
        deadline == u64::MAX || nanos(boot_time()) < deadline
    }
}

// === free functions ===

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_holds_until_its_end_and_no_longer() {
        let now = boot_time();
        let passed = TermDeadline::at(now);
        let term = Term::new(Epoch(5), passed.clone());
        assert!(!term.holds());
        assert_eq!(passed.left(), Duration::ZERO);
        passed.extend(now + Duration::from_secs(3600));
        assert!(term.holds(), "extended");
        passed.extend(now);
        assert!(term.holds(), "an answer that comes late takes nothing back");
        assert!(passed.left() > Duration::from_secs(3000));
        assert!(term.left().unwrap() > Duration::from_secs(3000));
        let clone = term.clone();
        clone.end();
        passed.extend(now + Duration::from_secs(7200));
        assert!(!term.holds(), "ended for good");
        assert_eq!(term.left(), Some(Duration::ZERO));
        assert_eq!(term.epoch(), Epoch(5));
    }

    #[test]
    fn a_node_alone_needs_no_end() {
        let term = Term::for_ever(Epoch(1));
        assert!(term.holds());
        assert_eq!(term.left(), None);
        term.end();
        assert!(!term.holds());
    }
}
