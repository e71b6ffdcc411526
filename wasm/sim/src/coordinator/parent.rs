//! A coordinator below a parent: its calls there, and the safe capacity that it lends without it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{Answer, ClientRun, Epoch, LeaseRequest, ResourceId, Run, Unit};
use tollgate_core::message::{Refresh, Refreshed, Release, SCOPES_MAX, ScopeRefresh};
use tollgate_core::units::Instant;

use super::Coordinator;

/// Length of a lease of safe capacity, in refresh intervals, at most.
const SAFE_REFRESHES: u32 = 4;

/// Messages of one shard that are due for the parent.
#[derive(Debug)]
pub(crate) struct ParentCall {
    pub(crate) refresh: Option<Refresh>,
    pub(crate) release: Option<Release>,
}

// === impl Coordinator ===

impl Coordinator {
    /// Takes back leases that have expired, and returns what is due for the parent.
    pub(crate) fn work(&mut self, now: Instant, shard: usize) -> Option<ParentCall> {
        let local = self.clock.at(now);
        let client = ClientRun {
            id: self.id.clone(),
            run: Run::Term(self.shards[shard].epoch),
        };
        for server in self.shards[shard].nodes_mut() {
            if server.poll_timeout().is_some_and(|at| at <= local) {
                server.handle_timeout(local);
            }
        }
        let server = self.shards[shard].server.as_mut()?;
        if server.poll_parent().is_none_or(|at| at > local) {
            return None;
        }
        Some(parent_call(client, server.ask_parent(local, SCOPES_MAX)))
    }

    /// Takes the parent's answers for a shard, to a call of its master's term `epoch`. Returns those
    /// that count.
    pub(crate) fn parent_answered(
        &mut self,
        now: Instant,
        (shard, epoch): (usize, Epoch),
        answer: &Refreshed,
    ) -> Vec<(ResourceId, Answer)> {
        let (local, level) = (self.clock.at(now), self.level);
        let shard = &mut self.shards[shard];
        let Some(server) = shard.server.as_mut().filter(|_| shard.epoch == epoch) else {
            return Vec::new();
        };
        let mut counted = Vec::new();
        for scope in answer.scopes.iter().flatten() {
            let Ok(units) = &scope.outcome else { continue };
            for unit in units {
                let id = ResourceId {
                    scope: scope.scope.clone(),
                    unit: unit.unit,
                };
                let said = (unit.sequence, scope.origin, level);
                // One of a lower epoch counts as a failure, which the server notes itself.
                if server.handle_parent_answer(local, &id, said, &unit.answer) == Ok(true) {
                    counted.push((id, unit.answer));
                }
            }
        }
        counted
    }

    /// Notes that the requests of a call of a shard's master of the term `epoch` have failed.
    pub(crate) fn parent_failed(
        &mut self,
        now: Instant,
        (shard, epoch): (usize, Epoch),
        requests: &[(ResourceId, u64)],
    ) {
        let local = self.clock.at(now);
        let shard = &mut self.shards[shard];
        if let Some(server) = shard.server.as_mut().filter(|_| shard.epoch == epoch) {
            for (id, sequence) in requests {
                server.handle_parent_failure(local, id, *sequence);
            }
        }
    }

    /// Notes of which scopes it lends safe capacity; it is looked at again after `every`.
    pub(crate) fn note_safe(&mut self, now: Instant, every: Duration) {
        let local = self.clock.at(now);
        self.safe.retain(|_, until| *until > now);
        let servers = self.shards.iter().filter_map(|shard| shard.server.as_ref());
        for server in servers {
            let Some(leases) = server.parent_leases() else {
                continue;
            };
            for (id, resource) in server.resources() {
                let borrows = leases.view(local, id);
                if borrows.is_some_and(|lease| lease.capacity.is_none()) {
                    let limit = resource.limit();
                    let lease = limit.lease.min(limit.refresh * SAFE_REFRESHES);
                    let until = now.saturating_add(every).saturating_add(lease);
                    self.safe.insert(id.scope.clone(), until);
                }
            }
        }
    }

    /// Returns whether leases of `scope` may be of safe capacity.
    pub(crate) fn lends_safe(&self, scope: &str) -> bool {
        self.safe.contains_key(scope)
    }
}

// === free functions ===

/// Returns the calls that carry `messages` of `client`.
fn parent_call(client: ClientRun, messages: Vec<(ResourceId, LeaseMessage)>) -> ParentCall {
    let mut asks: BTreeMap<Arc<str>, Vec<(Unit, LeaseRequest)>> = BTreeMap::new();
    let mut resources = Vec::new();
    for (id, message) in messages {
        match message {
            LeaseMessage::Nothing => {}
            LeaseMessage::Release { sequence } => resources.push((id, sequence)),
            LeaseMessage::Refresh(request) => {
                asks.entry(id.scope).or_default().push((id.unit, request));
            }
        }
    }
    let scopes = asks.into_iter();
    let scopes: Vec<_> = scopes
        .map(|(scope, asks)| ScopeRefresh { scope, asks })
        .collect();
    let refresh = (!scopes.is_empty()).then(|| Refresh {
        client: client.clone(),
        scopes,
    });
    let release = (!resources.is_empty()).then_some(Release { client, resources });
    ParentCall { refresh, release }
}
