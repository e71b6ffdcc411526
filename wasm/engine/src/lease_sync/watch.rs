//! Watch of a process: the stream on which a coordinator names what to ask for now.
//!
//! Only the sync leader has one, to any coordinator: a node of a cluster also names the resources of
//! shards whose masters are other nodes. A lost stream costs nothing but time, because leases are
//! renewed at their intervals beneath it. So it is opened again without haste, and its end is no
//! condition that an operator is told of.

use core::time::Duration;

use tollgate_core::early::{EarlyAllowance, EarlyRate};
use tollgate_core::units::Instant;

use super::{LeaseSync, Upstream};
use crate::host::{Host, Level};
use crate::process::Process;

/// Wait after a stream's first end.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// The longest wait before a stream is opened again, but for its spread; and the only one where the
/// coordinator does not know the call: it may be updated some day.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// A stream that was open for this long has come about, so the next wait is the first one again.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// gRPC's status of a coordinator that is older than the call.
const UNIMPLEMENTED: u32 = 12;
/// Names that may come, one more with each message. A coordinator sends at most 500 messages a second.
/// After a change of limits it may name each scope of a process twice.
const NAMES: EarlyRate = EarlyRate {
    max: 20_000,
    interval: Duration::from_micros(500),
};
/// Time between two warnings of a worker about floods.
const WARNING_INTERVAL: Duration = Duration::from_secs(600);

/// Watch of one worker.
#[derive(Debug, Default)]
pub(super) struct Watch {
    open: Option<OpenWatch>,
    /// Ends in a row of streams that were not stable.
    failures: u32,
    retry_at: Option<Instant>,
    /// Names that have come, on this stream and those before.
    names: EarlyAllowance,
    warned_at: Option<Instant>,
}

/// Stream that is open.
#[derive(Debug)]
struct OpenWatch {
    token: u32,
    since: Instant,
    /// Whether more has come than may: it is closed at the next tick, because a host may still have
    /// messages of it in hand.
    floods: bool,
}

// === impl Watch ===

impl Watch {
    fn is_open(&self, token: u32) -> bool {
        self.open.as_ref().is_some_and(|open| open.token == token)
    }

    fn is_flooded(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.floods)
    }

    /// Notes a message of the open stream with so many names. True if that is more than may come.
    fn floods(&mut self, now: Instant, names: usize) -> bool {
        let floods = self.names.next_at(now, NAMES) > now;
        match &mut self.open {
            Some(open) if floods => open.floods = true,
            _ => {
                let names = u32::try_from(names).unwrap_or(u32::MAX);
                self.names.take(now, NAMES, names.saturating_add(1));
            }
        }
        floods
    }

    /// Returns whether a warning is due.
    fn warns(&mut self, now: Instant) -> bool {
        let lately = |at| now.saturating_since(at) < WARNING_INTERVAL;
        let warns = !self.warned_at.is_some_and(lately);
        if warns {
            self.warned_at = Some(now);
        }
        warns
    }

    /// Returns the number of open streams, one at most.
    pub(super) fn open_count(&self) -> u64 {
        u64::from(self.open.is_some())
    }

    fn may_open(&self, now: Instant) -> bool {
        self.open.is_none() && self.retry_at.is_none_or(|at| at <= now)
    }

    fn opened(&mut self, now: Instant, token: u32) {
        self.open = Some(OpenWatch {
            token,
            since: now,
            floods: false,
        });
    }

    /// Notes the end of a stream, or that none came about, and when to open the next one.
    fn ended(&mut self, now: Instant, status: Option<u32>, seed: u64) {
        // One that is closed as a flood was not stable, however long it took.
        let open = self.open.take().filter(|open| !open.floods);
        let age = open.map(|open| now.saturating_since(open.since));
        self.failures = match age {
            Some(age) if age >= STABLE_AFTER => 1,
            _ => self.failures.saturating_add(1),
        };
        let wait = match status {
            Some(UNIMPLEMENTED) => BACKOFF_MAX,
            _ => backoff(self.failures),
        };
        self.retry_at = Some(now.saturating_add(spread(wait, seed)));
    }
}

// === impl LeaseSync ===

impl LeaseSync {
    /// Returns whether `token` is that of the open stream, and its messages count.
    pub(crate) fn watches(&self, token: u32) -> bool {
        self.watch.is_open(token) && !self.watch.is_flooded()
    }

    /// Returns whether `token` is that of the open stream.
    pub(crate) fn has_watch(&self, token: u32) -> bool {
        self.watch.is_open(token)
    }

    /// Notes a message of the open stream with so many names. True if it is dropped, because too many
    /// have come; the stream is closed then.
    pub(crate) fn drops_flood<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        names: usize,
    ) -> bool {
        if !self.watch.floods(now, names) {
            return false;
        }
        process.stats.watch_floods.add_one();
        if self.watch.warns(now) {
            let line = "tollgate: the coordinator names more scopes than a process can have: its \
                        stream is closed, and opened again later";
            process.host.log(Level::Warn, line);
        }
        true
    }

    /// Opens the stream while this worker leads and the process has a lease, and closes it when it
    /// does not. A process that wants nothing has nothing to ask for.
    pub(crate) fn keep_watch<H: Host>(&mut self, process: &mut Process<H>, now: Instant) {
        let schedule = self.schedule.as_ref();
        if schedule.is_none_or(|schedule| schedule.used() == 0) {
            return self.close_watch(process);
        }
        if self.watch.is_flooded() {
            self.close_flood(process, now);
        }
        if self.watch.may_open(now) {
            self.open_watch(process, now);
        }
    }

    #[cold]
    fn open_watch<H: Host>(&mut self, process: &mut Process<H>, now: Instant) {
        let Ok(slots) = process.table.slots() else {
            return;
        };
        let cluster = self.upstreams.name(Upstream::ANY);
        match process.host.watch(cluster, slots.client()) {
            Ok(None) => {}
            Ok(Some(token)) => {
                process.stats.watches.add_one();
                self.watch.opened(now, token);
            }
            Err(error) => {
                self.watch.ended(now, None, process.identity.worker);
                let line = format!("tollgate: the watch could not be opened: {error}");
                process.host.log(Level::Debug, &line);
            }
        }
    }

    #[cold]
    fn close_flood<H: Host>(&mut self, process: &Process<H>, now: Instant) {
        if let Some(open) = &self.watch.open {
            process.host.unwatch(open.token);
        }
        self.watch.ended(now, None, process.identity.worker);
    }

    /// Closes the stream, if one is open.
    pub(crate) fn close_watch<H: Host>(&mut self, process: &Process<H>) {
        if let Some(open) = self.watch.open.take() {
            process.host.unwatch(open.token);
        }
    }

    /// Notes that the stream of `token` has ended with a status of gRPC.
    pub(crate) fn handle_watch_end<H: Host>(
        &mut self,
        process: &Process<H>,
        now: Instant,
        status: u32,
    ) {
        self.watch.ended(now, Some(status), process.identity.worker);
        let line = format!("tollgate: the watch has ended: gRPC status {status}");
        process.host.log(Level::Debug, &line);
    }
}

// === free functions ===

/// Returns the wait after so many ends in a row: it doubles.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(6);
    BACKOFF_FIRST
        .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
        .min(BACKOFF_MAX)
}

/// Lengthens a wait by up to half of it, so that the processes of a fleet do not return together when
/// a coordinator does. `seed` is a worker's random number.
fn spread(wait: Duration, seed: u64) -> Duration {
    let part = u32::try_from(seed.checked_rem(1024).unwrap_or(0)).unwrap_or(0);
    let longer = wait.saturating_mul(part).checked_div(2048);
    wait.saturating_add(longer.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_a_bound_and_are_spread() {
        let seconds = |failures| backoff(failures).as_secs();
        let waits = [1, 2, 3, 6, 7, 8, u32::MAX].map(seconds);
        assert_eq!(waits, [1, 2, 4, 32, 60, 60, 60]);
        for seed in [0, 1, 1023, 1024, u64::MAX] {
            let wait = spread(BACKOFF_MAX, seed);
            assert!(wait >= BACKOFF_MAX && wait <= BACKOFF_MAX * 3 / 2);
        }
        assert_ne!(spread(BACKOFF_FIRST, 1), spread(BACKOFF_FIRST, 900));
    }

    #[test]
    fn a_stream_that_was_stable_makes_the_next_wait_the_first_one_again() {
        let mut watch = Watch::default();
        let mut now = Instant::ZERO;
        for failures in 1..=8 {
            watch.opened(now, 1);
            now = now.saturating_add(Duration::from_secs(9));
            watch.ended(now, Some(14), 0);
            assert_eq!(watch.failures, failures);
        }
        watch.opened(now, 1);
        now = now.saturating_add(STABLE_AFTER);
        watch.ended(now, Some(14), 0);
        assert!(!watch.may_open(now));
        assert!(watch.may_open(now.saturating_add(BACKOFF_FIRST)));
    }

    #[test]
    fn a_coordinator_that_does_not_know_the_call_is_asked_once_a_minute() {
        let mut watch = Watch::default();
        watch.opened(Instant::ZERO, 1);
        watch.ended(Instant::ZERO, Some(UNIMPLEMENTED), 0);
        let almost = Instant::ZERO.saturating_add(BACKOFF_MAX - Duration::from_nanos(1));
        assert!(!watch.may_open(almost));
        assert!(watch.may_open(Instant::ZERO.saturating_add(BACKOFF_MAX)));
    }
}
