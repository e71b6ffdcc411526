//! API for proxies with Envoy's rate limit quota service (RLQS), on the same port and the same lease
//! tables.
//!
//! A proxy reports on a stream how many requests each of its buckets had, and is assigned token
//! buckets for them. Each stream has a task with a state (`stream`) that decides. The
//! task carries: reports from the proxy, requests for leases to the router, and assignments to the
//! proxy. A bucket stands for a scope by the template of its domain; the stream is a client of the
//! leases of these scopes like any other.
//!
//! Served are Envoy's filter `rate_limit_quota` and gRPC's xDS servers (gRFC A77). They differ in
//! when they report, and in what they forget; see `bucket` and `assignment`.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio_stream::Stream;
use tollgate_proto::envoy::service::rate_limit_quota::v3 as wire;
use tonic::{Request, Response, Status, Streaming};

use self::memory::BucketMemory;
pub use self::metrics::RlqsMetrics;
use tollgate_config::Config;
use tollgate_leases::router::Router;
use tollgate_net::clock::Clock;
use tollgate_net::connections::ConnectionEnd;
use tollgate_net::wire::{RateLimitQuotaService, RateLimitQuotaServiceServer};

use self::metrics::StreamEnd;
use self::sessions::Sessions;
use self::task::{StreamPeer, StreamTask, first_report};
use super::outbound::Outbound;

mod action;
mod assignment;
mod bucket;
mod bucket_name;
mod memory;
mod messages;
mod metrics;
mod scope_lease;
mod sessions;
mod split;
mod stream;
mod task;

/// The most open streams of a node.
const STREAMS_MAX: usize = 1024;

/// The largest message of reports, in bytes. A proxy names all its buckets in each.
const REPORT_LEN_MAX: usize = 4 << 20;

/// Rate limit quota service, which assigns parts of the cluster's leases.
#[derive(Clone, Debug)]
pub struct Service {
    router: Router,
    clock: Clock,
    metrics: RlqsMetrics,
    config: watch::Receiver<Arc<Config>>,
    sessions: Sessions,
    memory: BucketMemory,
    places: Arc<Semaphore>,
}

// === impl Service ===

impl Service {
    /// The service that gets its leases through `router`, under the newest `config`.
    pub fn new(
        router: Router,
        clock: Clock,
        metrics: RlqsMetrics,
        config: watch::Receiver<Arc<Config>>,
    ) -> RateLimitQuotaServiceServer<Self> {
        let service = Self {
            router,
            clock,
            metrics,
            config,
            sessions: Sessions::default(),
            memory: BucketMemory::default(),
            places: Arc::new(Semaphore::new(STREAMS_MAX)),
        };
        RateLimitQuotaServiceServer::new(service).max_decoding_message_size(REPORT_LEN_MAX)
    }
}

#[tonic::async_trait]
impl RateLimitQuotaService for Service {
    type StreamRateLimitQuotasStream =
        Pin<Box<dyn Stream<Item = Result<wire::RateLimitQuotaResponse, Status>> + Send>>;

    async fn stream_rate_limit_quotas(
        &self,
        request: Request<Streaming<wire::RateLimitQuotaUsageReports>>,
    ) -> Result<Response<Self::StreamRateLimitQuotasStream>, Status> {
        let peer = StreamPeer::read(&request)
            .inspect_err(|_| self.metrics.count_end(StreamEnd::Invalid))?;
        let connection = request.extensions().get::<ConnectionEnd>().cloned();
        let mut reports = request.into_inner();
        // A stream without a report takes no place: its client owes its first message like any
        // other client of a call, and for as long.
        let first = first_report(&mut reports, connection.as_ref()).await;
        let first = first.map_err(|(reason, status)| {
            if let Some(reason) = reason {
                self.metrics.count_end(reason);
            }
            status
        })?;
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| {
            self.metrics.count_end(StreamEnd::TooMany);
            let text = format!("{STREAMS_MAX} streams are open, and there may be no more");
            Status::resource_exhausted(text)
        })?;
        if let Some(connection) = &connection {
            connection.stream_begins();
        }
        let (outbound, messages) = Outbound::new();
        let task = StreamTask::new(self.clone(), peer, connection, outbound);
        tokio::spawn(async move {
            task.run(first, reports).await;
            drop(place);
        });
        Ok(Response::new(Box::pin(messages)))
    }
}
