//! Answers to calls whose requests are derived from the lease table.

use std::sync::Arc;

use tollgate_core::lease::{ClientRun, ResourceId};
use tollgate_core::resource::Resource;
use tollgate_core::units::Instant;

use super::{Driver, LeaseError, check_home, terms};
use crate::derived::{DeriveRequest, DerivedAnswer, DerivedAnswers, DerivedCall, KnownClient};

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
        self.rules.add(now, &scope);
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
        let state = self.server.resource(resource);
        let known = state.and_then(|state| KnownClient::of(now, client, state));
        let request = request.derive(known.as_ref());
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
