use tollgate_config::Config;
use tollgate_core::lease::{ClientId, ClientRun, LeaseRequest, Origin, Unit};
use tollgate_core::units::Capacity;
use tollgate_proto::request::ScopeRefresh;

use super::*;
use crate::driver::{Driver, DriverHandle, DriverSettings};
use crate::shards::ShardSupervisor;

/// Tenants and namespaces with limits of their own, in groups of either kind, and in none.
const CONFIG: &str = "
limits: [{match: 'tenant/*', requests: {rate: 100}}]
groups:
  gold: {requests: {rate: 1000}}
  silver: {requests: {rate: 500}, concurrency: {max: 9}}
  pool: {requests: {rate: 500}, fair_between: clients}
  none: {}
attach:
  tenants: {t0: gold, t1: gold, t2: {group: silver, weight: 3}, t3: pool, t4: none, t5: silver}
  namespaces: {t0/a: silver, t1/a: pool, t3/a: gold, t9/a: none}
";

fn scopes() -> Vec<Arc<str>> {
    let tenants = (0..10).map(|i| format!("tenant/t{i}"));
    let namespaces = (0..10).flat_map(|i| ["a", "b"].map(|name| format!("namespace/t{i}/{name}")));
    let groups = ["gold", "silver", "pool", "none"].map(|name| format!("group/{name}"));
    let others = ["route/x", "doorman/x", "tenant/t0/a", "tenant/", ""].map(str::to_owned);
    let all = tenants.chain(namespaces).chain(groups).chain(others);
    all.map(Arc::from).collect()
}

/// Settings of the drivers of `count` shards.
fn settings(count: NonZeroU16) -> DriverSettings {
    DriverSettings {
        shards: Some(count),
        ..DriverSettings::alone(Config::parse(CONFIG).unwrap())
    }
}

/// A router of `count` shards, which has none itself.
fn router(settings: DriverSettings, count: NonZeroU16) -> Router {
    let (catalog, metrics) = (settings.catalog.clone(), settings.metrics.clone());
    let (_, shards) = ShardSupervisor::new(settings, None);
    let (_, masters) = watch::channel(Arc::new(Masters::none(count)));
    let peers = Channels::new(Duration::from_secs(1), None);
    Router {
        me: None,
        shards,
        masters,
        catalog,
        count,
        forwarder: Forwarder::new(peers.clone()),
        peers,
        ancestors: AncestorPath::new("a"),
        nudges: Nudges::default(),
        metrics,
    }
}

/// The lease table of `shard`.
fn lease_table(settings: &DriverSettings, shard: ShardId) -> DriverHandle {
    let origin = Origin {
        shard: Some(shard),
        epoch: Epoch(1),
    };
    let (driver, handle) = Driver::new(settings, origin);
    tokio::spawn(driver.run());
    handle
}

/// A call for each of `scopes`.
fn call(scopes: Vec<Arc<str>>) -> Refresh {
    let ask = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(1));
    let asks = |scope| ScopeRefresh {
        scope,
        asks: vec![(Unit::Requests, ask.clone())],
    };
    Refresh {
        client: ClientRun::only(ClientId::new("envoy/x").unwrap()),
        scopes: scopes.into_iter().map(asks).collect(),
    }
}

/// A scope routed to the wrong shard would always be refused, and one that two drivers take for
/// theirs would have its capacity twice.
#[tokio::test]
async fn of_all_drivers_only_the_one_that_is_asked_takes_a_scope_for_its_own() {
    for count in [1, 2, 3, 5, 16, 64].map(|count| NonZeroU16::new(count).unwrap()) {
        let settings = settings(count);
        let router = router(settings.clone(), count);
        let parts = router.split(scopes(), |scope| scope);
        let homes: Vec<(ShardId, Vec<Arc<str>>)> = parts
            .into_iter()
            .map(|(shard, part)| (shard, part.entries))
            .collect();
        for shard in ShardId::all(count) {
            let lease_table = lease_table(&settings, shard);
            for (home, scopes) in &homes {
                for answer in lease_table.refresh(call(scopes.clone())).await.unwrap() {
                    let taken = answer.outcome.is_ok();
                    let scope = &answer.scope;
                    assert_eq!(taken, *home == shard, "{scope:?} at {shard} of {count}");
                }
            }
        }
    }
}

#[test]
fn members_that_share_a_pool_are_in_one_shard_and_others_are_spread() {
    let config = Config::parse(CONFIG).unwrap();
    let catalog = Catalog::new(config.catalog);
    let many = NonZeroU16::new(64).unwrap();
    let shard = |scope: &str| shard_of(&catalog.home(scope), many);
    for member in ["tenant/t0", "tenant/t1", "namespace/t3/a"] {
        assert_eq!(shard(member), shard("group/gold"), "{member}");
    }
    let shards: std::collections::BTreeSet<_> =
        (10..200).map(|i| shard(&format!("tenant/t{i}"))).collect();
    assert!(shards.len() > 50, "{}", shards.len());
}
