//! Failures of calls and of single scopes.

use tollgate_core::message::ScopeError;
use tollgate_core::units::Instant;

use super::LeaseSync;
use super::calls::{ScopeRequest, upstream, with_slot};
use crate::host::{Host, Level};
use crate::process::Process;

/// The google.rpc.Code of a scope whose master cannot be reached.
const UNAVAILABLE: u32 = 14;

/// Cause for which a scope got nothing of a call that was answered.
pub(super) struct Failure {
    kind: FailureKind,
    pub(super) cause: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// The coordinator refuses it, such as beyond one of its bounds.
    Refused,
    /// The master of the scope does not answer the coordinator either.
    OutOfReach,
    /// The answer cannot be used.
    Unusable,
}

// === impl Failure ===

impl Failure {
    /// Returns the failure of an answer that cannot be used.
    pub(super) fn unusable(cause: impl ToString) -> Self {
        Self {
            kind: FailureKind::Unusable,
            cause: cause.to_string(),
        }
    }
}

impl From<&ScopeError> for Failure {
    fn from(error: &ScopeError) -> Self {
        Self {
            kind: match error.code {
                UNAVAILABLE => FailureKind::OutOfReach,
                _ => FailureKind::Refused,
            },
            cause: error.to_string(),
        }
    }
}

// === impl LeaseSync ===

impl LeaseSync {
    /// Notes for the operator how a call went that was answered, of whose `requests` some `failed`.
    /// A refusal of single scopes is an answer.
    pub(super) fn note_failures(
        &mut self,
        now: Instant,
        requests: &[ScopeRequest],
        failed: &[(ScopeRequest, Failure)],
    ) {
        let to = upstream(requests);
        let of = |kind| move |(_, failure): &&(ScopeRequest, Failure)| failure.kind == kind;
        let first = |kind| failed.iter().find(of(kind));
        let unusable = failed.iter().filter(of(FailureKind::Unusable)).count();
        match first(FailureKind::Unusable) {
            Some((_, failure)) if unusable == requests.len() => {
                self.conditions.note_failure(now, to, &failure.cause);
            }
            _ => self.conditions.note_answer(to),
        }
        if let Some((_, failure)) = first(FailureKind::OutOfReach) {
            self.conditions.note_out_of_reach(now, to, &failure.cause);
        }
    }

    /// Notes that a call failed as a whole.
    pub(super) fn call_failed<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        requests: &[ScopeRequest],
        cause: &str,
    ) {
        self.conditions.note_failure(now, upstream(requests), cause);
        self.scopes_failed(process, now, requests, cause);
    }

    /// Lets scopes that got nothing of a call ask again later.
    pub(super) fn scopes_failed<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        requests: &[ScopeRequest],
        cause: &str,
    ) {
        process.stats.refresh_errors.add_one();
        let count = requests.len();
        let message = format!("tollgate: a refresh of {count} scopes failed: {cause}");
        process.host.log(Level::Debug, &message);
        for request in requests {
            let seed = process.identity.worker ^ u64::from(request.slot);
            let changed = with_slot(process, request, |scope_state, _| {
                for (unit, asked) in &request.units {
                    scope_state.handle_failure(now, *unit, asked.sequence, seed);
                }
                (scope_state.due(), scope_state.state(now))
            });
            if let Ok((due, state)) = changed {
                self.reschedule(process, request.slot, due, state);
            }
        }
        let slots = requests.iter().map(|request| request.slot);
        self.ended.failed.extend(slots);
    }
}
