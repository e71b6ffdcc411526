//! Bytes of bodies, of scopes that limit them.
//!
//! Bytes are charged when they have passed. A request goes on if its scope owes none.

use tollgate_core::client::{self, Policy, RateLimiter};
use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Tokens};

use super::draw::{DrawResult, Reading, contended};
use super::meters::Meter;
use super::{Admission, Request, Target};
use crate::host::Host;
use crate::process::Process;
use crate::shared_table::{TableError, or_later};

/// The units that are counted in bytes.
pub(super) const BYTES: [Unit; 2] = [Unit::RequestBytes, Unit::ResponseBytes];

/// Bytes of a bucket in one direction.
#[derive(Clone, Copy)]
struct MeterId {
    target: Target,
    unit: Unit,
}

// === impl Admission ===

impl Admission {
    /// Draws bytes of both directions for a request.
    pub(super) fn draw_bytes<H: Host>(
        &mut self,
        process: &mut Process<H>,
        request: &mut Request,
        target: Target,
    ) -> Result<(), TableError> {
        let counts = request.counts_at_once(&process.rules, target);
        for unit in BYTES {
            let id = MeterId { target, unit };
            let result = self.draw_bytes_of(process, request, id);
            let result = result.or_else(|error| contended(process, unit, Tokens::ONE, error))?;
            if let Some(meter) = self.meter(id)
                && counts
                && matches!(result, DrawResult::Denied(_))
            {
                meter.refuse();
            }
            self.note(&mut process.rules, request, target, result);
        }
        Ok(())
    }

    /// Draws bytes of one direction; first it pays for those that have passed.
    fn draw_bytes_of<H: Host>(
        &mut self,
        process: &mut Process<H>,
        request: &Request,
        id: MeterId,
    ) -> Result<DrawResult, TableError> {
        let Some(meter) = self.meter(id).filter(|meter| !meter.is_ready()) else {
            return Ok(DrawResult::Ready);
        };
        let now = process.host.now();
        if let Some(denial) = meter.denial.filter(|denial| now < denial.until) {
            return Ok(DrawResult::Denied(denial));
        }
        let usual = meter.usual.map_or(Tokens::ONE, Tokens::from_whole);
        let workers = process.table.worker_count();
        let action = request.action(&process.rules, id.target);
        let paid = self.pay(process, now, id, |limiter, policy| {
            let draw = limiter.draw_bytes(now, policy, usual, workers, action);
            Reading::new(limiter, now, policy, draw)
        })?;
        let (Some((reading, slot)), Some(meter)) = (paid, self.meter(id)) else {
            return Ok(DrawResult::Ready);
        };
        let soon = now.saturating_add(process.config.tick);
        let result = match reading.draw {
            client::DrawResult::Tokens(tokens) => {
                meter.cache.add(tokens);
                meter.denial = None;
                DrawResult::Ready
            }
            client::DrawResult::Pending { until } => {
                self.await_first_lease(id.target, slot, until);
                DrawResult::Pending
            }
            _ => {
                let denial = reading.denial(id.unit, Tokens::ONE, soon);
                meter.denial = Some(denial);
                DrawResult::Denied(denial)
            }
        };
        self.enqueue(id.target);
        Ok(result)
    }

    /// Charges bytes that have passed, of which so many were expected.
    pub(super) fn charge<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        unit: Unit,
        bytes: u64,
        expected: u64,
    ) {
        let id = MeterId { target, unit };
        let Some(meter) = self.meter(id) else {
            return;
        };
        meter.expect_less(expected);
        let must_pay = meter.charge(bytes);
        self.enqueue(target);
        if !must_pay {
            return;
        }
        let now = process.host.now();
        // Bytes that cannot be paid now stay owed, and the next request of the scope pays first.
        let paid = self.pay(process, now, id, |_, _| ()).map(|_| ());
        if let Err(error) = or_later(paid) {
            process.fail(&error);
        }
    }

    /// Pays for bytes that have passed, and lets `next` go on with the limiter. Returns its result and the scope's slot;
    /// none if the scope has no such limit.
    fn pay<H: Host, R>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        id: MeterId,
        mut next: impl FnMut(&mut RateLimiter, &Policy) -> R,
    ) -> Result<Option<(R, u32)>, TableError> {
        let Some(meter) = self.meter(id) else {
            return Ok(None);
        };
        let (attempts, owed) = (meter.attempts, meter.owed);
        let workers = process.table.worker_count();
        let changed = self.change_scope(process, id.target, now, |scope_state, policy| {
            let limiter = scope_state.rate_mut(id.unit)?;
            limiter.pay(now, policy, attempts, owed);
            Some((next(limiter, policy), limiter.owed_max(workers)))
        })?;
        let Some((result, owed_max)) = changed.result else {
            return Ok(None);
        };
        if let Some(meter) = self.meter(id) {
            meter.paid(owed_max);
        }
        Ok(Some((result, changed.slot)))
    }

    fn meter(&mut self, id: MeterId) -> Option<&mut Meter> {
        self.meters(id.target)?.meter(id.unit)
    }
}
