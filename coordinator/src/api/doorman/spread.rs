//! A call of a Doorman client for resources of several shards.

use std::time::Duration;

use tollgate_core::lease::{ClientId, ClientRun};

use super::answer::Answered;
use super::ask::ResourceAsk;
use crate::leases::derived::{DeriveRequest, DerivedCall, LeaseError};
use crate::leases::router::{CallContext, RemoteMaster, RouteError, Router, each};
use crate::leases::shards::Mastership;
use crate::observe::trace;

/// Call of one client, split by shard.
#[derive(Debug)]
pub(super) struct Spread<'a> {
    router: &'a Router,
    client: ClientId,
    arrival: Duration,
    way: CallContext,
}

// === impl Spread ===

impl<'a> Spread<'a> {
    /// A call of `client` that arrived `arrival` after 1970.
    pub(super) fn new(
        router: &'a Router,
        client: ClientId,
        arrival: Duration,
        way: CallContext,
    ) -> Self {
        Self {
            router,
            client,
            arrival,
            way,
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
        let answer_here = |held: Mastership, asks: Vec<ResourceAsk>| {
            let client = self.client.clone();
            async move {
                let answered = of_lease_table(&held, client, asks, arrival).await?;
                Ok(answered.into_iter().map(answer).collect())
            }
        };
        if let Some(forwarding) = self.way.forwarded {
            let asks = entries.into_iter().map(|(_, ask)| ask).collect();
            return answer_here(self.router.own(forwarding)?, asks).await;
        }
        let parts = self
            .router
            .split(entries, |(_, ask)| &ask.ask.resource.scope);
        let answers = each(parts, |shard, entries| {
            let (wire, asks): (Vec<Q>, Vec<ResourceAsk>) = entries.into_iter().unzip();
            let here = self
                .router
                .shards
                .get(shard)
                .map(|held| answer_here(held, asks));
            let there = match here {
                Some(_) => None,
                None => Some(self.router.remote(shard, self.way.timeout)),
            };
            let there = there.map(|remote| remote.map(|remote| pass_on(remote, wire)));
            async move {
                match (here, there) {
                    (Some(here), _) => here.await,
                    (None, Some(there)) => there?.await,
                    (None, None) => Err(RouteError::NoMaster(shard)),
                }
            }
        });
        let mut all = Vec::new();
        let mut reason = None;
        let mut answered = false;
        for (_, answers) in answers.await {
            match answers {
                Ok(answers) => {
                    all.extend(answers);
                    answered = true;
                }
                Err(error) => reason = Some(error),
            }
        }
        match reason {
            Some(error) if !answered => Err(error),
            _ => Ok(all),
        }
    }
}

// === free functions ===

/// Returns the answers of one shard's lease table to `asks`.
async fn of_lease_table(
    held: &Mastership,
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
    let granted = held.refresh_derived(call).await?;
    let answered = asks.into_iter().zip(granted);
    let answered = answered.filter_map(|(ask, granted)| match granted {
        Err(LeaseError::Elsewhere { .. }) => None,
        granted => Some(Answered::new(ask, granted.ok().as_ref(), arrival)),
    });
    Ok(answered.collect())
}
