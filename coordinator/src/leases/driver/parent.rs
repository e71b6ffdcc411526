//! What a driver below another coordinator says to it and hears from it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::units::Instant;
use tollgate_proto::request::{SCOPES_MAX, ScopeRefresh};
use tollgate_proto::response::ScopeAnswer;

use super::{Driver, DriverEvent, DriverHandle};
use crate::catalog::ResolvedScope;

/// What there is to say to the parent.
#[derive(Debug, Default)]
pub struct ParentBatch {
    /// What to ask for.
    pub scopes: Vec<ScopeRefresh>,
    /// What to give back, each with its sequence.
    pub releases: Vec<(ResourceId, u64)>,
}

/// What came of what was asked.
#[derive(Debug, Default)]
pub struct ParentReply {
    /// All that was asked: scope, unit and sequence.
    pub asked: Vec<(Arc<str>, Unit, u64)>,
    /// How many coordinators are above.
    pub level: u32,
    /// What was answered of that, or why it was not.
    pub answers: Vec<ScopeAnswer>,
}

/// Reaches a driver without keeping it.
#[derive(Clone, Debug)]
pub struct WeakDriverHandle(mpsc::WeakSender<DriverEvent>);

/// The driver's side of a parent.
#[derive(Debug)]
pub(super) struct ParentState {
    /// From where on its requests are counted.
    sequence: u64,
    /// After how long a call is lost.
    timeout: Duration,
    /// Who is told when there is something to say.
    waiting: Option<oneshot::Sender<ParentBatch>>,
    /// What the parent said of scopes, beside leases; no more than are borrowed for.
    said: HashMap<Arc<str>, ParentScope>,
}

/// What a parent said of a scope.
#[derive(Debug)]
struct ParentScope {
    canonical: Arc<str>,
    limited: Vec<Unit>,
}

// === impl DriverHandle ===

impl DriverHandle {
    /// Reaches the driver as long as others keep it.
    pub fn downgrade(&self) -> WeakDriverHandle {
        WeakDriverHandle(self.events.downgrade())
    }
}

// === impl WeakDriverHandle ===

impl WeakDriverHandle {
    /// What there is to say, as soon as there is something; none when the driver has ended.
    pub async fn batch(&self) -> Option<ParentBatch> {
        self.call(DriverEvent::ParentBatch).await
    }

    /// Says what was heard; none when the driver has ended.
    pub async fn heard(&self, heard: ParentReply) -> Option<()> {
        self.call(|reply| DriverEvent::ParentReply(heard, reply))
            .await
    }

    async fn call<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> DriverEvent) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.0.upgrade()?.send(event(reply)).await.ok()?;
        answer.await.ok()
    }
}

// === impl Driver ===

impl Driver {
    /// The same, below a parent: lends only what a [`Link`](crate::leases::parent::ParentLink) borrows for it.
    /// Its requests are counted from `sequence` on, and a call is lost after `timeout`.
    #[must_use]
    pub fn below(self, sequence: u64, timeout: Duration) -> Self {
        Self {
            parent: Some(ParentState {
                sequence,
                timeout,
                waiting: None,
                said: HashMap::new(),
            }),
            ..self
        }
    }

    /// Lets the books, also those that were taken over, lend only what is borrowed.
    pub(super) fn borrow(&mut self) {
        if let Some(parent) = &self.parent {
            let now = self.clock.now();
            let ParentState {
                sequence, timeout, ..
            } = *parent;
            self.node.borrow_from_parent(now, sequence, timeout);
        }
    }

    pub(super) fn await_batch(&mut self, reply: oneshot::Sender<ParentBatch>) {
        if let Some(parent) = &mut self.parent {
            parent.waiting = Some(reply);
        }
    }

    /// When there is something to say to the parent, if somebody waits for it.
    pub(super) fn poll_parent(&self) -> Option<Instant> {
        self.parent.as_ref()?.waiting.as_ref()?;
        self.node.poll_parent()
    }

    /// Tells who waits what there is to say.
    pub(super) fn tell_parent(&mut self, now: Instant) {
        if self.poll_parent().is_none_or(|at| at > now) {
            return;
        }
        let todo = self.node.ask_parent(now, SCOPES_MAX);
        let Some(parent) = self.parent.as_mut().filter(|_| !todo.is_empty()) else {
            return;
        };
        let batch = ParentBatch::new(todo);
        let tree = self.node.parent_leases();
        for (id, _) in &batch.releases {
            // What is borrowed of the scope's other units still needs what was said of it.
            let other = |unit: &Unit| {
                let scope = id.scope.clone();
                let loan = tree.and_then(|tree| tree.view(now, &ResourceId { scope, unit: *unit }));
                loan.is_some_and(|loan| loan.capacity.is_some())
            };
            if !Unit::ALL.iter().any(other) {
                parent.said.remove(&id.scope);
            }
        }
        if let Some(reply) = parent.waiting.take() {
            let _ = reply.send(batch);
        }
    }

    pub(super) fn hear(&mut self, now: Instant, heard: ParentReply) {
        let mut answered = BTreeSet::new();
        for ScopeAnswer {
            scope,
            canonical,
            limited,
            origin,
            outcome,
        } in heard.answers
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
                if let Err(error) = self.node.check_parent_origin(&id, origin) {
                    let scope = id.scope.as_ref();
                    tracing::warn!(scope, unit = id.unit.name(), %error, "parent: answer not applied");
                    self.metrics.parent().count_epoch_error(error);
                }
                let said = (unit.sequence, origin, heard.level);
                counts |= self.node.handle_parent_answer(now, &id, said, &unit.answer);
                answered.insert(id);
            }
            // What is older than what is known, or of a lower epoch, says nothing about the scope either.
            if counts && let Some(parent) = &mut self.parent {
                parent
                    .said
                    .insert(scope, ParentScope { canonical, limited });
            }
        }
        for (scope, unit, sequence) in heard.asked {
            let id = ResourceId { scope, unit };
            if !answered.contains(&id) {
                self.node.handle_parent_failure(now, &id, sequence);
            }
        }
    }
}

// === impl ParentState ===

impl ParentState {
    /// The canonical scope and the limited units of what is `resolved` here, with what the parent
    /// says of it: what is limited at any level is, and a canonical scope of this one's own counts.
    pub(super) fn merged(&self, resolved: &ResolvedScope) -> (Arc<str>, Vec<Unit>) {
        let Some(said) = self.said.get(&resolved.scope) else {
            return (resolved.canonical.clone(), resolved.limited.clone());
        };
        let canonical = if resolved.canonical == resolved.scope {
            said.canonical.clone()
        } else {
            resolved.canonical.clone()
        };
        let limited = |unit: &Unit| resolved.limited.contains(unit) || said.limited.contains(unit);
        (canonical, Unit::ALL.into_iter().filter(limited).collect())
    }
}

// === impl ParentBatch ===

impl ParentBatch {
    fn new(todo: Vec<(ResourceId, LeaseMessage)>) -> Self {
        let mut releases = Vec::new();
        let mut scopes: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
        for (id, todo) in todo {
            match todo {
                LeaseMessage::Refresh(ask) => {
                    scopes.entry(id.scope).or_default().push((id.unit, ask))
                }
                LeaseMessage::Release { sequence } => releases.push((id, sequence)),
                LeaseMessage::Nothing => {}
            }
        }
        let scopes = scopes.into_iter();
        Self {
            scopes: scopes
                .map(|(scope, asks)| ScopeRefresh { scope, asks })
                .collect(),
            releases,
        }
    }
}
