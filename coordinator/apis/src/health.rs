//! `grpc.health.v1.Health`, for load balancers and Envoy's health checks.
//!
//! Every node can take every call, so the whole server, `""`, and `tollgate.v1.LeaseService` serve as
//! long as anything can be answered or forwarded. Clients that want no forwarded calls ask for
//! `master`, which serves where at least one shard has its master, or for `shard/<i>`.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::cluster::ShardId;
use tollgate_leases::router::Router;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

mod service;

pub use self::service::HealthApi;

/// The names for which there is an answer as long as this node can answer calls.
const WHOLE: [&str; 2] = ["", "tollgate.v1.LeaseService"];

/// Serves where a shard has its master.
const MASTER: &str = "master";

/// The longest request: the name of a service. It needs no credentials.
const CHECK_LEN_MAX: usize = 1024;

/// Interval at which the end of a term is looked for: no event announces it.
const LOOK: Duration = Duration::from_millis(250);

/// Reports the health of this node, as long as it runs.
#[derive(Debug)]
pub struct Health {
    reporter: HealthReporter,
    router: Router,
    /// Last reports by service, so that watchers hear of changes only.
    reported: BTreeMap<String, bool>,
}

// === impl Health ===

impl Health {
    /// Returns the health of the node of `router`, and the service that reports it.
    pub fn new(router: Router) -> (Self, HealthServer<HealthApi>) {
        let reporter = HealthReporter::new();
        let service = HealthApi::new(HealthService::from_health_reporter(reporter.clone()));
        let health = Self {
            reporter,
            router,
            reported: BTreeMap::new(),
        };
        let service = HealthServer::new(service).max_decoding_message_size(CHECK_LEN_MAX);
        (health, service)
    }

    /// Goes on until `closing` changes or its sender is gone; from then on nothing serves, while
    /// calls are still answered, so that load balancers turn elsewhere in time.
    pub async fn run(mut self, mut closing: watch::Receiver<()>) {
        loop {
            self.report(false).await;
            tokio::select! {
                _ = closing.changed() => break,
                () = self.router.shards.changed() => {}
                Ok(()) = self.router.masters.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        self.report(true).await;
    }

    async fn report(&mut self, closing: bool) {
        let masters = self.router.masters.borrow().clone();
        let held = self.router.shards.clone();
        let own = |shard| held.get(shard).is_some();
        let shards = ShardId::all(self.router.count);
        let serves = shards
            .clone()
            .any(|shard| own(shard) || masters.of(shard).is_some());
        for name in WHOLE {
            self.set(name, serves && !closing).await;
        }
        let leads = shards.clone().any(own);
        self.set(MASTER, leads && !closing).await;
        for shard in shards {
            self.set(&format!("shard/{shard}"), own(shard) && !closing)
                .await;
        }
    }

    async fn set(&mut self, name: &str, serves: bool) {
        if self.reported.get(name) == Some(&serves) {
            return;
        }
        self.reported.insert(name.to_owned(), serves);
        let status = if serves {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        self.reporter.set_service_status(name, status).await;
    }
}
