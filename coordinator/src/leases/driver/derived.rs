//! Calls with requests that an adapter derives from the lease table, for protocols that say less
//! than ours.

use std::fmt;
use std::sync::Arc;

use tollgate_core::lease::{Answer, ClientRun, LeaseRequest, ResourceId};
use tollgate_core::limit::Limit;
use tollgate_core::resource::Resource;
use tollgate_core::units::Instant;

use super::{Driver, LeaseError, check_home, terms};

/// Derivation of a request from the state of its resource.
pub trait DeriveRequest: fmt::Debug + Send {
    /// Returns the request of `client` for `resource`, which is none if it has no clients.
    fn derive(&self, now: Instant, client: &ClientRun, resource: Option<&Resource>)
    -> LeaseRequest;
}

/// A call for several resources.
#[derive(Debug)]
pub struct DerivedCall {
    /// The client.
    pub client: ClientRun,
    /// The requests; a resource may be here twice.
    pub requests: Vec<(ResourceId, Box<dyn DeriveRequest>)>,
}

/// Answer to one request of a call.
#[derive(Clone, Debug)]
pub struct DerivedAnswer {
    /// The answer.
    pub answer: Answer,
    /// The limit behind it.
    pub limit: Limit,
    /// Number of clients between which the capacity is divided.
    pub subclients: u64,
}

/// Results of a call's requests, in order.
pub type DerivedAnswers = Vec<Result<DerivedAnswer, LeaseError>>;

// === impl Driver ===

impl Driver {
    /// Answers `call`, each request in order.
    pub(super) fn refresh_derived(&mut self, now: Instant, call: DerivedCall) -> DerivedAnswers {
        self.follow_catalog();
        let DerivedCall { client, requests } = call;
        requests
            .into_iter()
            .map(|(resource, request)| {
                let answer = self.refresh_one(now, &client, &resource, request.as_ref());
                answer.inspect_err(|error| self.metrics.count_fault(error.fault()))
            })
            .collect()
    }

    fn refresh_one(
        &mut self,
        now: Instant,
        client: &ClientRun,
        resource: &ResourceId,
        request: &dyn DeriveRequest,
    ) -> Result<DerivedAnswer, LeaseError> {
        let scope: Arc<str> = resource.scope.clone();
        let resolved = self.resolver.resolve(&scope);
        check_home(self.origin, self.shards, resolved)?;
        let terms = terms(
            resolved,
            resource.unit,
            self.parent.as_ref(),
            &self.unlimited,
        );
        let Some(terms) = terms else {
            return Ok(DerivedAnswer {
                answer: self
                    .server
                    .handle_unlimited(client, resource, &self.unlimited),
                limit: self.unlimited.clone(),
                subclients: 1,
            });
        };
        let request = request.derive(now, client, self.server.resource(resource));
        let answer = self
            .server
            .handle_refresh(now, client, resource, &request, &terms)?;
        let state = self.server.resource(resource);
        Ok(DerivedAnswer {
            answer,
            limit: terms.limit.clone(),
            subclients: state.map_or(1, Resource::subclients),
        })
    }
}
