//! Failures of calls and of single scopes: what they say to the operator, and when the scopes ask again.

use tollgate_core::units::Instant;
use tollgate_proto::response::ScopeError;

use super::Engine;
use super::calls::Asked;
use crate::host::{Host, Level};

/// The google.rpc.Code of a scope whose master cannot be reached.
const UNAVAILABLE: u32 = 14;

/// Why a scope got nothing of a call that was answered.
pub(super) struct Failure {
    kind: FailureKind,
    pub(super) why: String,
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
    /// The answer for the scope cannot be used.
    pub(super) fn unusable(why: impl ToString) -> Self {
        Self {
            kind: FailureKind::Unusable,
            why: why.to_string(),
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
            why: error.to_string(),
        }
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// DirtyQueue for the operator how the call went that was answered for `asked`, of which `failed`
    /// got nothing. What is refused to single scopes is an answer.
    pub(super) fn note_failures(
        &mut self,
        now: Instant,
        asked: &[Asked],
        failed: &[(Asked, Failure)],
    ) {
        let to = asked.first().map(|asked| asked.to).unwrap_or_default();
        let of = |kind| move |(_, failure): &&(Asked, Failure)| failure.kind == kind;
        let first = |kind| failed.iter().find(of(kind));
        let unusable = failed.iter().filter(of(FailureKind::Unusable)).count();
        match first(FailureKind::Unusable) {
            Some((_, failure)) if unusable == asked.len() => {
                self.conditions.note_failure(now, to, &failure.why);
            }
            _ => self.conditions.note_answer(to),
        }
        if let Some((_, failure)) = first(FailureKind::OutOfReach) {
            self.conditions.note_out_of_reach(now, to, &failure.why);
        }
    }

    /// Nothing came of a call.
    pub(super) fn call_failed(&mut self, now: Instant, asked: &[Asked], why: &str) {
        let to = asked.first().map(|asked| asked.to).unwrap_or_default();
        self.conditions.note_failure(now, to, why);
        self.scopes_failed(now, asked, why);
    }

    /// Lets scopes that got nothing of a call ask again later.
    pub(super) fn scopes_failed(&mut self, now: Instant, asked: &[Asked], why: &str) {
        self.stats.refresh_errors.add_one();
        let count = asked.len();
        self.host.log(
            Level::Debug,
            &format!("tollgate: a refresh of {count} scopes failed: {why}"),
        );
        for asked in asked {
            let seed = self.identity.worker ^ u64::from(asked.slot);
            let said = self.with_slot(asked.slot, &asked.scope, |scope_state, _| {
                for (unit, ask) in &asked.asks {
                    scope_state.handle_failure(now, *unit, ask.sequence, seed);
                }
                (scope_state.due(), scope_state.state(now))
            });
            if let Ok((due, state)) = said {
                self.reschedule(asked.slot, due, state);
            }
        }
        let slots: Vec<u32> = asked.iter().map(|asked| asked.slot).collect();
        self.warm(&slots);
    }
}
