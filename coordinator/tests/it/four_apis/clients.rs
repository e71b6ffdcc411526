//! Model clients of the lease service and of the rate limit quota service.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::request::Release;
use tollgate_proto::response::Refreshed;
use tollgate_proto::v1;
use tonic::transport::Channel;

use crate::harness::{request, run, unit};
use crate::rlqs;

/// An Envoy with our filter.
pub(crate) struct Envoy {
    pub(crate) id: &'static str,
    scope: String,
    sequence: u64,
    has: f64,
    stub: LeaseServiceClient<Channel>,
}

/// An Envoy with its own quota filter and one bucket.
pub(crate) struct Quotas {
    tenant: String,
    proxy: rlqs::Proxy,
    reported: Instant,
}

// === impl Envoy ===

impl Envoy {
    pub(crate) fn new(id: &'static str, tenant: &str, channel: Channel) -> Self {
        Self {
            id,
            scope: format!("tenant/{tenant}"),
            sequence: 0,
            has: 0.0,
            stub: LeaseServiceClient::new(channel),
        }
    }

    /// Returns the rate of its lease, and for how long it lasts.
    pub(crate) async fn gets(&mut self, wants: f64) -> (f64, Duration) {
        self.sequence += 1;
        let asks = (self.scope.as_str(), self.sequence, self.has, wants);
        let answer = self.stub.refresh(request(self.id, &[asks])).await;
        let answer = Refreshed::try_from(answer.unwrap().into_inner()).unwrap();
        let answer = answer.scopes.into_iter().next().unwrap().unwrap();
        let lease = unit(&answer).answer.lease.unwrap();
        self.has = lease.capacity.as_f64();
        (self.has, lease.duration)
    }

    pub(crate) async fn release(&mut self) {
        self.sequence += 1;
        self.has = 0.0;
        let resource = ResourceId::new(&self.scope, Unit::Requests).unwrap();
        let release = Release {
            client: run(self.id),
            resources: vec![(resource, self.sequence)],
        };
        let release = v1::ReleaseRequest::from(&release);
        self.stub.release(release).await.unwrap();
    }
}

// === impl Quotas ===

impl Quotas {
    pub(crate) async fn open(tenant: &str, channel: Channel) -> Self {
        Self {
            tenant: tenant.to_owned(),
            proxy: stream(channel, (tenant, 0, 1)).await,
            reported: Instant::now(),
        }
    }

    /// Ends its stream, and opens another.
    pub(crate) async fn reopen(&mut self, channel: Channel) {
        self.proxy = stream(channel, (&self.tenant, 5, 1)).await;
    }

    /// Reports requests at `rate` since the last report.
    pub(crate) async fn report(&mut self, rate: f64) {
        let requests = rate * self.reported.elapsed().as_secs_f64();
        self.reported = Instant::now();
        let usage = (&*self.tenant, 5, requests as u64);
        self.proxy.report("edge", &[usage]).await;
    }

    /// Waits for the next assignment.
    pub(crate) async fn assigned(&mut self) -> rlqs::Assigned {
        loop {
            if let Some(assigned) = self.proxy.assignments().await.pop() {
                return assigned;
            }
        }
    }
}

// === free functions ===

async fn stream(channel: Channel, usage: rlqs::Usage<'_>) -> rlqs::Proxy {
    let proxy = rlqs::Proxy::over(channel, Some("quotas"), "edge", &[usage]).await;
    proxy.unwrap()
}
