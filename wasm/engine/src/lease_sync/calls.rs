//! Calls to the coordinators, with many resources in each.
//!
//! Every scope state knows by itself when its request counts as lost, so nothing here is needed for
//! safety: an answer that comes late, twice or for another request is dropped there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate_core::client::{LeaseMessage, Policy, ScopeState};
use tollgate_core::lease::{LeaseRequest, ResourceId, Unit};
use tollgate_core::message::{Refresh, Release, ScopeRefresh};
use tollgate_core::units::Instant;

use super::{CallBudget, LeaseSync, Upstream, Upstreams};
use crate::admission::SlotMessages;
use crate::host::{Call, Host};
use crate::process::Process;
use crate::shared_table::{Releases, TableError};

/// The most scopes in a call; the coordinator accepts twice as many.
pub(super) const SCOPES_PER_CALL: usize = 500;
/// The most calls of one [`Reason`] to one [`Upstream`] whose answers are awaited. What does not fit into
/// these is asked for when answers have come.
const CALLS_MAX: usize = 8;

/// Reason for which scopes are asked for. Unseen keys can make up new scopes without end, so calls
/// for these do not count where leases are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Requests are held for the first lease.
    First,
    /// The slots are due.
    Due,
    /// A coordinator has named the slots. They can be many at once, and others must not wait for them.
    Nudged,
}

/// Request for the leases of one scope.
#[derive(Clone, Debug)]
pub(super) struct ScopeRequest {
    pub(super) slot: u32,
    pub(super) to: Upstream,
    pub(super) scope: Arc<str>,
    pub(super) units: Vec<(Unit, LeaseRequest)>,
}

/// Calls whose answers are awaited, by token.
#[derive(Debug, Default)]
pub(super) struct Calls {
    refreshes: BTreeMap<u32, OpenCall>,
}

/// Call whose answer is awaited.
#[derive(Debug)]
struct OpenCall {
    requests: Vec<ScopeRequest>,
    to: Upstream,
    reason: Reason,
    deadline: Instant,
}

// === impl ScopeRequest ===

impl ScopeRequest {
    /// Returns the request for a scope, if any of its messages asks for a lease; leases that are given
    /// back go to `releases`.
    pub(super) fn new(to: Upstream, slot: SlotMessages, releases: &mut Releases) -> Option<Self> {
        let mut units = Vec::with_capacity(slot.messages.len());
        for (unit, message) in slot.messages {
            match message {
                LeaseMessage::Nothing => {}
                LeaseMessage::Refresh(request) => units.push((unit, request)),
                LeaseMessage::Release { sequence } => {
                    let scope = slot.scope.clone();
                    releases.push((ResourceId { scope, unit }, sequence));
                }
            }
        }
        let request = Self {
            slot: slot.slot,
            to,
            scope: slot.scope,
            units,
        };
        (!request.units.is_empty()).then_some(request)
    }

    fn to_message(&self) -> ScopeRefresh {
        ScopeRefresh {
            scope: self.scope.clone(),
            asks: self.units.clone(),
        }
    }
}

// === impl Calls ===

impl Calls {
    /// Returns the budget of all upstreams.
    pub(super) fn budget(&self, reason: Reason, upstreams: &Upstreams) -> CallBudget {
        CallBudget::new(upstreams.all().map(|to| {
            let calls = self.refreshes.values();
            let awaited = calls.filter(|call| (call.reason, call.to) == (reason, to));
            CALLS_MAX.saturating_sub(awaited.count())
        }))
    }

    /// Takes out a call whose answer has come, and returns its requests.
    pub(super) fn take(&mut self, token: u32) -> Option<Vec<ScopeRequest>> {
        self.refreshes.remove(&token).map(|call| call.requests)
    }
}

// === impl LeaseSync ===

impl LeaseSync {
    /// Returns whether the answer to the call of `token` is awaited.
    pub(crate) fn awaits_answer(&self, token: u32) -> bool {
        self.calls.refreshes.contains_key(&token)
    }

    /// Sends requests to their upstreams, in as few calls as it takes.
    pub(super) fn refresh<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        reason: Reason,
        requests: Vec<ScopeRequest>,
    ) {
        let (mut first, repeated) = unique(requests);
        for request in &repeated {
            vacate(process, request);
        }
        first.sort_by_key(|request| request.to);
        for requests in first.chunk_by(|one, next| one.to == next.to) {
            for requests in requests.chunks(SCOPES_PER_CALL) {
                self.call(process, now, reason, requests);
            }
        }
    }

    fn call<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        reason: Reason,
        requests: &[ScopeRequest],
    ) {
        let to = upstream(requests);
        let Ok(slots) = process.table.slots() else {
            return;
        };
        let refresh = Call::Refresh(Refresh {
            client: slots.client().clone(),
            scopes: requests.iter().map(ScopeRequest::to_message).collect(),
        });
        let timeout = process.config.call_timeout;
        process.stats.refreshes.add_one();
        let cluster = self.upstreams.name(to);
        match process.host.call(cluster, &refresh, timeout) {
            Ok(token) => {
                let call = OpenCall {
                    requests: requests.to_vec(),
                    to,
                    reason,
                    deadline: now.saturating_add(timeout.saturating_mul(2)),
                };
                self.calls.refreshes.insert(token, call);
            }
            Err(error) => {
                let cause = self.cause_of(process, now, to, &error);
                self.call_failed(process, now, requests, &cause);
            }
        }
    }

    /// Gives leases back that are not used any more. No answer matters: a lease that is not released
    /// expires. Any coordinator is told: a message to the cluster of a shard that does not answer
    /// would be lost.
    pub(super) fn release<H: Host>(
        &self,
        process: &mut Process<H>,
        resources: &[(ResourceId, u64)],
    ) {
        let Ok(slots) = process.table.slots() else {
            return;
        };
        let cluster = self.upstreams.name(Upstream::ANY);
        let timeout = process.config.call_timeout;
        for resources in resources.chunks(SCOPES_PER_CALL) {
            let release = Call::Release(Release {
                client: slots.client().clone(),
                resources: resources.to_vec(),
            });
            if process.host.call(cluster, &release, timeout).is_err() {
                process.stats.refresh_errors.add_one();
            }
        }
    }

    /// Forgets calls whose answers the host has lost, as with a root context that went away.
    pub(crate) fn expire_calls<H: Host>(&mut self, process: &mut Process<H>, now: Instant) {
        let calls = self.calls.refreshes.iter();
        let lost = calls.filter(|(_, call)| call.deadline <= now);
        let lost: Vec<u32> = lost.map(|(token, _)| *token).collect();
        for token in lost {
            if let Some(requests) = self.calls.take(token) {
                self.call_failed(process, now, &requests, "no answer and no error");
            }
        }
    }
}

// === free functions ===

/// Returns the upstream of the requests of one call.
pub(super) fn upstream(requests: &[ScopeRequest]) -> Upstream {
    requests
        .first()
        .map(|request| request.to)
        .unwrap_or_default()
}

/// Empties the second slot of a scope that has two.
fn vacate<H: Host>(process: &Process<H>, request: &ScopeRequest) {
    if let Ok(slots) = process.table.slots() {
        // If it fails, the same is found out at the next refresh.
        let _ = slots.vacate(&process.host, request.slot, &request.scope);
    }
}

/// Returns the first request for each scope, and the others.
fn unique(requests: Vec<ScopeRequest>) -> (Vec<ScopeRequest>, Vec<ScopeRequest>) {
    let mut scopes = BTreeSet::new();
    let requests = requests.into_iter();
    requests.partition(|request| scopes.insert(request.scope.clone()))
}

/// Lets `change` decide with the state of the scope that a request is for.
pub(super) fn with_slot<H: Host, R>(
    process: &Process<H>,
    request: &ScopeRequest,
    mut change: impl FnMut(&mut ScopeState, &Policy) -> R,
) -> Result<R, TableError> {
    let policy = process.rules.policy_of(&request.scope);
    let slots = process.table.slots()?;
    let change = |scope_state: &mut ScopeState| change(scope_state, &policy);
    slots.update(&process.host, request.slot, &request.scope, change)
}
