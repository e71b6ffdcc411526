//! Permits for requests in flight, of scopes that limit these.

use core::time::Duration;

use tollgate_core::client::{AwaitAction, LeaseState, PermitResult};
use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Tokens};

use super::draw::{DrawResult, contended, limit_told};
use super::{Admission, Changed, Request, Target};
use crate::host::Host;
use crate::process::Process;
use crate::refusal::Denial;
use crate::shared_table::codec::{Heartbeat, Levels};
use crate::shared_table::{TableError, or_later};
use crate::wait_queues::WaitQueues;

/// Time for which a worker believes that no permit is free. Another worker's requests end meanwhile;
/// a flood of refused requests must not look each time.
const NO_PERMIT_FOR: Duration = Duration::from_millis(5);

/// State of a concurrency limiter after a draw.
struct PermitReading {
    permits: PermitResult,
    limit: u64,
    without_lease: bool,
    /// Whether permits of another worker may be free because that is lost.
    has_silent: bool,
}

// === impl PermitReading ===

impl PermitReading {
    fn denial(&self, now: Instant) -> Denial {
        Denial {
            limit: self.limit,
            without_lease: self.without_lease,
            ..Denial::new(Unit::Concurrency, now.saturating_add(NO_PERMIT_FOR))
        }
    }
}

// === impl Admission ===

impl Admission {
    /// Draws the permits that a request needs; gives back what is left over if it does not go on.
    #[cold]
    pub(super) fn draw_permits<H: Host>(
        &mut self,
        process: &mut Process<H>,
        queues: &WaitQueues,
        request: &mut Request,
    ) -> Result<(), TableError> {
        // A worker that has permits must be known to live, or they would be taken away.
        if !process.table.has_heartbeat() && self.lacks_permit(request) {
            let own = self.heartbeat(process, queues);
            or_later(process.table.heartbeat(&process.host, own))?;
        }
        for index in 0..request.targets().len() {
            let Some(target) = request.targets().get(index).copied() else {
                continue;
            };
            let drawn = self.draw_permit(process, request, target);
            let result =
                drawn.or_else(|error| contended(process, Unit::Concurrency, Tokens::ONE, error))?;
            if result != DrawResult::Ready {
                self.count_refused_permit(process, queues, request, target);
            }
            if self.note(&mut process.rules, request, target, result)
                && let Some(permits) = self.permits(target)
            {
                permits.turn_away();
            }
        }
        // One that is held for a permit keeps the others.
        if !request.findings.is_denied() {
            return Ok(());
        }
        for target in request.targets() {
            if self
                .permits(*target)
                .is_some_and(|permits| permits.has_too_many())
            {
                or_later(self.report_use(process, *target))?;
            }
        }
        Ok(())
    }

    /// Spends the permits that were drawn for a request.
    #[cold]
    pub(super) fn take_permits(&mut self, request: &mut Request) {
        for index in 0..request.targets().len() {
            let target = request.targets().get(index).copied();
            // One that passes in shadow without a permit takes none from others.
            let permits = target.and_then(|target| self.permits(target));
            if let Some(permits) = permits.filter(|permits| permits.is_ready()) {
                permits.take();
                request.note_permit(index);
            }
        }
    }

    /// Returns this worker's heartbeat.
    pub(crate) fn heartbeat<H: Host>(
        &self,
        process: &Process<H>,
        queues: &WaitQueues,
    ) -> Heartbeat {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Heartbeat {
            worker: process.identity.worker,
            at: process.host.now(),
            levels: Levels {
                memory: process.host.memory_bytes(),
                waiting: count(queues.len_in_all()),
                in_flight: count(self.streams.len()),
            },
        }
    }

    fn lacks_permit(&mut self, request: &Request) -> bool {
        let mut targets = request.targets().iter();
        targets.any(|target| {
            let permits = self.permits(*target);
            permits.is_some_and(|permits| !permits.is_ready())
        })
    }

    fn draw_permit<H: Host>(
        &mut self,
        process: &mut Process<H>,
        request: &Request,
        target: Target,
    ) -> Result<DrawResult, TableError> {
        let me = process.identity.worker;
        let permits = self.permits(target).filter(|permits| !permits.is_ready());
        let Some(permits) = permits else {
            return Ok(DrawResult::Ready);
        };
        let now = process.host.now();
        if let Some(denial) = permits.denial.filter(|denial| now < denial.until) {
            return Ok(DrawResult::Denied(denial));
        }
        let (usage, workers) = (permits.usage(me), process.table.worker_count());
        let action = request.action(&process.rules, target);
        let changed = self.change_scope(process, target, now, |scope_state, policy| {
            let limiter = scope_state.concurrency.as_mut()?;
            let permits = limiter.draw(now, policy, &usage, workers, action);
            Some(PermitReading {
                permits,
                limit: limit_told(limiter.capacity(), || {
                    Tokens::from_whole(limiter.limit(now, policy).into()).as_micros()
                }),
                without_lease: limiter.state(now) != LeaseState::Leased,
                has_silent: permits == PermitResult::Denied && limiter.has_silent(now, me),
            })
        })?;
        let Changed {
            result,
            slot,
            due_changed,
        } = changed;
        let Some(reading) = result else {
            return Ok(DrawResult::Ready);
        };
        if due_changed && action != AwaitAction::Hold {
            // The request is not held, but the permit is still to be asked for at once.
            self.ask_soon(target, slot);
        }
        if reading.has_silent {
            // They are missed now, and not only when the use of permits is reported.
            process.table.note_dirty(slot);
        }
        self.enqueue(target);
        let Some(permits) = self.permits(target) else {
            return Ok(DrawResult::Ready);
        };
        permits.apply(reading.permits);
        Ok(match reading.permits {
            PermitResult::Held { .. } => DrawResult::Ready,
            PermitResult::Pending { until } => {
                self.await_first_lease(target, slot, until);
                DrawResult::Pending
            }
            PermitResult::Denied => {
                let denial = reading.denial(now);
                permits.denial = Some(denial);
                DrawResult::Denied(denial)
            }
        })
    }

    /// Counts a request that gets no permit: as refused, or among those that wait for one.
    fn count_refused_permit<H: Host>(
        &mut self,
        process: &Process<H>,
        queues: &WaitQueues,
        request: &Request,
        target: Target,
    ) {
        // Requests that wait want a permit as well, and with them the one that is decided on.
        let waiting = queues.len_at(target.bucket()).saturating_add(1);
        let counts = request.counts_at_once(&process.rules, target);
        if let Some(permits) = self.permits(target) {
            if counts {
                permits.refuse()
            } else {
                permits.await_by(waiting)
            }
        }
    }

    /// Reports how many requests are in flight, and gives back permits that are not used.
    pub(super) fn report_use<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
    ) -> Result<(), TableError> {
        let (now, me) = (process.host.now(), process.identity.worker);
        let Some(usage) = self.permits(target).map(|permits| permits.usage(me)) else {
            return Ok(());
        };
        let changed = self.change_scope(process, target, now, |scope_state, _| {
            if let Some(limiter) = &mut scope_state.concurrency {
                limiter.report(now, &usage);
            }
            scope_state.due()
        })?;
        // Others may wait for the permits that are given back.
        if changed.due_changed && changed.result.is_some_and(|due| due <= now) {
            self.ask_soon(target, changed.slot);
        }
        if let Some(permits) = self.permits(target) {
            permits.settled(permits.in_use);
        }
        Ok(())
    }
}
