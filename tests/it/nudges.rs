//! Leases that follow demand because the coordinator names them, long before their refresh.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tollgate_tests::conclude;
use tollgate_tests::coordinator::{Coordinator, ScopeLeases};
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::reactions::Reactions;

use crate::test_context::{TestContext, run_test, s};

/// Without nudges everything here takes as long as the refresh interval.
const LIMITS: &str = "limits:
  - {match: tenant/new-*, requests: {rate: 100, burst: 10, refresh: 20s, lease: 60s}}
  - {match: '*', requests: {rate: 1000, burst: 100, refresh: 20s, lease: 60s}}
";

/// The longest time of a step; a fifth of what it would take without nudges.
const STEP_MAX: Duration = Duration::from_secs(4);

/// Pause between two looks at the lease table.
const LOOK: Duration = Duration::from_millis(4);

const NAMES: [&str; 2] = ["east", "west"];

/// Rates of an Envoy that wants all, and of one that wants little.
const GREEDY: f64 = 1500.0;
const MODEST: f64 = 50.0;

/// Rate at which an Envoy wants all of a small tenant.
const GREEDY_OF_SMALL: f64 = 300.0;

/// Two Envoys, and the load of several tenants on both.
struct Fleet {
    coordinator: Coordinator,
    envoys: [Envoy; 2],
    load: Load,
}

/// Times of all kinds of shifts.
struct Shifts {
    newcomers: Reactions,
    grows: Reactions,
    falls: Reactions,
    ends: Reactions,
}

// === impl Fleet ===

impl Fleet {
    /// Starts the Envoys with so many tenants, of which nothing is wanted yet.
    async fn start(test: &TestContext, tenants: usize) -> Result<Self> {
        let coordinator = test.coordinator(LIMITS).await?;
        let plugin = by_tenant(&json!({}));
        let envoys = test.envoys(NAMES, &coordinator, &plugin).await?;
        let flows = (0..tenants).flat_map(|tenant| {
            let flow = |envoy: &Envoy| Flow::new(envoy.address(), &name(tenant), 0.0);
            envoys.each_ref().map(flow)
        });
        Ok(Self {
            load: Load::start(flows),
            coordinator,
            envoys,
        })
    }

    /// Sets how much is wanted of a tenant at an Envoy.
    fn want(&self, tenant: usize, envoy: usize, rate: f64) {
        self.load.set_rate(2 * tenant + envoy, rate);
    }

    /// The time from now until the leases of a tenant are as `expected`.
    async fn until(
        &self,
        tenant: usize,
        expected: impl Fn(&ScopeLeases) -> bool,
    ) -> Result<Range<Instant>> {
        let scope = format!("tenant/{}", name(tenant));
        let from = Instant::now();
        loop {
            let leases = self.coordinator.leases(&scope).await?;
            let now = Instant::now();
            if leases.as_ref().is_some_and(&expected) {
                return Ok(from..now);
            }
            conclude!(
                now < from + STEP_MAX,
                "not within {STEP_MAX:?}: {scope}, {leases:?}"
            );
            sleep(LOOK).await;
        }
    }

    /// The same until an Envoy has more than `rate`.
    async fn until_has(&self, tenant: usize, envoy: usize, rate: f64) -> Result<Range<Instant>> {
        self.until(tenant, |leases| leases.has(NAMES[envoy]) > rate)
            .await
    }

    /// Measures one shift of each kind from one Envoy to the other. `small` is a tenant that is new.
    async fn shift(&self, from: usize, small: usize, shifts: &mut Shifts) -> Result<()> {
        let to = 1 - from;
        self.want(0, from, GREEDY);
        self.want(0, to, MODEST);
        self.want(small, from, GREEDY_OF_SMALL);
        self.until_has(0, from, 850.0).await?;
        self.until_has(small, from, 99.0).await?;
        sleep(s(1.5)).await;
        self.want(small, to, GREEDY_OF_SMALL);
        shifts.newcomers.add(self.until_has(small, to, 0.0).await?);
        self.want(small, from, 0.0);
        self.want(small, to, 0.0);

        self.want(0, to, GREEDY);
        shifts.grows.add(self.until_has(0, to, 450.0).await?);
        sleep(s(1.0)).await;
        self.want(0, from, MODEST);
        shifts.falls.add(self.until_has(0, to, 850.0).await?);
        sleep(s(1.0)).await;
        self.want(0, from, GREEDY);
        self.until_has(0, from, 450.0).await?;
        sleep(s(1.0)).await;
        self.want(0, from, 0.0);
        // Late requests look like a little demand, which may wait for the refresh.
        shifts.ends.add(self.until_has(0, to, 950.0).await?);
        sleep(s(1.0)).await;
        Ok(())
    }
}

// === impl Shifts ===

impl Shifts {
    /// The limits are the aims, and what a machine that tests share may take longer.
    const fn new() -> Self {
        Self {
            newcomers: Reactions::new(
                "first lease of a newcomer to a fully lent resource",
                Duration::from_millis(250),
            ),
            grows: Reactions::new(
                "right shares after demand has grown",
                Duration::from_millis(300),
            ),
            falls: Reactions::new("after it has fallen to a little", Duration::from_secs(1)),
            ends: Reactions::new("after it has ended", Duration::from_secs(1)),
        }
    }

    fn conclude(&self) {
        for reactions in [&self.newcomers, &self.grows, &self.falls, &self.ends] {
            reactions.conclude();
        }
    }
}

// === free functions ===

/// Name of a tenant: the first one is large, the others are small.
fn name(tenant: usize) -> String {
    match tenant {
        0 => "acme".to_owned(),
        _ => format!("new-{tenant}"),
    }
}

/// Shifts to measure: more with `TOLLGATE_SHIFTS`.
fn count() -> Result<usize> {
    match std::env::var("TOLLGATE_SHIFTS") {
        Ok(count) => count.parse().context("TOLLGATE_SHIFTS"),
        Err(_) => Ok(3),
    }
}

#[test]
fn shares_follow_demand_by_nudges() {
    run_test("shares_follow_demand_by_nudges", follow);
}

async fn follow(test: &TestContext) -> Result<()> {
    let count = count()?;
    let fleet = Fleet::start(test, 1 + count).await?;
    let mut shifts = Shifts::new();
    fleet.want(0, 0, GREEDY);
    fleet.until_has(0, 0, 990.0).await?;
    sleep(s(1.0)).await;
    fleet.want(0, 1, GREEDY);
    shifts.newcomers.add(fleet.until_has(0, 1, 0.0).await?);
    fleet.until_has(0, 1, 450.0).await?;
    for shift in 0..count {
        fleet.shift(shift % 2, 1 + shift, &mut shifts).await?;
    }
    shifts.conclude();
    let mut named = 0;
    for envoy in &fleet.envoys {
        named += envoy.stat("wasmcustom.tollgate.nudges").await?;
        // A process whose demand has ended has closed its stream.
        assert!(envoy.stat("wasmcustom.tollgate.watches").await? > 0);
        assert_eq!(envoy.stat("wasmcustom.tollgate.nudge_errors").await?, 0);
    }
    assert!(named > 0, "the Envoys were not nudged");
    let nudges = fleet.coordinator.metric("tollgate_nudges_total").await?;
    assert!(nudges > 0.0);
    fleet.load.stop().await?;
    Ok(())
}
