//! Refreshes that other nodes of the cluster pass on: `tollgate.v1.ForwardService`.

use tokio::task::JoinSet;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_core::message::SCOPES_MAX;
use tollgate_leases::metrics::LeaseMetrics;
use tollgate_leases::router::{ForwardingHeader, REFRESHES_MAX, Router};
use tollgate_net::clock::Clock;
use tollgate_net::wire::{CALL_LEN_MAX, ForwardService, ForwardServiceServer};
use tollgate_observe::trace;
use tollgate_proto::request::Refresh;
use tollgate_proto::v1;
use tonic::{Code, Request, Response, Status};

use super::CallError;
use super::caller::{Caller, CallerCheck};

/// Service for the other nodes, which answers from the lease tables of this one.
#[derive(Clone, Debug)]
pub struct ForwardApi {
    router: Router,
    clock: Clock,
    metrics: LeaseMetrics,
    callers: CallerCheck,
}

// === impl ForwardApi ===

impl ForwardApi {
    /// The service that answers through `router` those that `callers` takes for nodes.
    pub fn new(
        router: Router,
        clock: Clock,
        metrics: LeaseMetrics,
        callers: CallerCheck,
    ) -> ForwardServiceServer<Self> {
        let service = Self {
            router,
            clock,
            metrics,
            callers,
        };
        ForwardServiceServer::new(service).max_decoding_message_size(CALL_LEN_MAX)
    }

    async fn answer(self, forwarded: v1::ForwardedRefresh) -> v1::ForwardedAnswer {
        let arrival = self.clock.now();
        let result = self.refresh(forwarded).await;
        let scopes = result.as_ref().map_or(0, |answer| answer.scopes.len());
        let duration = self.clock.now().saturating_since(arrival);
        self.metrics.count_refresh(scopes, duration);
        match result {
            Ok(response) => v1::ForwardedAnswer {
                response: Some(response),
                code: Code::Ok as u32,
                error: String::new(),
            },
            Err(error) => {
                tracing::debug!(%error, "forward: refresh refused");
                self.metrics.count_fault(error.fault());
                let status = Status::from(error);
                v1::ForwardedAnswer {
                    response: None,
                    code: status.code() as u32,
                    error: status.message().to_owned(),
                }
            }
        }
    }

    async fn refresh(
        &self,
        forwarded: v1::ForwardedRefresh,
    ) -> Result<v1::RefreshResponse, CallError> {
        let refresh = Refresh::try_from(forwarded.refresh.unwrap_or_default())?;
        // No cluster has so many shards, so that one that does not fit is led nowhere.
        let header = ForwardingHeader {
            shard: ShardId(u16::try_from(forwarded.shard).unwrap_or(u16::MAX)),
            epoch: Epoch(forwarded.epoch),
        };
        let answers = self.router.refresh_own(refresh, header).await?;
        Ok(v1::RefreshResponse::new(&answers))
    }
}

#[tonic::async_trait]
impl ForwardService for ForwardApi {
    async fn forward(
        &self,
        request: Request<v1::ForwardRequest>,
    ) -> Result<Response<v1::ForwardResponse>, Status> {
        let caller = Caller::of(request.extensions());
        self.callers.node(&caller).map_err(CallError::from)?;
        let refreshes = request.into_inner().refreshes;
        check(&refreshes)?;
        trace::record_call("", refreshes.len());
        let mut answers = vec![v1::ForwardedAnswer::default(); refreshes.len()];
        let mut calls = JoinSet::new();
        for (place, forwarded) in refreshes.into_iter().enumerate() {
            let answer = self.clone().answer(forwarded);
            calls.spawn(async move { (place, answer.await) });
        }
        while let Some(ended) = calls.join_next().await {
            let (place, answer) = ended.map_err(|error| Status::internal(error.to_string()))?;
            if let Some(open) = answers.get_mut(place) {
                *open = answer;
            }
        }
        Ok(Response::new(v1::ForwardResponse { answers }))
    }
}

// === free functions ===

/// Checks the size of a call. One refresh may have as many scopes as it may have alone.
fn check(refreshes: &[v1::ForwardedRefresh]) -> Result<(), Status> {
    let count = refreshes.len();
    if !(1..=REFRESHES_MAX).contains(&count) {
        let rule = format!("refreshes: has {count}, there must be 1 to {REFRESHES_MAX}");
        return Err(Status::invalid_argument(rule));
    }
    let scopes = refreshes.iter().filter_map(|one| one.refresh.as_ref());
    let scopes: usize = scopes.map(|refresh| refresh.scopes.len()).sum();
    if count > 1 && scopes > SCOPES_MAX {
        let rule = format!("refreshes: have {scopes} scopes, at most {SCOPES_MAX} are allowed");
        return Err(Status::invalid_argument(rule));
    }
    Ok(())
}
