//! Housekeeping of a worker on its ticks.

use core::time::Duration;

use tollgate_core::units::Instant;

use super::Engine;
use crate::effect::Effect;
use crate::host::Host;
use crate::shared_table::{TableError, or_later};

/// The tick while a first request waits to be sent, or streams wait to be released.
const TICK_AT_ONCE: Duration = Duration::from_millis(1);
/// The tick while requests are held for first leases.
const TICK_WHILE_PENDING: Duration = Duration::from_millis(5);

impl<H: Host> Engine<H> {
    /// Does what is due: first leases are asked for on every tick, everything else once in a
    /// configured tick.
    pub fn handle_tick(&mut self) {
        let now = self.process.host.now();
        if let Err(error) = self.process.open() {
            self.complain(&error);
            return;
        }
        self.ask_for_first_leases(now);
        let tick = self.process.config.tick;
        // Three quarters, for a host's timers are not exact.
        let elapsed = now.saturating_since(self.last_round);
        if elapsed.saturating_mul(4) >= tick.saturating_mul(3) {
            self.last_round = now;
            self.admission.start_round();
            if let Err(error) = self.round(now) {
                self.complain(&error);
            }
            self.effects.push_back(Effect::Publish);
            let streams = self.admission.streams_to_count().into_iter();
            let effects = streams.map(|stream| Effect::CountBytes { stream });
            self.effects.extend(effects);
        }
        self.sync.keep_watch(&mut self.process, now);
        self.release(now);
    }

    fn ask_for_first_leases(&mut self, now: Instant) {
        let left = self.sync.first_requests_left();
        let process = &mut self.process;
        if left > 0 && self.admission.has_unasked() {
            let held = self.queues.pending.requests();
            self.admission.count_needs(&process.rules, held);
        }
        let messages = self.admission.ask_for_first_leases(process, now, left);
        self.sync.ask_first(process, now, messages);
        self.take_answers(now);
    }

    fn round(&mut self, now: Instant) -> Result<(), TableError> {
        // A proxy's main thread has a VM as well, which may lead but serves no requests.
        if self.admission.serves() {
            let own = self.admission.heartbeat(&self.process, &self.queues);
            let process = &mut self.process;
            or_later(process.table.heartbeat(&process.host, own))?;
        }
        or_later(self.process.exchange_usual_limits(now))?;
        self.count_waiting(now);
        let flushed = or_later(self.admission.flush(&mut self.process, now));
        for request in self.queues.requests() {
            self.admission.keep(request);
        }
        flushed?;
        self.sync.release_of_lost_slots(&mut self.process);
        self.sync.expire_calls(&mut self.process, now);
        let led = or_later(self.sync.lead(&mut self.process, now));
        self.take_answers(now);
        led?;
        self.admission.evict(now);
        Ok(())
    }

    /// Ends the wait for the slots of calls that have ended.
    pub(super) fn take_answers(&mut self, now: Instant) {
        let ended = self.sync.take_ended();
        self.admission.end_first_waits(&ended.answered);
        self.admission.end_first_waits(&ended.failed);
        self.hurry_queues(now, &ended.answered);
    }

    /// Returns how often the worker needs a tick now.
    #[inline]
    pub fn tick_period(&self) -> Duration {
        let tick = self.process.config.tick;
        let period = match self.queues.next_wake() {
            None => tick,
            Some(at) => self.time_until(at).min(tick),
        };
        let pending = &self.queues.pending;
        if !self.admission.awaits_any() && pending.is_empty() {
            return period;
        }
        let asks = self.admission.has_unasked() && self.sync.first_requests_left() > 0;
        if pending.has_backlog || asks {
            TICK_AT_ONCE
        } else {
            TICK_WHILE_PENDING.min(period)
        }
    }

    /// Returns the time until `at` as the host counts it: in whole milliseconds, at least one.
    fn time_until(&self, at: Instant) -> Duration {
        let left = at.saturating_since(self.process.host.now());
        let millis = left.as_nanos().div_ceil(1_000_000);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).max(TICK_AT_ONCE)
    }

    /// Returns whether ticks are needed more often than usual.
    #[inline]
    pub fn is_hurried(&self) -> bool {
        self.admission.awaits_any() || !self.queues.pending.is_empty() || !self.queues.is_empty()
    }
}
