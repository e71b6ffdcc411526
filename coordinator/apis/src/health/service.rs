//! Health service whose streams are bounded.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::HealthService;

/// The most open streams of a node.
const WATCHES_MAX: usize = 1024;

/// Health service with a bounded number of streams. A call of `Watch` lasts as long as its connection
/// and needs no credentials.
#[derive(Debug)]
pub struct HealthApi {
    health: HealthService,
    places: Arc<Semaphore>,
}

/// Stream of the health of one service.
#[derive(Debug)]
pub struct HealthWatch {
    watch: <HealthService as Health>::WatchStream,
    /// Its place among the open streams.
    _place: OwnedSemaphorePermit,
}

// === impl HealthApi ===

impl HealthApi {
    /// The service that says what `health` says.
    pub(super) fn new(health: HealthService) -> Self {
        let places = Arc::new(Semaphore::new(WATCHES_MAX));
        Self { health, places }
    }
}

#[tonic::async_trait]
impl Health for HealthApi {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.health.check(request).await
    }

    type WatchStream = HealthWatch;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthWatch>, Status> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        // A gRPC client to which a server says this goes on without watching its health.
        let place = place.map_err(|_| {
            let text =
                format!("{WATCHES_MAX} streams of health are open, and there may be no more");
            Status::unimplemented(text)
        })?;
        let watch = self.health.watch(request).await?.into_inner();
        Ok(Response::new(HealthWatch {
            watch,
            _place: place,
        }))
    }
}

// === impl HealthWatch ===

impl Stream for HealthWatch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.watch).poll_next(cx)
    }
}
