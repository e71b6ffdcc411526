//! Answers of the coordinators.

use core::time::Duration;

use tollgate_core::lease::{EpochError, LeaseRequest, Unit};
use tollgate_core::message::{Refreshed, ScopeAnswer};
use tollgate_core::units::Instant;

use super::LeaseSync;
use super::calls::{ScopeRequest, with_slot};
use super::failure::Failure;
use crate::host::{Host, Level};
use crate::process::Process;
use crate::shared_table::TableError;

/// Time between two log lines of a worker about answers that it does not apply because of their epochs,
/// for each cause. The workers of a process take turns in calling, so that is about as often for the
/// process.
const EPOCH_WARNING_INTERVAL: Duration = Duration::from_secs(600);

/// Times of the last log lines about unusable epochs, by cause.
#[derive(Debug, Default)]
pub(super) struct EpochWarnings {
    lower: Option<Instant>,
    jump: Option<Instant>,
}

// === impl LeaseSync ===

impl LeaseSync {
    /// Applies the answer to the call of `token`, or notes why there is none.
    pub(crate) fn handle_answer<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        token: u32,
        answer: Result<Refreshed, String>,
    ) {
        let Some(requests) = self.calls.take(token) else {
            return;
        };
        match answer {
            Ok(refreshed) => {
                self.apply(process, now, &requests, refreshed);
                self.ask_named_meanwhile(process, now, &requests);
            }
            Err(error) => {
                self.forget_named_meanwhile(&requests);
                self.call_failed(process, now, &requests, &error);
            }
        }
    }

    fn apply<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        requests: &[ScopeRequest],
        refreshed: Refreshed,
    ) {
        let mut answers = refreshed.scopes.into_iter();
        let mut failed = Vec::new();
        for request in requests {
            let applied = match answers.next() {
                Some(Ok(answer)) if answer.scope == request.scope => {
                    self.apply_one(process, now, request, &answer)
                }
                Some(Ok(_)) => Err(Failure::unusable("the answer is for another scope")),
                Some(Err(error)) => Err(Failure::unusable(error)),
                None => Err(Failure::unusable("the answer lacks scopes")),
            };
            if let Err(mut failure) = applied {
                failure.cause = format!("{}: {}", request.scope, failure.cause);
                failed.push((request.clone(), failure));
            }
        }
        self.note_failures(now, requests, &failed);
        let slots = requests.iter().map(|request| request.slot);
        self.ended.answered.extend(slots);
        if let Some((_, failure)) = failed.first() {
            let cause = failure.cause.clone();
            let failed: Vec<_> = failed.into_iter().map(|(request, _)| request).collect();
            self.scopes_failed(process, now, &failed, &cause);
        }
    }

    fn apply_one<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        request: &ScopeRequest,
        answer: &ScopeAnswer,
    ) -> Result<(), Failure> {
        let units = answer.outcome.as_ref().map_err(Failure::from)?;
        let is_lacking =
            |(unit, _): &&(Unit, LeaseRequest)| !units.iter().any(|found| found.unit == *unit);
        let lacking: Vec<_> = request.units.iter().filter(is_lacking).collect();
        let canonical = (answer.canonical != answer.scope).then_some(&answer.canonical);
        let seed = process.identity.worker ^ u64::from(request.slot);
        let applied = with_slot(process, request, |scope_state, policy| {
            let mut counts = false;
            let mut epoch = Ok(());
            for found in units {
                let origin = answer.origin;
                epoch = epoch.and_then(|()| scope_state.check_origin(now, found.unit, origin));
                counts |= scope_state.handle_answer(now, policy, origin, found);
            }
            for (unit, request) in &lacking {
                scope_state.handle_failure(now, *unit, request.sequence, seed);
            }
            // An answer that is older than what is known, or of a lower epoch, does not change the
            // scope's terms either, nor does one without units, of which that cannot be told.
            if counts {
                scope_state.set_terms(now, policy, &answer.limited, canonical);
            }
            let limit = scope_state.known_limit().filter(|_| counts);
            (scope_state.due(), scope_state.state(now), epoch, limit)
        });
        match applied {
            Ok((due, state, epoch, limit)) => {
                self.reschedule(process, request.slot, due, state);
                if let Some(limit) = limit {
                    let rules = &mut process.rules;
                    rules.learn_limit(&request.scope, limit, answer.usual);
                }
                if let Err(error) = epoch {
                    self.warn_of_epoch(process, now, &request.scope, error);
                    return Err(Failure::unusable(error));
                }
            }
            // The slot belongs to another scope meanwhile, which the answer does not concern.
            Err(TableError::Gone) => {}
            Err(error) => {
                process.fail(&error);
            }
        }
        match lacking.first() {
            None => Ok(()),
            Some((unit, _)) => {
                let cause = format!("the answer lacks {}", unit.name());
                Err(Failure::unusable(cause))
            }
        }
    }

    /// Counts an answer that is not applied because of its epoch, and logs it if that was not done
    /// lately.
    fn warn_of_epoch<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        scope: &str,
        error: EpochError,
    ) {
        let (stats, warnings) = (&mut process.stats, &mut self.epoch_warnings);
        let (counter, last) = match error {
            EpochError::Lower { .. } => (&mut stats.lower_epochs, &mut warnings.lower),
            EpochError::Jump { .. } => (&mut stats.epoch_jumps, &mut warnings.jump),
        };
        counter.add_one();
        if last.is_some_and(|last| now.saturating_since(last) < EPOCH_WARNING_INTERVAL) {
            return;
        }
        *last = Some(now);
        let message = format!(
            "tollgate: an answer for {scope} was not applied: {error}; one that is possible will be, if \
             calls go on like this until no lease is left"
        );
        process.host.log(Level::Warn, &message);
    }
}
