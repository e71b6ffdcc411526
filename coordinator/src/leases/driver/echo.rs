//! Calls of clients whose protocol has no sequences: what they ask, and what came of it.

use std::sync::Arc;

use tollgate_core::lease::{Answer, ClientId, ClientRun, Demand, ResourceId};
use tollgate_core::lease_server::Terms;
use tollgate_core::limit::Limit;
use tollgate_core::resource::RepeatedLease;
use tollgate_core::units::Instant;

use super::{Driver, Echoed, LeaseError, at_home, fault};

/// A call for several resources.
#[derive(Clone, Debug)]
pub struct EchoCall {
    /// Who asks.
    pub client: ClientId,
    /// What for; one may be here twice.
    pub asks: Vec<EchoAsk>,
}

/// What came of one ask.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The answer.
    pub answer: Answer,
    /// The limit behind it.
    pub limit: Limit,
    /// Among how many the capacity is divided.
    pub subclients: u64,
}

/// What is asked of one resource.
#[derive(Clone, Debug)]
pub struct EchoAsk {
    /// Which.
    pub resource: ResourceId,
    /// The lease that the client says it has.
    pub echo: Option<RepeatedLease>,
    /// What it wants.
    pub demand: Demand,
}

// === impl Driver ===

impl Driver {
    /// Answers `call`, one answer for each ask in order.
    pub(super) fn answer_echoes(&mut self, now: Instant, call: EchoCall) -> Echoed {
        self.resolver.update();
        let EchoCall { client, asks } = call;
        asks.into_iter()
            .map(|ask| {
                let granted = self.answer_echo(now, &client, ask);
                granted.inspect_err(|error| self.metrics.count_fault(fault(*error)))
            })
            .collect()
    }

    fn answer_echo(
        &mut self,
        now: Instant,
        client: &ClientId,
        ask: EchoAsk,
    ) -> Result<Granted, LeaseError> {
        let EchoAsk {
            resource,
            echo,
            demand,
        } = ask;
        let scope: Arc<str> = resource.scope.clone();
        let resolved = self.resolver.resolve(&scope);
        at_home(self.origin, self.shards, resolved)?;
        let whole = self.parent.as_ref().map(|_| Terms::of(&self.unlimited));
        let Some(terms) = resolved.terms(resource.unit).or(whole) else {
            let client = ClientRun::only(client.clone());
            return Ok(Granted {
                answer: self
                    .node
                    .handle_unlimited(&client, &resource, &self.unlimited),
                limit: self.unlimited.clone(),
                subclients: 1,
            });
        };
        let asked = (echo, demand);
        let answer = self
            .node
            .handle_repeated_lease(now, client, &resource, asked, &terms)?;
        let books = self.node.resource(&resource);
        Ok(Granted {
            answer,
            limit: terms.limit.clone(),
            subclients: books.map_or(1, |books| books.subclients()),
        })
    }
}
