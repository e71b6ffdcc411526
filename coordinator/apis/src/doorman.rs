//! API for Doorman's clients: `doorman.Capacity`, on the same port and the same lease table.
//!
//! Only translates. A resource id of Doorman is a scope of ours with the unit `requests`:
//! `doorman/<id>`, unless the configuration names another, so that Envoys and Doorman's clients can
//! share one capacity. A client `x` is called `doorman/x` in the lease table, so that it cannot
//! pass for an Envoy.
//!
//! A client of Doorman's knows one server, the master, and every other node names the master to it.
//! That fits one shard. With several there is no single master to name: every node answers as the
//! master, and forwards requests for other nodes' shards, as it does for Envoys.
//!
//! Its clients have no sequences: see `repeated_lease`. Times are whole seconds of the wall clock:
//! an expiry is rounded down from when the request arrived, so that no lease is longer on the wire
//! than in the lease table.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use tokio::sync::watch;
use tollgate_config::Config;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::ClientRun;
use tollgate_leases::router::{CallContext, RemoteMaster, Router};
use tollgate_net::clock::{Clock, unix_time};
use tollgate_net::wire::{CALL_LEN_MAX, Capacity, CapacityClient, CapacityServer};
use tollgate_proto::FieldError;
use tollgate_proto::doorman as wire;
use tollgate_proto::request::Release;
use tonic::{Request, Response, Status};

use self::answer::Answered;
pub use self::metrics::{DoormanMethod, DoormanMetrics};
use self::spread::Spread;
use crate::grpc::CallError;

mod answer;
mod ask;
mod metrics;
mod repeated_lease;
mod scopes;
mod spread;

/// Doorman's gRPC service, which answers from the lease tables of the cluster.
#[derive(Clone, Debug)]
pub struct Service {
    router: Router,
    clock: Clock,
    metrics: DoormanMetrics,
    config: watch::Receiver<Arc<Config>>,
}

// === impl Service ===

impl Service {
    /// The service that answers through `router`, under the newest `config`.
    pub fn new(
        router: Router,
        clock: Clock,
        metrics: DoormanMetrics,
        config: watch::Receiver<Arc<Config>>,
    ) -> CapacityServer<Self> {
        let service = Self {
            router,
            clock,
            metrics,
            config,
        };
        CapacityServer::new(service).max_decoding_message_size(CALL_LEN_MAX)
    }

    /// Returns the master to send the client to; `None` if this node answers by itself.
    fn mastership(&self, context: CallContext) -> Option<wire::Mastership> {
        let shard = ShardId::default();
        let here = context.forwarded.is_some() || self.router.count != NonZeroU16::MIN;
        if here || self.router.shards.get(shard).is_some() {
            return None;
        }
        let masters = self.router.masters.borrow();
        // The election may take this node for the master when its own term is over already.
        let others = masters.of(shard).map(|master| &*master.peer);
        let others = others.filter(|master| Some(*master) != self.router.me.as_ref());
        Some(wire::Mastership {
            master_address: others.map(|master| master.grpc.clone()),
        })
    }

    /// Counts a call, and what came of it.
    fn counted<T>(
        &self,
        method: DoormanMethod,
        result: Result<T, CallError>,
    ) -> Result<Response<T>, Status> {
        self.metrics.count(method, result.is_ok());
        if let Err(error) = &result {
            tracing::debug!(%error, ?method, "doorman: call refused");
        }
        Ok(Response::new(result?))
    }

    async fn get(
        &self,
        request: wire::GetCapacityRequest,
        context: CallContext,
    ) -> Result<wire::GetCapacityResponse, CallError> {
        if let Some(mastership) = self.mastership(context) {
            return Ok(wire::GetCapacityResponse {
                response: Vec::new(),
                mastership: Some(mastership),
            });
        }
        let arrival = unix_time();
        let client = ask::client("client_id", &request.client_id)?;
        let asks = {
            let config = self.config.borrow();
            ask::of_client(&request.resource, &config.doorman, arrival)?
        };
        let spread = Spread::new(&self.router, client, arrival, context);
        let entries = request.resource.into_iter().zip(asks).collect();
        let client_id = request.client_id;
        let pass_on = |remote: RemoteMaster, resource| {
            let client_id = client_id.clone();
            async move {
                let mut client = CapacityClient::new(remote.channel());
                let request = remote.request(wire::GetCapacityRequest {
                    client_id,
                    resource,
                });
                let answer = remote.answer(client.get_capacity(request)).await?;
                Ok(answer.response)
            }
        };
        let response = spread.ask(entries, Answered::for_client, pass_on).await?;
        Ok(wire::GetCapacityResponse {
            response,
            mastership: None,
        })
    }

    async fn get_server(
        &self,
        request: wire::GetServerCapacityRequest,
        context: CallContext,
    ) -> Result<wire::GetServerCapacityResponse, CallError> {
        if let Some(mastership) = self.mastership(context) {
            return Ok(wire::GetServerCapacityResponse {
                response: Vec::new(),
                mastership: Some(mastership),
            });
        }
        let arrival = unix_time();
        let client = ask::client("server_id", &request.server_id)?;
        let asks = {
            let config = self.config.borrow();
            ask::of_server(&request.resource, &config.doorman, arrival)?
        };
        let spread = Spread::new(&self.router, client, arrival, context);
        let entries = request.resource.into_iter().zip(asks).collect();
        let server_id = request.server_id;
        let pass_on = |remote: RemoteMaster, resource| {
            let server_id = server_id.clone();
            async move {
                let mut client = CapacityClient::new(remote.channel());
                let request = remote.request(wire::GetServerCapacityRequest {
                    server_id,
                    resource,
                });
                let answer = remote.answer(client.get_server_capacity(request)).await?;
                Ok(answer.response)
            }
        };
        let response = spread.ask(entries, Answered::for_server, pass_on).await?;
        Ok(wire::GetServerCapacityResponse {
            response,
            mastership: None,
        })
    }

    async fn take_back(
        &self,
        request: wire::ReleaseCapacityRequest,
        context: CallContext,
    ) -> Result<wire::ReleaseCapacityResponse, CallError> {
        if let Some(mastership) = self.mastership(context) {
            return Ok(wire::ReleaseCapacityResponse {
                mastership: Some(mastership),
            });
        }
        let client = ClientRun::only(ask::client("client_id", &request.client_id)?);
        let released = {
            let config = self.config.borrow();
            ask::released(&request.resource_id, &config.doorman)?
        };
        // Without sequences there is none that a release could be older than.
        let resources: Vec<_> = released.into_iter().map(|id| (id, u64::MAX)).collect();
        self.router.metrics.count_releases(resources.len());
        let release = Release { client, resources };
        self.router.release(release, context).await?;
        Ok(wire::ReleaseCapacityResponse { mastership: None })
    }
}

#[tonic::async_trait]
impl Capacity for Service {
    async fn discovery(
        &self,
        request: Request<wire::DiscoveryRequest>,
    ) -> Result<Response<wire::DiscoveryResponse>, Status> {
        let context = CallContext::read(request.metadata())?;
        // Other clients can reach this node at the address that this client used.
        let reached = request.local_addr().as_ref().map(SocketAddr::to_string);
        let advertised = self.router.me.as_ref().map(|me| me.grpc.clone());
        let here = wire::Mastership {
            master_address: advertised.or(reached),
        };
        let elsewhere = self.mastership(context);
        let response = wire::DiscoveryResponse {
            is_master: elsewhere.is_none(),
            mastership: elsewhere.unwrap_or(here),
        };
        self.counted(DoormanMethod::Discovery, Ok(response))
    }

    async fn get_capacity(
        &self,
        request: Request<wire::GetCapacityRequest>,
    ) -> Result<Response<wire::GetCapacityResponse>, Status> {
        let start = self.clock.now();
        let context = CallContext::read(request.metadata())?;
        let result = self.get(request.into_inner(), context).await;
        let scopes = result.as_ref().map_or(0, |answer| answer.response.len());
        let duration = self.clock.now().saturating_since(start);
        self.router.metrics.count_refresh(scopes, duration);
        self.counted(DoormanMethod::GetCapacity, result)
    }

    async fn get_server_capacity(
        &self,
        request: Request<wire::GetServerCapacityRequest>,
    ) -> Result<Response<wire::GetServerCapacityResponse>, Status> {
        let start = self.clock.now();
        let context = CallContext::read(request.metadata())?;
        let result = self.get_server(request.into_inner(), context).await;
        let scopes = result.as_ref().map_or(0, |answer| answer.response.len());
        let duration = self.clock.now().saturating_since(start);
        self.router.metrics.count_refresh(scopes, duration);
        self.counted(DoormanMethod::GetServerCapacity, result)
    }

    async fn release_capacity(
        &self,
        request: Request<wire::ReleaseCapacityRequest>,
    ) -> Result<Response<wire::ReleaseCapacityResponse>, Status> {
        let context = CallContext::read(request.metadata())?;
        let result = self.take_back(request.into_inner(), context).await;
        self.counted(DoormanMethod::ReleaseCapacity, result)
    }
}

/// Returns the checked value of `field`; the error names the field.
fn field<T, E: Into<tollgate_proto::Rule>>(
    field: &str,
    check: Result<T, E>,
) -> Result<T, FieldError> {
    check.map_err(|rule| FieldError::new(field, rule))
}
