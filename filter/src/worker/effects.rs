//! Effects of the engine, and remarks on streams, carried out in Envoy.

use core::time::Duration;

use tollgate_engine::{Effect, Refusal, Report, StreamEnd, Waited, reason};

use super::Worker;
use crate::config::Formats;
use crate::host::{Host, HostError, Level};
use crate::limit_status::notes;
use crate::notes::{MARK, SHADOW, WAITED_MS};

/// Minimum time between two logged refusals without effect.
const SHADOW_LOG_INTERVAL: Duration = Duration::from_secs(10);

// === impl Worker ===

impl<H: Host + Clone> Worker<H> {
    /// Does what the engine wants done.
    pub(super) fn carry_out(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            let done = match effect {
                Effect::Resume {
                    stream,
                    waited,
                    report,
                } => self.resume(stream, waited, &report),
                Effect::Deny {
                    stream,
                    waited,
                    refusal,
                } => self.deny(stream, waited, refusal),
                Effect::CountBytes { stream } => {
                    if self.host.select(stream).is_ok()
                        && let Some(bytes) = self.body_bytes()
                    {
                        self.engine.count_bytes(stream, bytes);
                    }
                    Ok(())
                }
                Effect::Publish => self.publish(),
            };
            if let Err(error) = done {
                self.complain(&error);
            }
        }
    }

    fn publish(&mut self) -> Result<(), HostError> {
        if let Some(warning) = self.conflicts.warning(self.host.now()) {
            self.warn_once(warning);
        }
        self.metrics.publish(&self.host, &self.engine)
    }

    fn resume(&mut self, stream: u32, waited: Waited, report: &Report) -> Result<(), HostError> {
        let waiting = self.waiting.remove(&stream).unwrap_or_default();
        let selected = self.end_wait(stream, waited);
        let resumed = selected.and_then(|()| {
            self.tell(report, waiting.formats);
            self.host.resume_request()
        });
        if resumed.is_err() {
            self.engine.end_stream(stream, &StreamEnd::default(), None);
        }
        resumed
    }

    fn deny(&mut self, stream: u32, waited: Waited, refusal: Refusal) -> Result<(), HostError> {
        let waiting = self.waiting.remove(&stream).unwrap_or_default();
        self.end_wait(stream, waited)?;
        self.answer(refusal, waiting.protocol)
    }

    /// Makes a stream whose wait is over the one at hand, and tells of the wait.
    fn end_wait(&mut self, stream: u32, waited: Waited) -> Result<(), HostError> {
        if waited.queued
            && let Err(error) = self.metrics.record_wait(&self.host, waited.time)
        {
            self.complain(&error);
        }
        self.host.select(stream)?;
        let waited_ms = waited.time.as_millis().to_string();
        self.host.note(vec![(WAITED_MS, waited_ms)]);
        Ok(())
    }

    /// Leaves what there is to tell of the stream at hand, which goes on, to its log and its response.
    #[cold]
    pub(super) fn tell(&mut self, report: &Report, formats: Formats) {
        if let Some(refusal) = report.shadowed {
            self.tell_shadowed(refusal);
        }
        if let Some(refusal) = report.marked {
            let reason = reason(refusal, self.rules.speaker(refusal).rule);
            self.host.note(vec![(MARK, reason)]);
        }
        let named = report.limits.iter();
        let named: Vec<_> = named
            .map(|(rule, status)| (self.rules.name(*rule), *status))
            .collect();
        self.host.note(notes(formats, &named));
    }

    fn tell_shadowed(&mut self, refusal: Refusal) {
        let reason = reason(refusal, self.rules.speaker(refusal).rule);
        self.host.note(vec![(SHADOW, reason.clone())]);
        let now = self.host.now();
        let fresh = |last| now.saturating_since(last) >= SHADOW_LOG_INTERVAL;
        if self.shadow_logged.is_none_or(fresh) {
            self.shadow_logged = Some(now);
            let message = format!("tollgate: {reason} would refuse requests (shadow)");
            self.host.log(Level::Warn, &message);
        }
    }
}
