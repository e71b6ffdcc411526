//! Keeps lines that repeat from filling the disk and from drowning all others.
//!
//! A bound on all lines together would let the caller that causes the most of them hide the rest.
//! So each place in the code has a bound of its own, and one line says that more were left out.
//!
//! The obvious place is a filter's `event_enabled`. But the subscriber keeps the answers of filters
//! in the thread and does not forget them when an event goes nowhere, so the next event, of another
//! place, would go missing. So lines are left out where they are formatted.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_net::clock::Clock;
use tracing::callsite::Identifier;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::AUDIT;

/// Lines of one place in the code that are written in a window.
const LINES_MAX: u32 = 10;

/// The length of a window: short enough to read along, long enough that a thousand lines become a
/// few.
const WINDOW: Duration = Duration::from_secs(10);

/// The target of the lines that say that others were left out.
const TARGET: &str = "tollgate_coordinator::repeats";

/// Formatter of the first lines of each place in the code; writes nothing for the others.
#[derive(Clone, Debug)]
pub(super) struct Repeats<F> {
    format: F,
    clock: Clock,
    windows: Arc<Mutex<Windows<Identifier>>>,
}

/// Start of the window of each place, and its lines since. There are as many places as the program
/// has log statements.
#[derive(Debug)]
struct Windows<K>(HashMap<K, (Instant, u32)>);

// === impl Repeats ===

impl<F> Repeats<F> {
    /// Formats with `format`.
    pub(super) fn new(format: F) -> Self {
        Self {
            format,
            clock: Clock::start(),
            windows: Arc::new(Mutex::new(Windows(HashMap::new()))),
        }
    }

    /// Whether `event` is to be written.
    fn admit(&self, event: &Event<'_>) -> bool {
        let place = event.metadata();
        if [AUDIT, TARGET].contains(&place.target()) {
            return true;
        }
        let now = self.clock.now();
        // Counts are right after each step, so they stay good when a thread panics.
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = windows.count(now, place.callsite());
        drop(windows);
        if lines == LINES_MAX.saturating_add(1) {
            let (from, line) = (place.target(), place.line());
            tracing::warn!(target: TARGET, from, line, "logging: left out repeated lines");
        }
        lines <= LINES_MAX
    }
}

impl<S, N, F> FormatEvent<S, N> for Repeats<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !self.admit(event) {
            return Ok(());
        }
        self.format.format_event(ctx, writer, event)
    }
}

// === impl Windows ===

impl<K: Eq + Hash> Windows<K> {
    /// Counts a line of `place` and returns how many it has had in its window.
    fn count(&mut self, now: Instant, place: K) -> u32 {
        let (since, lines) = self.0.entry(place).or_insert((now, 0));
        if now.saturating_since(*since) >= WINDOW {
            (*since, *lines) = (now, 0);
        }
        *lines = lines.saturating_add(1);
        *lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_a_window_of_its_own() {
        let at = |ms| Instant::ZERO.saturating_add(Duration::from_millis(ms));
        let mut windows = Windows(HashMap::new());
        let rows = [
            (0, "a", 1),
            (5_000, "b", 1),
            (9_999, "a", 2),
            (10_000, "a", 1),
            (14_999, "b", 2),
            (15_000, "b", 1),
        ];
        for (ms, place, lines) in rows {
            assert_eq!(windows.count(at(ms), place), lines, "{place} at {ms}");
        }
    }
}
