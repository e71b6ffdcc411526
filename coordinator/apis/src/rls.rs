//! API for Envoy's `ratelimit` filter and others that speak its protocol:
//! `envoy.service.ratelimit.v3.RateLimitService`, on the same port and the same leases.
//!
//! The obvious way is a counter in a store, which every decision changes. Here the node is a client of
//! the cluster's leases, as an Envoy with our filter is: it answers from buckets in its memory, and the
//! leases keep the sum of all nodes and Envoys within the capacity. So a decision costs no network
//! call, and more nodes answer more of them.
//!
//! `ask` looks a request's descriptors up in the configuration, `limiter` decides on each, and
//! `answer` puts the decisions into a response. The first and the last are pure.

use std::sync::Arc;

use tokio::sync::watch;
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::{Request, Response, Status};

use self::ask::Ask;
use self::limiters::Limiters;
pub use self::metrics::RlsMetrics;
use tollgate_config::Config;
use tollgate_leases::router::Router;
use tollgate_net::clock::Clock;
use tollgate_net::wire::{RateLimitService, RateLimitServiceServer};

use self::metrics::RlsResult;

mod answer;
mod ask;
mod current_limit;
mod headers;
mod limiter;
mod limiters;
mod metadata;
mod metrics;
mod own_limits;
mod transport;
mod verdict;

/// The largest request, in bytes; it bounds the keys and values of descriptors.
const REQUEST_LEN_MAX: usize = 64 << 10;

/// Envoy's rate limit service, which answers from leases of the cluster.
#[derive(Debug)]
pub struct Service {
    clock: Clock,
    metrics: RlsMetrics,
    config: watch::Receiver<Arc<Config>>,
    limiters: Limiters,
}

// === impl Service ===

impl Service {
    /// The service that leases through `router`, under the newest `config`.
    pub fn new(
        router: Router,
        clock: Clock,
        metrics: RlsMetrics,
        config: watch::Receiver<Arc<Config>>,
    ) -> RateLimitServiceServer<Self> {
        let service = Self {
            clock,
            metrics,
            config,
            limiters: Limiters::new(router, clock),
        };
        RateLimitServiceServer::new(service).max_decoding_message_size(REQUEST_LEN_MAX)
    }

    async fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let domains = Arc::clone(&self.config.borrow().rls);
        let ask = Ask::new(&domains, request);
        let ask = ask.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let limiter = self.limiters.of(&domains);
        // Never a response of code UNKNOWN, which Envoy takes for leave to go on.
        let limiter = limiter.map_err(|error| Status::unavailable(error.to_string()))?;
        let verdicts = limiter.decide(&ask).await;
        self.metrics.count_descriptors(&ask, &verdicts);
        Ok(answer::response(request, &ask, &verdicts))
    }
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let start = self.clock.now();
        let answer = self.answer(request.get_ref()).await;
        let duration = self.clock.now().saturating_since(start);
        self.metrics.count(RlsResult::of(&answer), duration);
        if let Err(status) = &answer {
            tracing::debug!(%status, "rls: request refused");
        }
        answer.map(Response::new)
    }
}
