//! `grpc.health.v1.Health`: what load balancers ask, Envoy's health checks among them.
//!
//! Every node can take every call, so the whole server, `""`, and `tollgate.v1.LeaseService` serve as
//! long as anything can be answered or passed on. Who would rather save the hop asks for `master`,
//! which serves where at least one shard has its master, or for `shard/<i>`.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::cluster::ShardId;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::leases::router::Router;

/// The names for which there is an answer as long as this node can answer calls.
const WHOLE: [&str; 2] = ["", "tollgate.v1.LeaseService"];

/// Serves where a shard has its master.
const MASTER: &str = "master";

/// The longest question: the name of a service. Nobody needs a credential to ask.
const CHECK_LEN_MAX: usize = 1024;

/// How soon the end of a term is noticed that nobody tells of.
const LOOK: Duration = Duration::from_millis(250);

/// Says how this node is, as long as it runs.
#[derive(Debug)]
pub struct Health {
    reporter: HealthReporter,
    router: Router,
    /// What has been said last, so that watchers hear of changes only.
    said: BTreeMap<String, bool>,
}

// === impl Health ===

impl Health {
    /// The health of the node of `router`, and the service that tells it.
    pub fn new(router: Router) -> (Self, HealthServer<HealthService>) {
        let reporter = HealthReporter::new();
        let service = HealthService::from_health_reporter(reporter.clone());
        let health = Self {
            reporter,
            router,
            said: BTreeMap::new(),
        };
        let service = HealthServer::new(service).max_decoding_message_size(CHECK_LEN_MAX);
        (health, service)
    }

    /// Goes on until `closing` changes or its sender is gone; from then on nothing serves, while
    /// calls are still answered, so that whoever looks turns elsewhere in time.
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
            self.say(name, serves && !closing).await;
        }
        let leads = shards.clone().any(own);
        self.say(MASTER, leads && !closing).await;
        for shard in shards {
            self.say(&format!("shard/{shard}"), own(shard) && !closing)
                .await;
        }
    }

    async fn say(&mut self, name: &str, serves: bool) {
        if self.said.get(name) == Some(&serves) {
            return;
        }
        self.said.insert(name.to_owned(), serves);
        let status = match serves {
            true => ServingStatus::Serving,
            false => ServingStatus::NotServing,
        };
        self.reporter.set_service_status(name, status).await;
    }
}
