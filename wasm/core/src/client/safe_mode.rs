//! Safe mode of a whole process: calls to the coordinators fail, and scopes have no lease for that.
//!
//! Each scope falls back by itself when its lease ends. An operator is told of it once for the
//! whole process, when it begins and when it is over, by the sync leader. The leader's record of
//! its own calls is a [`CallHistory`]; the process's state, and whether it was told, is a
//! [`SafeMode`], which outlives the worker in the memory that all share.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::units::Instant;

/// How long failures follow each other, without an answer between them, before they count: a single
/// lost call, as while an Envoy or a coordinator starts, is no trouble.
const GRACE: Duration = Duration::from_secs(1);
/// How long no call must have failed for the trouble to be over although scopes have no lease, such
/// as those of a coordinator that learns. Longer than any wait between two calls.
const QUIET: Duration = Duration::from_secs(10);
/// The shortest time between two reports that safe mode has begun, so that a coordinator that comes
/// and goes does not fill the log.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Outcomes of the calls of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallHistory {
    /// The calls that fail, by the cluster that they were made to. An answer says nothing of the
    /// others.
    failing: BTreeMap<usize, FailureStreak>,
    /// The answers that the master of a scope cannot be reached. Answers for other scopes say
    /// nothing of it.
    out_of_reach: Option<FailureStreak>,
    failed_at: Option<Instant>,
    /// Whether the latest call was answered.
    answered: bool,
}

/// Failures that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailureStreak {
    first: Instant,
    last: Instant,
}

/// The record of a process's safe mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SafeMode {
    /// Start of the failures; none if the process is not in safe mode.
    pub since: Option<Instant>,
    /// Whether a report said that it began.
    pub reported: bool,
    /// The time of the last such report.
    pub reported_at: Option<Instant>,
    /// Number of times that it began and ended since then without a report.
    pub unreported: u32,
}

/// A change of safe mode that an operator should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SafeModeReport {
    /// It has begun.
    Entered {
        /// Time for which calls have been failing.
        failing_for: Duration,
        /// Number of times that it began and ended unreported since the last report.
        unreported: u32,
    },
    /// It is over.
    Left {
        /// Time for which calls failed.
        after: Duration,
    },
}

// === impl CallHistory ===

impl CallHistory {
    /// Notes that a call to the cluster of index `to` has failed.
    pub fn handle_failure(&mut self, now: Instant, to: usize) {
        let streak = FailureStreak::after(self.failing.get(&to).copied(), now);
        self.failing.insert(to, streak);
        self.fail(now);
    }

    /// Notes the answer that the master of a scope cannot be reached.
    pub fn handle_out_of_reach(&mut self, now: Instant) {
        self.out_of_reach = Some(FailureStreak::after(self.out_of_reach, now));
        self.fail(now);
    }

    /// Notes that a call to the cluster of index `to` was answered.
    pub fn handle_answer(&mut self, to: usize) {
        self.failing.remove(&to);
        self.answered = true;
    }

    fn fail(&mut self, now: Instant) {
        self.failed_at = Some(now);
        self.answered = false;
    }

    /// Forgets failures when all is well: the latest call was answered, and every scope has a lease
    /// or no call has failed for long. True if so.
    fn settle(&mut self, now: Instant, without_lease: u64) -> bool {
        let quiet = |at| now.saturating_since(at) >= QUIET;
        let well = self.answered && (without_lease == 0 || self.failed_at.is_none_or(quiet));
        if well {
            self.failing.clear();
            self.out_of_reach = None;
        }
        well
    }

    /// Start of the failures, if they have lasted long enough to count.
    fn failing(&self) -> Option<Instant> {
        let streaks = self.failing.values().chain(&self.out_of_reach);
        let counts = streaks.filter(|streak| streak.last.saturating_since(streak.first) >= GRACE);
        counts.map(|streak| streak.first).min()
    }
}

// === impl FailureStreak ===

impl FailureStreak {
    /// The streak that a failure at `now` makes longer, or begins if the last one was long ago.
    fn after(before: Option<Self>, now: Instant) -> Self {
        let goes_on = |streak: &Self| now.saturating_since(streak.last) < QUIET;
        let first = before.filter(goes_on).map_or(now, |streak| streak.first);
        Self { first, last: now }
    }
}

// === impl SafeMode ===

impl SafeMode {
    /// The length of an encoded record, in bytes.
    pub const ENCODED_LEN: usize = 22;
    const VERSION: u8 = 1;

    /// Returns the record that follows this one at `now`, and what to report, given the calls and
    /// the number of scopes without a lease.
    pub fn next(
        self,
        now: Instant,
        calls: &mut CallHistory,
        without_lease: u64,
    ) -> (Self, Option<SafeModeReport>) {
        let well = calls.settle(now, without_lease);
        match (self.since, calls.failing()) {
            (Some(since), _) if well => self.left(now, since),
            (Some(since), _) => self.report(now, since),
            (None, Some(since)) if without_lease > 0 => {
                let entered = Self {
                    since: Some(since),
                    reported: false,
                    ..self
                };
                entered.report(now, since)
            }
            (None, _) => (self, None),
        }
    }

    fn left(self, now: Instant, since: Instant) -> (Self, Option<SafeModeReport>) {
        let after = now.saturating_since(since);
        let report = self.reported.then_some(SafeModeReport::Left { after });
        let unreported = if self.reported {
            self.unreported
        } else {
            self.unreported.saturating_add(1)
        };
        let left = Self {
            since: None,
            reported: false,
            unreported,
            ..self
        };
        (left, report)
    }

    /// Reports that it has begun, unless that was done or another report is too fresh.
    fn report(self, now: Instant, since: Instant) -> (Self, Option<SafeModeReport>) {
        let fresh = |at| now.saturating_since(at) < REPORT_INTERVAL;
        if self.reported || self.reported_at.is_some_and(fresh) {
            return (self, None);
        }
        let report = SafeModeReport::Entered {
            failing_for: now.saturating_since(since),
            unreported: self.unreported,
        };
        let reported = Self {
            since: Some(since),
            reported: true,
            reported_at: Some(now),
            unreported: 0,
        };
        (reported, Some(report))
    }

    /// The record's bytes.
    pub fn encode(self) -> [u8; Self::ENCODED_LEN] {
        let time = |at: Option<Instant>| at.map_or(0, Instant::as_nanos).to_le_bytes();
        let flags = u8::from(self.since.is_some())
            | u8::from(self.reported) << 1
            | u8::from(self.reported_at.is_some()) << 2;
        let mut fields = [Self::VERSION, flags]
            .into_iter()
            .chain(time(self.since))
            .chain(time(self.reported_at))
            .chain(self.unreported.to_le_bytes());
        core::array::from_fn(|_| fields.next().unwrap_or_default())
    }

    /// The record in `bytes`; one that cannot be read says that all is well.
    pub fn decode(bytes: &[u8]) -> Self {
        Self::decoded(bytes).unwrap_or_default()
    }

    fn decoded(bytes: &[u8]) -> Option<Self> {
        let ([version, flags], rest) = bytes.split_first_chunk()?;
        let (since, rest) = rest.split_first_chunk()?;
        let (reported_at, rest) = rest.split_first_chunk()?;
        let (unreported, rest) = rest.split_first_chunk()?;
        let flag = |bit: u8| flags & (1 << bit) != 0;
        let time = |bit, nanos: &[u8; 8]| {
            flag(bit).then(|| Instant::from_nanos(u64::from_le_bytes(*nanos)))
        };
        (*version == Self::VERSION && rest.is_empty()).then(|| Self {
            since: time(0, since),
            reported: flag(1),
            reported_at: time(2, reported_at),
            unreported: u32::from_le_bytes(*unreported),
        })
    }
}

#[cfg(test)]
mod tests;
