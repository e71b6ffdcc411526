//! Bytes of bodies, of scopes that limit them.
//!
//! Bytes are charged when they have passed. A request goes on if its scope owes none.

use tollgate_core::lease::Unit;
use tollgate_core::units::Tokens;

use super::draw::{DrawResult, Reading};
use super::meters::Meter;
use super::{Admission, Request, Target};
use crate::host::Host;
use crate::process::Process;
use crate::refusal::Denial;
use crate::shared_table::TableError;

/// The units that are counted in bytes.
pub(super) const BYTES: [Unit; 2] = [Unit::RequestBytes, Unit::ResponseBytes];

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
            let result = match self.denial_of_bytes(process, target, unit)? {
                Some(denial) => DrawResult::Denied(denial),
                None => DrawResult::Ready,
            };
            if let Some(meter) = self.meter(target, unit)
                && counts
                && result != DrawResult::Ready
            {
                meter.refuse();
            }
            self.note(&mut process.rules, request, target, result);
        }
        Ok(())
    }

    /// Returns why no bytes may pass now, unless they may.
    fn denial_of_bytes<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        unit: Unit,
    ) -> Result<Option<Denial>, TableError> {
        let Some(meter) = self.meter(target, unit).filter(|meter| !meter.is_ready()) else {
            return Ok(None);
        };
        let now = process.host.now();
        if let Some(denial) = meter.denial.filter(|denial| now < denial.until) {
            return Ok(Some(denial));
        }
        let (attempts, owed) = (meter.attempts, meter.owed);
        let workers = process.table.worker_count();
        let changed = self.change_scope(process, target, now, |scope_state, policy| {
            let limiter = scope_state.rate_mut(unit)?;
            limiter.pay(now, policy, attempts, owed);
            let draw = limiter.advance(now, policy, workers);
            let reading = Reading::new(limiter, now, policy, draw);
            Some((reading, limiter.owed_max(workers)))
        })?;
        let Some((reading, owed_max)) = changed.result else {
            return Ok(None);
        };
        self.enqueue(target);
        let soon = now.saturating_add(process.config.tick);
        let Some(meter) = self.meter(target, unit) else {
            return Ok(None);
        };
        meter.paid(owed_max);
        meter.denial = match reading.draw {
            tollgate_core::client::DrawResult::Tokens(tokens) => {
                meter.cache.add(tokens);
                None
            }
            _ => Some(reading.denial(unit, Tokens::ONE, soon)),
        };
        Ok(meter.denial)
    }

    /// Charges bytes that have passed.
    pub(super) fn charge<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        unit: Unit,
        bytes: u64,
    ) {
        let Some(meter) = self.meter(target, unit) else {
            return;
        };
        let must_pay = meter.charge(bytes);
        self.enqueue(target);
        // Bytes that cannot be paid now stay owed, and the next request of the scope pays first.
        if must_pay && let Err(error) = self.pay(process, target, unit) {
            process.fail(&error);
        }
    }

    fn pay<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        unit: Unit,
    ) -> Result<(), TableError> {
        let now = process.host.now();
        let Some(meter) = self.meter(target, unit) else {
            return Ok(());
        };
        let (attempts, owed) = (meter.attempts, meter.owed);
        let workers = process.table.worker_count();
        let changed = self.change_scope(process, target, now, |scope_state, policy| {
            let limiter = scope_state.rate_mut(unit)?;
            limiter.pay(now, policy, attempts, owed);
            Some(limiter.owed_max(workers))
        })?;
        if let (Some(meter), Some(owed_max)) = (self.meter(target, unit), changed.result) {
            meter.paid(owed_max);
        }
        Ok(())
    }

    fn meter(&mut self, target: Target, unit: Unit) -> Option<&mut Meter> {
        self.meters(target)?.meter(unit)
    }
}
