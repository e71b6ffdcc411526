//! The driver's side of a parent coordinator.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tollgate_config::catalog::ResolvedScope;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::units::Instant;
use tollgate_proto::request::SCOPES_MAX;
use tollgate_proto::response::ScopeAnswer;

use super::command::{Command, Reply};
use super::parent_batch::{ParentBatch, ParentReply};
use super::{Driver, DriverHandle};

/// Reaches a driver without keeping it alive.
#[derive(Clone, Debug)]
pub struct WeakDriverHandle(mpsc::WeakSender<Command>);

/// State of a driver below a parent.
#[derive(Debug)]
pub(super) struct ParentState {
    /// First sequence of its requests.
    sequence: u64,
    /// Time after which a call is lost.
    timeout: Duration,
    /// Waits for the next batch.
    waiting: Option<Reply<ParentBatch>>,
    /// Answers about scopes, beside leases; bounded by the borrowed leases.
    scopes: HashMap<Arc<str>, ParentScope>,
}

/// The parent's answer about a scope.
#[derive(Debug)]
struct ParentScope {
    canonical: Arc<str>,
    limited: Vec<Unit>,
}

// === impl DriverHandle ===

impl DriverHandle {
    /// Returns a handle that reaches the driver as long as others keep it alive.
    pub fn downgrade(&self) -> WeakDriverHandle {
        WeakDriverHandle(self.commands.downgrade())
    }
}

// === impl WeakDriverHandle ===

impl WeakDriverHandle {
    /// Returns the next batch as soon as one is due; `None` when the driver has ended.
    pub async fn batch(&self) -> Option<ParentBatch> {
        self.call(Command::AwaitBatch).await
    }

    /// Applies the parent's answers; `None` when the driver has ended.
    pub async fn handle_reply(&self, reply: ParentReply) -> Option<()> {
        self.call(|done| Command::ApplyParent(reply, done)).await
    }

    /// Tells the driver that its share of `resources` has changed at the parent; `None` when the
    /// driver has ended.
    pub async fn nudged(&self, resources: Vec<ResourceId>) -> Option<()> {
        self.call(|reply| Command::Nudge(resources, reply)).await
    }

    async fn call<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.0.upgrade()?.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}

// === impl Driver ===

impl Driver {
    /// Puts the driver below a parent: it lends only what a
    /// [`ParentLink`](crate::parent::ParentLink) borrows for it. Its requests are counted
    /// from `sequence` on, and a call is lost after `timeout`.
    #[must_use]
    pub fn below(self, sequence: u64, timeout: Duration) -> Self {
        Self {
            parent: Some(ParentState {
                sequence,
                timeout,
                waiting: None,
                scopes: HashMap::new(),
            }),
            ..self
        }
    }

    /// Makes the lease table, also one that was handed over, lend only what is borrowed.
    pub(super) fn borrow(&mut self) {
        if let Some(parent) = &self.parent {
            let now = self.clock.now();
            let ParentState {
                sequence, timeout, ..
            } = *parent;
            self.server.borrow_from_parent(now, sequence, timeout);
        }
    }

    pub(super) fn await_batch(&mut self, reply: Reply<ParentBatch>) {
        if let Some(parent) = &mut self.parent {
            parent.waiting = Some(reply);
        }
    }

    /// The time of the next batch, if one is awaited.
    pub(super) fn poll_parent(&self) -> Option<Instant> {
        self.parent.as_ref()?.waiting.as_ref()?;
        self.server.poll_parent()
    }

    /// Sends the batch that is due to the link that waits for it.
    pub(super) fn tell_parent(&mut self, now: Instant) {
        if self.poll_parent().is_none_or(|at| at > now) {
            return;
        }
        let todo = self.server.ask_parent(now, SCOPES_MAX);
        let Some(parent) = self.parent.as_mut().filter(|_| !todo.is_empty()) else {
            return;
        };
        let batch = ParentBatch::new(todo);
        let tree = self.server.parent_leases();
        for (id, _) in &batch.releases {
            // Leases of the scope's other units still need the answer about the scope.
            let other = |unit: &Unit| {
                let scope = id.scope.clone();
                let loan = tree.and_then(|tree| tree.view(now, &ResourceId { scope, unit: *unit }));
                loan.is_some_and(|loan| loan.capacity.is_some())
            };
            if !Unit::ALL.iter().any(other) {
                parent.scopes.remove(&id.scope);
            }
        }
        if let Some(reply) = parent.waiting.take() {
            let _ = reply.send(batch);
        }
    }

    pub(super) fn handle_parent_reply(&mut self, now: Instant, reply: ParentReply) {
        let mut answered = BTreeSet::new();
        for ScopeAnswer {
            scope,
            canonical,
            limited,
            origin,
            outcome,
            ..
        } in reply.answers
        {
            let Ok(units) = outcome else {
                continue;
            };
            let mut counts = false;
            for unit in units {
                let id = ResourceId {
                    scope: scope.clone(),
                    unit: unit.unit,
                };
                let source = (unit.sequence, origin, reply.level);
                let applied = self
                    .server
                    .handle_parent_answer(now, &id, source, &unit.answer);
                counts |= applied.unwrap_or_else(|error| {
                    let scope = id.scope.as_ref();
                    tracing::warn!(scope, unit = id.unit.name(), %error, "parent: answer not applied");
                    self.metrics.parent.count_epoch_error(error);
                    false
                });
                answered.insert(id);
            }
            // An outdated answer, or one of a lower epoch, says nothing about the scope either.
            if counts && let Some(parent) = &mut self.parent {
                parent
                    .scopes
                    .insert(scope, ParentScope { canonical, limited });
            }
        }
        for (scope, unit, sequence) in reply.requests {
            let id = ResourceId { scope, unit };
            if !answered.contains(&id) {
                self.server.handle_parent_failure(now, &id, sequence);
            }
        }
    }
}

// === impl ParentState ===

impl ParentState {
    /// Canonical scope and limited units of `resolved`, merged with the parent's answer: a unit
    /// limited at any level is limited, and a canonical scope of this coordinator wins.
    pub(super) fn merged(&self, resolved: &ResolvedScope) -> (Arc<str>, Vec<Unit>) {
        let Some(scope) = self.scopes.get(&resolved.scope) else {
            return (resolved.canonical.clone(), resolved.limited.clone());
        };
        let canonical = if resolved.canonical == resolved.scope {
            scope.canonical.clone()
        } else {
            resolved.canonical.clone()
        };
        let limited = |unit: &Unit| resolved.limited.contains(unit) || scope.limited.contains(unit);
        (canonical, Unit::ALL.into_iter().filter(limited).collect())
    }
}
