//! Progress of a simulation, on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_net::clock::Clock;

use crate::print;

/// Steps in which it is shown on a terminal, and elsewhere.
const STEPS_ON_TERMINAL: u32 = 200;
const STEPS_IN_LOG: u32 = 10;
/// Seconds that are worth to be told.
const LEFT_MIN: u64 = 5;

/// Progress of a run of a known length.
#[derive(Debug)]
pub(super) struct Progress {
    duration: Duration,
    steps: u32,
    done: u32,
    /// Time that playing takes.
    clock: Clock,
}

// === impl Progress ===

impl Progress {
    pub(super) fn new(duration: Duration) -> Self {
        let steps = if io::stderr().is_terminal() {
            STEPS_ON_TERMINAL
        } else {
            STEPS_IN_LOG
        };
        Self {
            duration,
            steps,
            done: 0,
            clock: Clock::start(),
        }
    }

    /// Returns the time until which to play before the progress is shown again; none at the end.
    pub(super) fn next_stop(&mut self) -> Option<Duration> {
        if self.done >= self.steps {
            return None;
        }
        self.done += 1;
        Some(if self.done == self.steps {
            self.duration
        } else {
            self.duration
                .mul_f64(f64::from(self.done) / f64::from(self.steps))
        })
    }

    /// Shows how far a run is.
    pub(super) fn show(&self, elapsed: Duration, events: u64) {
        let percent = self.done * 100 / self.steps;
        let [elapsed, duration] =
            [elapsed, self.duration].map(|time| humantime::format_duration(whole(time)));
        let left = self.left();
        let text = format!("{percent} % simulated, {elapsed} of {duration}, {events} events{left}");
        if self.steps == STEPS_IN_LOG {
            return print::note(&text);
        }
        let end = if self.done == self.steps { "\n" } else { "" };
        // Nothing is lost where it cannot be shown.
        let _ = write!(io::stderr(), "\r\x1b[K{text}{end}");
    }

    /// Returns about how long the rest takes, in words; nothing where that is a moment.
    fn left(&self) -> String {
        let passed = self.clock.now().saturating_since(Instant::ZERO);
        let left = passed * (self.steps - self.done) / self.done.max(1);
        match left.as_secs() {
            0..LEFT_MIN => String::new(),
            left => {
                let left = humantime::format_duration(Duration::from_secs(left));
                format!(", about {left} left")
            }
        }
    }
}

// === free functions ===

/// Returns `time` in whole milliseconds.
fn whole(time: Duration) -> Duration {
    Duration::from_millis(time.as_millis() as u64)
}
