use std::num::NonZeroU16;

use tokio::sync::mpsc;
use tollgate_cluster::election::{ElectionEvent, Term};
use tollgate_config::Config;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ClientRun, Epoch, LeaseRequest, Unit};
use tollgate_core::units::Capacity;
use tollgate_leases::DriverSettings;
use tollgate_leases::shards::ShardSupervisor;
use tollgate_proto::request::{Refresh, ScopeRefresh};

use super::*;

/// A node whose elections the test makes.
struct Node {
    clock: Clock,
    shards: Shards,
    elections: mpsc::Sender<ElectionEvent>,
    history: History,
}

// === impl Node ===

impl Node {
    async fn start() -> Self {
        let limits = "limits: [{match: tenant/acme, requests: {rate: 100, headroom: 0}}]";
        let settings = DriverSettings {
            shards: NonZeroU16::new(1),
            ..DriverSettings::alone(Config::parse(limits).unwrap())
        };
        let clock = settings.clock;
        let (supervisor, shards) = ShardSupervisor::new(settings, None);
        let (elections, events) = mpsc::channel(1);
        tokio::spawn(supervisor.run(events));
        let history = History::default();
        tokio::spawn(history.clone().record(shards.clone(), clock));
        let mut node = Self {
            clock,
            shards,
            elections,
            history,
        };
        node.elect(1).await;
        node
    }

    async fn elect(&mut self, epoch: u64) {
        let elected = ElectionEvent::Elected {
            shard: ShardId(0),
            term: Term::for_ever(Epoch(epoch)),
            snapshot: None,
            vacant_for: None,
        };
        self.elections.send(elected).await.unwrap();
        self.shards.wait_for(1).await;
    }

    /// Lets each of `clients` want so much.
    async fn want(&self, sequence: u64, clients: &[(&str, u64)]) {
        let mastership = self.shards.get(ShardId(0)).unwrap();
        for (client, wants) in clients {
            let wants = Capacity::from_whole(*wants);
            let ask = LeaseRequest::new(sequence, Capacity::ZERO, wants);
            let refresh = Refresh {
                client: ClientRun::only(ClientId::new(client).unwrap()),
                scopes: vec![ScopeRefresh {
                    scope: "tenant/acme".into(),
                    asks: vec![(Unit::Requests, ask)],
                }],
            };
            mastership.refresh(refresh).await.unwrap();
        }
    }

    fn acme(&self) -> ScopeHistory {
        let scope = "tenant/acme".to_owned();
        let selection = WindowSelection::Scope(scope.clone());
        let window = self.history.window(self.clock.now(), &selection);
        ScopeHistory::new(scope, window, Vec::new())
    }

    fn overview(&self) -> HistoryOverview {
        let selection = WindowSelection::Busiest(9, None);
        let window = self.history.window(self.clock.now(), &selection);
        HistoryOverview::new(window, Vec::new())
    }
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The last `count` values.
fn last(values: &Values, count: usize) -> &[Option<f32>] {
    assert_eq!(values.len(), STEPS);
    &values[STEPS - count..]
}

#[tokio::test(start_paused = true)]
async fn a_node_knows_what_its_clients_had_in_the_last_minutes() {
    let node = Node::start().await;
    node.want(1, &[("x", 30), ("y", 90)]).await;
    sleep(5500).await;
    let acme = node.acme();
    assert_eq!((acme.step_ms, acme.newest_age_ms / 1000), (5000, 0));
    let requests = &acme.units["requests"];
    assert_eq!(last(&requests.sum_wants, 2), [None, Some(120.0)]);
    assert_eq!(last(&requests.at_most, 2), [None, Some(100.0)]);
    assert_eq!(last(&requests.sum_has, 1), [Some(100.0)]);
    assert_eq!(last(&requests.waiting_count, 1), [Some(1.0)]);
    let clients = requests.clients.iter();
    let clients: Vec<_> = clients
        .map(|client| (client.client.as_str(), last(&client.has, 1)[0].unwrap()))
        .collect();
    assert_eq!(clients, [("y", 70.0), ("x", 30.0)]);
    for sequence in 2..7 {
        node.want(sequence, &[("x", 30), ("y", 90)]).await;
        sleep(1000).await;
    }
    let overview = node.overview();
    let sums = &overview.units["requests"];
    assert_eq!(last(&sums.capacity, 3), [None, Some(100.0), Some(100.0)]);
    assert_eq!(overview.units.len(), 1, "only units in use");
    let busiest = &overview.resources[0];
    assert_eq!(busiest.scope, "tenant/acme");
    assert_eq!(last(&busiest.sum_has, 3), [None, Some(100.0), Some(100.0)]);
    // The leases expire; sums fall to zero, and nobody forgets what was.
    sleep(20_000).await;
    let sums = &node.overview().units["requests"];
    assert_eq!(last(&sums.sum_has, 1), [Some(0.0)]);
    let requests = &node.acme().units["requests"];
    assert_eq!(last(&requests.sum_has, 6)[0], Some(100.0));
    assert_eq!(last(&requests.sum_has, 1), [Some(0.0)]);
}

#[tokio::test(start_paused = true)]
async fn a_time_without_mastership_is_a_gap() {
    let mut node = Node::start().await;
    node.want(1, &[("x", 30)]).await;
    sleep(5500).await;
    let lost = ElectionEvent::Lost { shard: ShardId(0) };
    node.elections.send(lost).await.unwrap();
    sleep(10_000).await;
    node.elect(2).await;
    sleep(5000).await;
    let overview = node.overview();
    let want = [None, Some(30.0), None, None];
    let values = last(&overview.units["requests"].sum_has, 5);
    assert_eq!(values[..4], want);
    assert!(values[4].is_some(), "master again: {values:?}");
    let values = last(&overview.resources[0].sum_has, 5);
    assert_eq!(values[..4], want);
}
