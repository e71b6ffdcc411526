//! Two tenants of a group that wait in the queues of real Envoys get tokens in step: while one waits, the
//! other gets at most one request of each more, in each queue.
//!
//! The bound is about the order of requests, not about time, and so is the test: the upstream records the
//! order. Its proof is in `docs/design-proxy.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;
use tollgate_tests::conclude;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{self, TENANT_HEADER, UPSTREAM};
use tollgate_tests::http2::Http2;
use tollgate_tests::recording_upstream::{RecordedRequest, RecordingUpstream};

use crate::shape::{send, shaped};
use crate::test_context::{TestContext, run_test};

/// Tokens of a request of each of two tenants.
struct Case {
    tenants: [&'static str; 2],
    costs: [u64; 2],
}

const CASES: [Case; 3] = [
    Case {
        tenants: ["a0", "b0"],
        costs: [1, 1],
    },
    Case {
        tenants: ["a1", "b1"],
        costs: [3, 7],
    },
    Case {
        tenants: ["a2", "b2"],
        costs: [1, 37],
    },
];

/// Tokens that each tenant wants at each Envoy, as a multiple of the bound.
const WANTED: u64 = 20;
/// Rounds of single requests until each Envoy has leases: half of the limit for more than a second, for until
/// then its clients draw.
const ROUNDS: u32 = 30;
const ROUND: Duration = Duration::from_millis(50);

/// Leads of the tenants of a case over each other, in one queue or in all.
#[derive(Default)]
struct Leads {
    /// The greatest over all windows that end now.
    current: [u64; 2],
    greatest: u64,
}

#[test]
fn tenants_that_wait_get_tokens_in_step() {
    let name = "tenants_that_wait_get_tokens_in_step";
    run_test(name, async |test: &TestContext| {
        run(test, &["one"]).await?;
        run(test, &["first", "second"]).await
    });
}

/// Measures all cases with Envoys of these names.
async fn run(test: &TestContext, names: &[&str]) -> Result<()> {
    let upstream = RecordingUpstream::start().await?;
    let coordinator = test.coordinator(&limits()).await?;
    // A tenant's own scope has no limit. It is asked for nothing while its requests wait for the group,
    // so it may have given its lease back when their turn comes.
    let rule = json!({"max_wait_ms": 30_000, "max_waiting": 1000, "safe_capacity": 1_000_000});
    let plugin = shaped(&rule);
    let plugin = with(plugin, "per_route", json!(true));
    let specs = names.iter().map(|name| {
        let filters = vec![filter::tollgate(&plugin)?];
        let mut spec = EnvoySpec::new(name, 1, upstream.address(), filters).upstream_over_http2();
        spec.virtual_hosts = routes();
        Ok(spec.asking(coordinator.grpc()))
    });
    let specs: Vec<EnvoySpec> = specs.collect::<Result<_>>()?;
    let envoys = Envoy::start_all(test.dir(), &specs).await?;
    for case in &CASES {
        let before = upstream.requests().len();
        let waited_from = case.wait_at(&envoys, &upstream).await?;
        let requests = upstream.requests();
        let (_, waited) = requests.split_at(waited_from);
        case.judge(names.len(), &requests[before..], waited)?;
    }
    Ok(())
}

fn limits() -> String {
    let groups = CASES.iter().enumerate().map(|(n, case)| {
        let bound = case.bound();
        // Both Envoys have leases and bursts before anything waits, and all have gone after two seconds.
        let (rate, burst) = (2 * WANTED * bound, 8 * bound);
        format!("  g{n}: {{requests: {{rate: {rate}, burst: {burst}, headroom: 1}}, fair_between: clients}}\n")
    });
    let groups: String = groups.collect();
    let tenants = CASES.iter().enumerate();
    let tenants = tenants.flat_map(|(n, case)| case.tenants.map(|t| format!("{t}: g{n}")));
    let tenants: Vec<_> = tenants.collect();
    let tenants = tenants.join(", ");
    format!("limits: []\ngroups:\n{groups}attach: {{tenants: {{{tenants}}}}}\n")
}

/// Routes that say what a request of each tenant costs, by paths that begin with its name.
fn routes() -> Value {
    let tenants = CASES.iter().flat_map(|case| case.tenants);
    let costs = CASES.iter().flat_map(|case| case.costs);
    let costs = tenants.zip(costs).map(|(tenant, cost)| {
        json!({
            "match": {"prefix": format!("/{tenant}/")},
            "route": {"cluster": UPSTREAM},
            "metadata": {"filter_metadata": {"tollgate": {"cost": cost}}},
        })
    });
    let rest = json!({"match": {"prefix": "/"}, "route": {"cluster": UPSTREAM}});
    let routes: Vec<_> = costs.chain([rest]).collect();
    json!([{"name": "all", "domains": ["*"], "routes": routes}])
}

fn with(mut plugin: Value, key: &str, value: Value) -> Value {
    if let Some(plugin) = plugin.as_object_mut() {
        plugin.insert(key.to_owned(), value);
    }
    plugin
}

// === impl Case ===

impl Case {
    /// Returns the most by which one of the tenants may be ahead in one queue.
    fn bound(&self) -> u64 {
        self.costs.iter().sum()
    }

    /// Returns the number of requests that each tenant sends to each Envoy.
    fn counts(&self) -> [u64; 2] {
        self.costs.map(|cost| WANTED * self.bound() / cost)
    }

    /// Lets requests of both tenants wait at all Envoys, one tenant's behind all of the other's, until all
    /// have gone. Returns how many requests the upstream had when all others waited.
    async fn wait_at(&self, envoys: &[Envoy], upstream: &RecordingUpstream) -> Result<usize> {
        let mut connections = Vec::new();
        for envoy in envoys {
            let (connection, _running) = Http2::open(envoy.address()).await?;
            connections.push(connection);
        }
        for _ in 0..ROUNDS {
            for connection in &connections {
                for tenant in [self.tenants[0], self.tenants[1], "last"] {
                    let path = format!("/{tenant}/first");
                    let answer = connection.get(&path, &[(TENANT_HEADER, tenant)]).await?;
                    ensure!(answer.status == 200, "{tenant} got {}", answer.status);
                }
            }
            sleep(ROUND).await;
        }
        let mut sent = Vec::new();
        for (number, connection) in connections.iter().enumerate() {
            for (tenant, count) in self.tenants.into_iter().zip(self.counts()) {
                for _ in 0..count {
                    sent.push(send(connection, tenant, format!("/{tenant}/{number}")).await);
                }
            }
        }
        // An Envoy takes the requests of a connection in order, so all have begun to wait or gone.
        for connection in &connections {
            let answer = connection.get("/last", &[(TENANT_HEADER, "last")]).await?;
            ensure!(answer.status == 200, "the last one got {}", answer.status);
        }
        let waited_from = upstream.requests().len();
        for sent in sent {
            let status = sent.await??;
            ensure!(status == 200, "a request got {status}");
        }
        Ok(waited_from)
    }

    /// Returns the number of the Envoy that a request of this case waited at.
    fn queue(&self, request: &RecordedRequest) -> Option<usize> {
        let (tenant, queue) = request.path[1..].split_once('/')?;
        let is_own = self.tenants.contains(&tenant);
        is_own.then(|| queue.parse().ok())?
    }

    /// Checks the leads of the requests that `waited`; `all` are those of the case.
    fn judge(
        &self,
        queues: usize,
        all: &[RecordedRequest],
        waited: &[RecordedRequest],
    ) -> Result<()> {
        let mut left = vec![self.counts(); queues];
        let skipped = all.len() - waited.len();
        for request in &all[..skipped] {
            if let Some(queue) = self.queue(request) {
                left[queue][self.index(request)?] -= 1;
            }
        }
        let mut leads: BTreeMap<usize, Leads> = BTreeMap::new();
        let mut fleet = Leads::default();
        let mut served = [0; 2];
        for request in waited {
            let queue = self.queue(request).context("a request that waited")?;
            let tenant = self.index(request)?;
            let (other, cost) = (1 - tenant, self.costs[tenant]);
            let waits = left[queue][other] > 0;
            leads.entry(queue).or_default().count(tenant, cost, waits);
            let waits = left.iter().all(|left| left[other] > 0);
            fleet.count(tenant, cost, waits);
            left[queue][tenant] -= 1;
            served[tenant] += cost;
        }
        let [a, b] = self.costs;
        let most = self.bound() * queues as u64;
        let each: Vec<u64> = leads.values().map(|leads| leads.greatest).collect();
        eprintln!(
            "costs {a} and {b}, {queues} Envoys: gap {} of at most {most}, in each queue {each:?} of {}; served {served:?}",
            fleet.greatest,
            self.bound(),
        );
        ensure!(
            left.iter().flatten().all(|left| *left == 0),
            "all have gone"
        );
        // Tokens come while the requests are being sent.
        conclude!(
            served.iter().all(|served| *served >= 2 * self.bound()),
            "too few waited: {served:?}"
        );
        ensure!(
            each.iter().all(|gap| *gap <= self.bound()),
            "in each queue {each:?}"
        );
        ensure!(fleet.greatest <= most, "{} of {most}", fleet.greatest);
        Ok(())
    }

    fn index(&self, request: &RecordedRequest) -> Result<usize> {
        let index = self
            .tenants
            .iter()
            .position(|tenant| *tenant == request.tenant);
        index.with_context(|| format!("{request:?} is of another case"))
    }
}

// === impl Leads ===

impl Leads {
    /// Counts a request that went on, and whether the other tenant `waits` then. A window goes on while
    /// the one that gets less waits.
    fn count(&mut self, tenant: usize, cost: u64, waits: bool) {
        let other = 1 - tenant;
        self.current[other] = self.current[other].saturating_sub(cost);
        self.current[tenant] = if waits {
            self.current[tenant] + cost
        } else {
            0
        };
        self.greatest = self.greatest.max(self.current[tenant]);
    }
}
