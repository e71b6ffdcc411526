//! Answers of a coordinator to a process: leases of the resource under test, and all that is wanted
//! of every other resource.

use tollgate_core::lease::{Answer, Origin, ResourceId, Unit, UnitAnswer};
use tollgate_core::lease_server::{LeaseServer, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::message::{Refresh, Refreshed, ScopeAnswer, ScopeError, ScopeRefresh};
use tollgate_core::units::{Capacity, Instant};

/// The google.rpc.Code of a request that came after a later one.
const ABORTED: u32 = 10;

/// Coordinator that answers, with the limit of the resource.
pub(crate) struct Answering<'a> {
    pub(crate) node: &'a mut LeaseServer,
    /// Time by the coordinator's clock.
    pub(crate) now: Instant,
    pub(crate) origin: Origin,
    pub(crate) resource: &'a ResourceId,
    pub(crate) terms: Terms<'a>,
}

// === impl Answering ===

impl Answering<'_> {
    /// Returns the answer to a refresh. Scopes other than the resource's share its capacity.
    pub(crate) fn answer(&mut self, refresh: &Refresh) -> Refreshed {
        let scopes = refresh.scopes.iter();
        let answer = |scope| Ok(self.answer_scope(refresh, scope));
        Refreshed {
            scopes: scopes.map(answer).collect(),
        }
    }

    fn answer_scope(&mut self, refresh: &Refresh, asked: &ScopeRefresh) -> ScopeAnswer {
        let own = asked.scope == self.resource.scope;
        let units = asked.asks.iter().map(|(unit, ask)| {
            let (scope, unit) = (asked.scope.clone(), *unit);
            let resource = ResourceId { scope, unit };
            let answer = match resource == *self.resource {
                true => {
                    let (now, client) = (self.now, &refresh.client);
                    self.node
                        .handle_refresh(now, client, &resource, ask, &self.terms)?
                }
                false => {
                    let unlimited = unlimited(self.terms.limit);
                    self.node
                        .handle_unlimited(&refresh.client, &resource, &unlimited)
                }
            };
            let sequence = ask.sequence;
            Ok(UnitAnswer {
                unit,
                sequence,
                answer,
            })
        });
        let outcome: Result<Vec<_>, tollgate_core::resource::RefreshError> = units.collect();
        ScopeAnswer {
            scope: asked.scope.clone(),
            canonical: self.resource.scope.clone(),
            limited: own.then_some(self.resource.unit).into_iter().collect(),
            usual: false,
            origin: self.origin,
            outcome: outcome.map_err(|error| ScopeError {
                code: ABORTED,
                message: error.to_string(),
            }),
        }
    }
}

// === free functions ===

/// Returns the answer for `resource`, if there is one.
pub(crate) fn answer_of<'a>(answer: &'a Refreshed, resource: &ResourceId) -> Option<&'a Answer> {
    let mut scopes = answer.scopes.iter().flatten();
    let scope = scopes.find(|answer| answer.scope == resource.scope)?;
    unit_of(scope, resource.unit)
}

fn unit_of(scope: &ScopeAnswer, unit: Unit) -> Option<&Answer> {
    let mut units = scope.outcome.as_ref().ok()?.iter();
    let found = units.find(|answer| answer.unit == unit)?;
    Some(&found.answer)
}

/// Returns the request for a lease of `resource`, if there is one.
pub(crate) fn asked_of<'a>(
    refresh: &'a Refresh,
    resource: &ResourceId,
) -> Option<&'a tollgate_core::lease::LeaseRequest> {
    let mut scopes = refresh.scopes.iter();
    let scope = scopes.find(|asked| asked.scope == resource.scope)?;
    let asked = scope.asks.iter().find(|(unit, _)| *unit == resource.unit);
    asked.map(|(_, ask)| ask)
}

/// Returns a limit of unlimited capacity, with the times of `limit`.
fn unlimited(limit: &Limit) -> Limit {
    let unlimited = Limit::new(Capacity::UNLIMITED);
    Limit {
        lease: limit.lease,
        refresh: limit.refresh,
        ..unlimited
    }
}
