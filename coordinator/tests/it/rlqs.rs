//! Proxies with Envoy's rate limit quota service: streams of reports and assignments.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tollgate_core::lease_server::Start;
use tollgate_net::wire::RateLimitQuotaServiceClient;
use tollgate_proto::envoy::service::rate_limit_quota::v3 as wire;
use tollgate_proto::envoy::r#type::v3::TokenBucket;
use tollgate_proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use wire::rate_limit_quota_response::BucketAction;
use wire::rate_limit_quota_response::bucket_action::BucketAction as Kind;
use wire::rate_limit_quota_usage_reports::BucketQuotaUsage;

use crate::harness::Coordinator;

mod dialects;
mod pieces;
mod sharing;
mod streams;

pub(crate) const DOMAINS: &str = "rlqs: {domains: {edge: {scope: 'tenant/{tenant}'}}}";

/// Time after which a message that did not come never will.
const NEVER: Duration = Duration::from_secs(30);

/// A proxy's stream.
pub(crate) struct Proxy {
    reports: mpsc::Sender<wire::RateLimitQuotaUsageReports>,
    answers: Streaming<wire::RateLimitQuotaResponse>,
}

/// Assignment to one bucket.
pub(crate) struct Assigned {
    pub(crate) tenant: String,
    /// Requests per second.
    pub(crate) rate: f64,
    /// Time to live.
    pub(crate) lives: Duration,
}

/// Report on one bucket: tenant, seconds since the last one, requests.
pub(crate) type Usage<'a> = (&'a str, i64, u64);

// === impl Proxy ===

impl Proxy {
    /// Opens a stream over a connection of its own, with `reports` on it.
    async fn start(coordinator: &Coordinator, domain: &str, usages: &[Usage<'_>]) -> Self {
        Self::named(coordinator, None, domain, usages).await
    }

    /// The same of a proxy that calls itself `name`.
    async fn named(
        coordinator: &Coordinator,
        name: Option<&'static str>,
        domain: &str,
        usages: &[Usage<'_>],
    ) -> Self {
        Self::over(connect(coordinator), name, domain, usages)
            .await
            .unwrap()
    }

    pub(crate) async fn over(
        channel: Channel,
        name: Option<&'static str>,
        domain: &str,
        usages: &[Usage<'_>],
    ) -> Result<Self, Status> {
        let (reports, sent) = mpsc::channel(4);
        let first = report(domain, usages);
        reports.send(first).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(sent));
        if let Some(name) = name {
            let name = name.parse().unwrap();
            request.metadata_mut().insert("tollgate-client", name);
        }
        let mut stub = RateLimitQuotaServiceClient::new(channel);
        let answers = stub.stream_rate_limit_quotas(request).await?;
        Ok(Self {
            reports,
            answers: answers.into_inner(),
        })
    }

    pub(crate) async fn report(&self, domain: &str, usages: &[Usage<'_>]) {
        self.reports.send(report(domain, usages)).await.unwrap();
    }

    /// The actions of the next message.
    async fn actions(&mut self) -> Result<Vec<BucketAction>, Status> {
        let message = timeout(NEVER, self.answers.message()).await;
        let message = message.expect("no message")?;
        Ok(message.expect("the stream ended").bucket_action)
    }

    /// The assignments of the next message: tenants, and requests per second.
    pub(crate) async fn rates(&mut self) -> Vec<(String, f64)> {
        let assigned = self.assignments().await.into_iter();
        assigned
            .map(|assigned| (assigned.tenant, assigned.rate))
            .collect()
    }

    /// The assignments of the next message.
    pub(crate) async fn assignments(&mut self) -> Vec<Assigned> {
        let actions = self.actions().await.unwrap().into_iter();
        let assigned = |action: BucketAction| match action.bucket_action {
            Some(Kind::QuotaAssignmentAction(assigned)) => Some(Assigned {
                tenant: action.bucket_id.unwrap().bucket["tenant"].clone(),
                rate: per_second(assigned.rate_limit_strategy.unwrap().strategy.unwrap()),
                lives: assigned
                    .assignment_time_to_live
                    .unwrap()
                    .try_into()
                    .unwrap(),
            }),
            _ => None,
        };
        actions.filter_map(assigned).collect()
    }

    /// Waits for the next assignment of `tenant`, and returns its strategy and seconds to live.
    async fn assigned(&mut self, tenant: &str) -> (Strategy, i64) {
        loop {
            for action in self.actions().await.unwrap() {
                if action.bucket_id.unwrap().bucket["tenant"] != tenant {
                    continue;
                }
                let Some(Kind::QuotaAssignmentAction(assigned)) = action.bucket_action else {
                    panic!("{tenant} was abandoned");
                };
                let lives = assigned.assignment_time_to_live.unwrap();
                assert_eq!(lives.nanos, 0);
                let strategy = assigned.rate_limit_strategy.unwrap().strategy.unwrap();
                return (strategy, lives.seconds);
            }
        }
    }

    /// Waits for the next assignment of `tenant`, and returns its requests per second.
    async fn rate(&mut self, tenant: &str) -> f64 {
        per_second(self.assigned(tenant).await.0)
    }

    /// Waits until `tenant` is assigned a rate as `wanted`.
    pub(crate) async fn until_rate(&mut self, tenant: &str, wanted: impl Fn(f64) -> bool) -> f64 {
        loop {
            let rate = self.rate(tenant).await;
            if wanted(rate) {
                return rate;
            }
        }
    }

    /// Waits for the end, and returns its status.
    async fn end(mut self) -> Status {
        loop {
            if let Err(status) = self.actions().await {
                return status;
            }
        }
    }
}

// === free functions ===

/// Takes assignments until both proxies have `half` for their only tenant. `assigned` is what they have
/// at first; together it is never more than twice as much.
pub(crate) async fn until_halved(proxies: [&mut Proxy; 2], mut assigned: [f64; 2], half: f64) {
    let [one, other] = proxies;
    while assigned != [half; 2] {
        let (rates, place) = tokio::select! {
            biased;
            rates = one.rates() => (rates, 0),
            rates = other.rates() => (rates, 1),
        };
        for (_, rate) in rates {
            assigned[place] = rate;
        }
        assert!(assigned.iter().sum::<f64>() <= 2.0 * half, "{assigned:?}");
    }
}

pub(crate) fn connect(coordinator: &Coordinator) -> Channel {
    let endpoint = Endpoint::try_from(format!("http://{}", coordinator.grpc)).unwrap();
    endpoint.connect_lazy()
}

async fn coordinator(limits: &str) -> Coordinator {
    Coordinator::with(&format!("{DOMAINS}\nlimits:\n{limits}"), Start::Fresh).await
}

fn report(domain: &str, usages: &[Usage<'_>]) -> wire::RateLimitQuotaUsageReports {
    let usage = |(tenant, seconds, requests): &Usage<'_>| BucketQuotaUsage {
        bucket_id: Some(bucket("tenant", tenant)),
        time_elapsed: Duration::from_secs((*seconds).try_into().unwrap())
            .try_into()
            .ok(),
        num_requests_allowed: *requests,
        num_requests_denied: 0,
    };
    wire::RateLimitQuotaUsageReports {
        domain: domain.to_owned(),
        bucket_quota_usages: usages.iter().map(usage).collect(),
    }
}

fn bucket(key: &str, value: &str) -> wire::BucketId {
    wire::BucketId {
        bucket: BTreeMap::from([(key.to_owned(), value.to_owned())]),
    }
}

fn per_second(strategy: Strategy) -> f64 {
    match strategy {
        Strategy::BlanketRule(rule) if rule == BlanketRule::DenyAll as i32 => 0.0,
        Strategy::BlanketRule(_) => f64::INFINITY,
        Strategy::TokenBucket(TokenBucket {
            max_tokens,
            tokens_per_fill,
            fill_interval,
        }) => {
            let interval = fill_interval.unwrap();
            // Envoy divides by whole seconds.
            assert!(max_tokens > 0 && interval.nanos == 0 && interval.seconds >= 1);
            f64::from(tokens_per_fill.unwrap()) / interval.seconds as f64
        }
    }
}
