//! Counts lines as they are formatted, and writes the lines that say what was left out.
//!
//! The obvious place is a filter's `event_enabled`. But the subscriber keeps what filters said in
//! the thread and does not forget it when an event goes nowhere, so the next event, of another
//! place, would go missing.

use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::AUDIT;
use super::throttle::{LeftOut, Throttle};
use crate::clock::Clock;

/// Where the lines come from that say what was left out. They are not counted themselves: there is
/// at most one for each place in a window.
const TARGET: &str = "tollgate_coordinator::repeats";

/// The longest part of a line that is quoted, in characters.
const SAMPLE_LEN_MAX: usize = 200;

/// Lets some lines of each place in the code pass; clones count together.
#[derive(Clone, Debug)]
pub(super) struct Repeats {
    throttle: Arc<Mutex<Throttle<Place>>>,
    clock: Clock,
}

/// Formats the events that are admitted; of the others nothing is written.
#[derive(Clone, Debug)]
pub(super) struct Counted<F> {
    /// How an event looks.
    pub(super) format: F,
    /// What admits; none for all.
    pub(super) repeats: Option<Repeats>,
}

/// A place in the code that logs.
#[derive(Clone, Copy, Debug)]
struct Place(&'static Metadata<'static>);

/// The message of an event.
#[derive(Debug, Default)]
struct Message(String);

// === impl Repeats ===

impl Repeats {
    /// Lets `lines` of each place pass in a window.
    pub(super) fn new(lines: NonZeroU32, clock: Clock) -> Self {
        Self {
            throttle: Arc::new(Mutex::new(Throttle::new(lines.get()))),
            clock,
        }
    }

    /// Whether `event` is to be written.
    fn admit(&self, event: &Event<'_>) -> bool {
        let place = Place(event.metadata());
        if [AUDIT, TARGET].contains(&place.0.target()) {
            return true;
        }
        let now = self.clock.now();
        let sample = || Message::of(event);
        self.throttle().admit(now, place, sample)
    }

    /// Logs what was left out in windows that are over.
    pub(super) fn tell_due(&self) {
        let now = self.clock.now();
        let due = self.throttle().take_due(now);
        due.iter().for_each(tell);
    }

    /// Logs what was left out until now.
    pub(super) fn tell_all(&self) {
        let all = self.throttle().take_all();
        all.iter().for_each(tell);
    }

    /// Counts go on although a thread panicked: they are right after each step.
    fn throttle(&self) -> MutexGuard<'_, Throttle<Place>> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Counted ===

impl<S, N, F> FormatEvent<S, N> for Counted<F>
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
        if self
            .repeats
            .as_ref()
            .is_some_and(|repeats| !repeats.admit(event))
        {
            return Ok(());
        }
        self.format.format_event(ctx, writer, event)
    }
}

// === impl Place ===

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.0.callsite() == other.0.callsite()
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.callsite().hash(state);
    }
}

// === impl Message ===

impl Message {
    fn of(event: &Event<'_>) -> String {
        let mut message = Self::default();
        event.record(&mut message);
        message.0
    }
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}").chars().take(SAMPLE_LEN_MAX).collect();
        }
    }
}

// === free functions ===

fn tell(left_out: &LeftOut<Place>) {
    let lines = left_out.lines;
    let like = left_out.sample.as_str();
    let from = left_out.place.0.target();
    let level = *left_out.place.0.level();
    if level == Level::ERROR {
        tracing::error!(target: TARGET, lines, like, from, "logging: left out repeated lines");
    } else if level == Level::WARN {
        tracing::warn!(target: TARGET, lines, like, from, "logging: left out repeated lines");
    } else {
        tracing::info!(target: TARGET, lines, like, from, "logging: left out repeated lines");
    }
}
