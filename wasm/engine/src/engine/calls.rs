//! Calls to the coordinator: many resources in each, and what came of them.
//!
//! Every scope state knows by itself when its request counts as lost, so nothing here is needed for
//! safety: an answer that comes late, twice or for another request is dropped there.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate_core::client::{Policy, ScopeState};
use tollgate_core::lease::{EpochError, LeaseRequest, ResourceId, Unit};
use tollgate_core::units::Instant;
use tollgate_proto::request::{Refresh, Release, ScopeRefresh};
use tollgate_proto::response::{Refreshed, ScopeAnswer};

use super::call_budget::CallBudget;
use super::failure::Failure;
use super::{CANONICAL, Engine};
use crate::host::{Call, Host, Level};
use crate::shared_table::TableError;
use crate::upstreams::{Upstream, Upstreams};

/// The most scopes in a call; the coordinator accepts twice as many.
pub(super) const SCOPES_PER_CALL: usize = 500;
/// The most calls of one [`Reason`] to one [`Upstream`] whose answers are awaited. What does not fit into
/// these is asked for when answers have come.
const CALLS_MAX: usize = 8;

/// How often a worker logs answers that it does not apply because of their epochs, for each cause.
/// The workers of a process take turns in calling, so that is about as often for the process.
const EPOCH_WARNING_INTERVAL: Duration = Duration::from_secs(600);

/// Why scopes are asked for. Strangers can make up new scopes without end, so calls for these do not
/// count where leases are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Requests are held for the first answer.
    Cold,
    /// Their time has come.
    Due,
}

/// A scope that is asked for, with the units that are.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) slot: u32,
    pub(super) to: Upstream,
    pub(super) scope: Arc<str>,
    pub(super) asks: Vec<(Unit, LeaseRequest)>,
}

/// The calls whose answers are awaited, by token.
#[derive(Debug, Default)]
pub(super) struct Calls {
    refreshes: BTreeMap<u32, OpenCall>,
}

/// When answers of unusable epochs were last logged, by cause.
#[derive(Debug, Default)]
pub(super) struct EpochWarnings {
    lower: Option<Instant>,
    jump: Option<Instant>,
}

/// A call whose answer is awaited.
#[derive(Debug)]
struct OpenCall {
    asked: Vec<Asked>,
    to: Upstream,
    reason: Reason,
    deadline: Instant,
}

// === impl Calls ===

impl Calls {
    /// Whether one more call to `to` may be made.
    pub(super) fn has_room(&self, reason: Reason, to: Upstream) -> bool {
        self.left(reason, to) > 0
    }

    /// How much more may be asked, of each of `upstreams`.
    pub(super) fn room(&self, reason: Reason, upstreams: &Upstreams) -> CallBudget {
        CallBudget::new(upstreams.all().map(|to| self.left(reason, to)))
    }

    fn left(&self, reason: Reason, to: Upstream) -> usize {
        let calls = self.refreshes.values();
        let awaited = calls.filter(|call| (call.reason, call.to) == (reason, to));
        CALLS_MAX.saturating_sub(awaited.count())
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Sends what was asked to whom it is to be asked of, in as few calls as it takes.
    pub(super) fn refresh(&mut self, now: Instant, reason: Reason, asks: Vec<Asked>) {
        let (mut first, repeated) = unique(asks);
        for asked in &repeated {
            self.vacate(asked);
        }
        first.sort_by_key(|asked| asked.to);
        for asked in first.chunk_by(|one, next| one.to == next.to) {
            for asked in asked.chunks(SCOPES_PER_CALL) {
                self.refresh_once(now, reason, asked);
            }
        }
    }

    fn refresh_once(&mut self, now: Instant, reason: Reason, asked: &[Asked]) {
        let to = asked.first().map(|asked| asked.to).unwrap_or_default();
        let Some(shared_table) = &self.shared_table else {
            return;
        };
        let refresh = Call::Refresh(Refresh {
            client: shared_table.client().clone(),
            scopes: asked.iter().map(scope_asks).collect(),
        });
        let timeout = self.config.call_timeout;
        self.stats.refreshes.add_one();
        match self.host.call(self.upstreams.name(to), &refresh, timeout) {
            Ok(token) => {
                let deadline = now.saturating_add(timeout.saturating_mul(2));
                let call = OpenCall {
                    asked: asked.to_vec(),
                    to,
                    reason,
                    deadline,
                };
                self.calls.refreshes.insert(token, call);
            }
            Err(error) => {
                let why = self.why_no_call(now, to, &error);
                self.call_failed(now, asked, &why);
            }
        }
    }

    /// Tells the coordinators of leases that are not used any more. No answer matters: a lease that is
    /// not released expires. Any of them is told, for what went to the cluster of a shard that nobody
    /// answers would be lost.
    pub(super) fn release(&mut self, resources: &[(ResourceId, u64)]) {
        let Some(shared_table) = &self.shared_table else {
            return;
        };
        let cluster = self.upstreams.name(Upstream::ANY);
        let timeout = self.config.call_timeout;
        for resources in resources.chunks(SCOPES_PER_CALL) {
            let release = Call::Release(Release {
                client: shared_table.client().clone(),
                resources: resources.to_vec(),
            });
            if self.host.call(cluster, &release, timeout).is_err() {
                self.stats.refresh_errors.add_one();
            }
        }
    }

    /// Applies the answer to the call of `token`, or dirty why there is none.
    pub fn handle_answer(&mut self, token: u32, answer: Result<Refreshed, String>) {
        let Some(call) = self.calls.refreshes.remove(&token) else {
            return;
        };
        let now = self.host.now();
        match answer {
            Ok(refreshed) => self.apply(now, &call.asked, refreshed),
            Err(error) => self.call_failed(now, &call.asked, &error),
        }
        self.let_go(now);
    }

    /// Forgets calls whose answers the host has lost, as with a root context that went away.
    pub(super) fn expire_calls(&mut self, now: Instant) {
        let lost: Vec<u32> = self
            .calls
            .refreshes
            .iter()
            .filter(|(_, call)| call.deadline <= now)
            .map(|(token, _)| *token)
            .collect();
        for token in lost {
            if let Some(call) = self.calls.refreshes.remove(&token) {
                self.call_failed(now, &call.asked, "no answer and no error");
            }
        }
    }

    fn apply(&mut self, now: Instant, asked: &[Asked], refreshed: Refreshed) {
        let mut answers = refreshed.scopes.into_iter();
        let mut failed = Vec::new();
        for asked in asked {
            let wrong = match answers.next() {
                Some(Ok(answer)) if answer.scope == asked.scope => {
                    self.apply_one(now, asked, &answer)
                }
                Some(Ok(_)) => Err(Failure::unusable("the answer is for another scope")),
                Some(Err(error)) => Err(Failure::unusable(error)),
                None => Err(Failure::unusable("the answer lacks scopes")),
            };
            if let Err(mut failure) = wrong {
                failure.why = format!("{}: {}", asked.scope, failure.why);
                failed.push((asked.clone(), failure));
            }
        }
        self.note_failures(now, asked, &failed);
        let slots: Vec<u32> = asked.iter().map(|asked| asked.slot).collect();
        self.warm(&slots);
        self.hurry_lines(now, &slots);
        if let Some((_, failure)) = failed.first() {
            let why = failure.why.clone();
            let asked: Vec<Asked> = failed.into_iter().map(|(asked, _)| asked).collect();
            self.scopes_failed(now, &asked, &why);
        }
    }

    fn apply_one(
        &mut self,
        now: Instant,
        asked: &Asked,
        answer: &ScopeAnswer,
    ) -> Result<(), Failure> {
        let units = answer.outcome.as_ref().map_err(Failure::from)?;
        let lacking =
            |(unit, _): &&(Unit, LeaseRequest)| !units.iter().any(|found| found.unit == *unit);
        let lacking: Vec<_> = asked.asks.iter().filter(lacking).collect();
        let canonical = (answer.canonical != answer.scope).then_some(&answer.canonical);
        let seed = self.identity.worker ^ u64::from(asked.slot);
        let said = self.with_slot(asked.slot, &asked.scope, |scope_state, policy| {
            let mut counts = units.is_empty();
            let mut epoch = Ok(());
            for found in units {
                let origin = answer.origin;
                epoch = epoch.and_then(|()| scope_state.check_origin(found.unit, origin));
                counts |= scope_state.handle_answer(now, policy, origin, found);
            }
            for (unit, ask) in &lacking {
                scope_state.handle_failure(now, *unit, ask.sequence, seed);
            }
            // What is older than what is known, or of a lower epoch, says nothing about the scope either.
            if counts {
                scope_state.set_terms(now, policy, &answer.limited, canonical);
            }
            (scope_state.due(), scope_state.state(now), epoch)
        });
        match said {
            Ok((due, state, epoch)) => {
                self.reschedule(asked.slot, due, state);
                if let Err(error) = epoch {
                    self.warn_of_epoch(now, &asked.scope, error);
                    return Err(Failure::unusable(error));
                }
            }
            // The slot belongs to another scope meanwhile, which the answer does not concern.
            Err(TableError::Gone) => {}
            Err(error) => {
                self.complain(&error);
            }
        }
        match lacking.first() {
            None => Ok(()),
            Some((unit, _)) => {
                let why = format!("the answer lacks {}", unit.name());
                Err(Failure::unusable(why))
            }
        }
    }

    /// Counts an answer that is not applied because of its epoch, and logs it if that was not done
    /// lately.
    fn warn_of_epoch(&mut self, now: Instant, scope: &str, error: EpochError) {
        let (counter, last) = match error {
            EpochError::Lower { .. } => {
                (&mut self.stats.lower_epochs, &mut self.epoch_warnings.lower)
            }
            EpochError::Jump { .. } => (&mut self.stats.epoch_jumps, &mut self.epoch_warnings.jump),
        };
        counter.add_one();
        if last.is_some_and(|last| now.saturating_since(last) < EPOCH_WARNING_INTERVAL) {
            return;
        }
        *last = Some(now);
        let message = format!("tollgate: an answer for {scope} was not applied: {error}");
        self.host.log(Level::Warn, &message);
    }

    /// Lets `change` decide with the scope state of `scope` in `slot`.
    pub(super) fn with_slot<R>(
        &self,
        slot: u32,
        scope: &str,
        mut change: impl FnMut(&mut ScopeState, &Policy) -> R,
    ) -> Result<R, TableError> {
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        let policy = self.policy_of(scope);
        shared_table.update(&self.host, slot, scope, |scope_state| {
            change(scope_state, &policy)
        })
    }

    /// The policy of the rule that `scope` belongs to; the default one if no rule has that name
    /// any more.
    pub(super) fn policy_of(&self, scope: &str) -> Policy {
        let rule = scope.split_once('/').map_or(scope, |(rule, _)| rule);
        let of = |name| self.tables.iter().find(|table| table.config.name == name);
        let table = of(rule).or_else(|| of(CANONICAL));
        table
            .map(|table| table.config.policy.clone())
            .unwrap_or_default()
    }

    /// Empties the second slot of a scope that has two.
    fn vacate(&self, asked: &Asked) {
        if let Some(shared_table) = &self.shared_table {
            // If it fails, the same is found out at the next refresh.
            let _ = shared_table.vacate(&self.host, asked.slot, &asked.scope);
        }
    }
}

// === free functions ===

fn scope_asks(asked: &Asked) -> ScopeRefresh {
    ScopeRefresh {
        scope: asked.scope.clone(),
        asks: asked.asks.clone(),
    }
}

/// The first ask for each scope, and the others.
fn unique(asks: Vec<Asked>) -> (Vec<Asked>, Vec<Asked>) {
    let mut seen = BTreeSet::new();
    asks.into_iter()
        .partition(|asked| seen.insert(asked.scope.clone()))
}
