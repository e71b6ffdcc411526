//! A call of a Doorman client for resources of several shards.

use std::time::Duration;

use tollgate_core::lease::{ClientId, ClientRun};
use tollgate_leases::derived::{DeriveRequest, DerivedCall, LeaseError};
use tollgate_leases::router::{CallContext, RemoteMaster, RouteError, Router, answered};
use tollgate_leases::shards::Mastership;
use tollgate_observe::trace;

use super::answer::Answered;
use super::ask::ResourceAsk;

/// Call of one client, split by shard.
#[derive(Debug)]
pub(super) struct Spread<'a> {
    router: &'a Router,
    client: ClientId,
    arrival: Duration,
    context: CallContext,
}

// === impl Spread ===

impl<'a> Spread<'a> {
    /// A call of `client` that arrived `arrival` after 1970.
    pub(super) fn new(
        router: &'a Router,
        client: ClientId,
        arrival: Duration,
        context: CallContext,
    ) -> Self {
        Self {
            router,
            client,
            arrival,
            context,
        }
    }

    /// Returns the answers of the cluster to `entries`, each as it came over the wire and as it was
    /// read. `answer` translates those of this node's shards, `pass_on` forwards to other nodes.
    ///
    /// A resource without an answer is left out, so that its client keeps its lease: Doorman cannot
    /// express "ask again", and no capacity would be a lease.
    ///
    /// # Errors
    /// If no resource was answered.
    pub(super) async fn ask<Q, A, F>(
        &self,
        entries: Vec<(Q, ResourceAsk)>,
        answer: fn(Answered) -> A,
        pass_on: impl Fn(RemoteMaster, Vec<Q>) -> F,
    ) -> Result<Vec<A>, RouteError>
    where
        A: Send + 'static,
        F: Future<Output = Result<Vec<A>, RouteError>> + Send + 'static,
    {
        trace::record_call(self.client.as_str(), entries.len());
        let arrival = self.arrival;
        let own = |mastership: Mastership, entries: Vec<(Q, ResourceAsk)>| {
            let client = self.client.clone();
            let asks = entries.into_iter().map(|(_, ask)| ask).collect();
            async move {
                let answered = of_lease_table(&mastership, client, asks, arrival).await?;
                Ok(answered.into_iter().map(answer).collect())
            }
        };
        let pass_on = |remote, entries: Vec<(Q, ResourceAsk)>| {
            pass_on(remote, entries.into_iter().map(|(wire, _)| wire).collect())
        };
        let parts = self
            .router
            .route(
                entries,
                |(_, ask)| &ask.ask.resource.scope,
                self.context,
                own,
                pass_on,
            )
            .await;
        Ok(answered(parts)?.into_iter().flatten().collect())
    }
}

// === free functions ===

/// Returns the answers of one shard's lease table to `asks`.
async fn of_lease_table(
    mastership: &Mastership,
    client: ClientId,
    asks: Vec<ResourceAsk>,
    arrival: Duration,
) -> Result<Vec<Answered>, RouteError> {
    let requests = asks.iter().map(|ask| {
        let request: Box<dyn DeriveRequest> = Box::new(ask.ask.clone());
        (ask.ask.resource.clone(), request)
    });
    let call = DerivedCall {
        client: ClientRun::only(client),
        requests: requests.collect(),
    };
    let granted = mastership.refresh_derived(call).await?;
    let answered = asks.into_iter().zip(granted);
    let answered = answered.filter_map(|(ask, granted)| match granted {
        Err(LeaseError::Elsewhere { .. }) => None,
        granted => Some(Answered::new(ask, granted.ok().as_ref(), arrival)),
    });
    Ok(answered.collect())
}
