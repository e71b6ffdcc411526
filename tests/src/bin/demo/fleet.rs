//! Processes and load of the demo, and snapshots of them.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter;
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::Record;
use tollgate_tests::upstream::Upstream;

/// The Envoys, by node id.
pub(crate) const ENVOYS: [&str; 2] = ["east", "west"];

/// The tenants. The load changes halfway through the demo.
const TENANTS: [Tenant; 3] = [
    // Stays under its capacity, unevenly: never refused.
    Tenant {
        name: "acme",
        capacity: 400.0,
        before: [180.0, 60.0],
        after: [180.0, 60.0],
    },
    // Wants three times its capacity, mostly in the east: gets exactly its capacity.
    Tenant {
        name: "bolt",
        capacity: 300.0,
        before: [700.0, 200.0],
        after: [700.0, 200.0],
    },
    // Moves from east to west halfway: its lease moves with it.
    Tenant {
        name: "coda",
        capacity: 200.0,
        before: [350.0, 50.0],
        after: [50.0, 350.0],
    },
];

/// The window of time that a snapshot sums up.
const WINDOW: Duration = Duration::from_secs(1);

/// A tenant with its capacity and load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    pub(crate) name: &'static str,
    /// Requests per second, for both Envoys together.
    pub(crate) capacity: f64,
    /// Load on each Envoy in the first half, per second.
    before: [f64; 2],
    /// Load on each Envoy in the second half, per second.
    after: [f64; 2],
}

/// The running processes and load.
pub(crate) struct DemoFleet {
    load: Load,
    envoys: Vec<Envoy>,
    coordinator: Coordinator,
    _upstream: Upstream,
    move_at: Duration,
}

/// State of the demo at one moment.
#[derive(Clone, Debug)]
pub(crate) struct DemoSnapshot {
    pub(crate) at: Duration,
    /// Event to show with the table, in words.
    pub(crate) note: &'static str,
    pub(crate) rows: Vec<TenantRow>,
}

/// State of one tenant; rates are per second, over the last second.
#[derive(Clone, Debug)]
pub(crate) struct TenantRow {
    pub(crate) tenant: Tenant,
    pub(crate) wanted: f64,
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
    /// Requests without an answer yet.
    pub(crate) waiting: u64,
    /// Lease of each Envoy.
    pub(crate) leases: Vec<f64>,
}

// === impl DemoFleet ===

impl DemoFleet {
    /// Starts all processes, then the load.
    pub(crate) async fn start(dir: &Path, length: Duration) -> Result<Self> {
        let upstream = Upstream::start().await?;
        let coordinator = Coordinator::start(dir, &limits()).await?;
        let plugin = filter::by_tenant(&json!({}));
        let filters = vec![filter::tollgate(&plugin)?];
        let spec = |name| EnvoySpec::new(name, 2, upstream.address(), filters.clone());
        let specs = ENVOYS.map(|name| spec(name).asking(coordinator.grpc()));
        let envoys = Envoy::start_all(dir, &specs).await?;
        let load = Load::start(TENANTS.iter().flat_map(|tenant| {
            let rates = envoys.iter().zip(tenant.before);
            rates.map(|(envoy, rate)| Flow::new(envoy.address(), tenant.name, rate))
        }));
        Ok(Self {
            load,
            envoys,
            coordinator,
            _upstream: upstream,
            move_at: length / 2,
        })
    }

    pub(crate) fn tenants(&self) -> &'static [Tenant] {
        &TENANTS
    }

    /// Lets the load run until `at`; the demand moves halfway.
    pub(crate) async fn run_until(&self, at: Duration) {
        if self.load.elapsed() < self.move_at && self.move_at <= at {
            self.load.run_until(self.move_at).await;
            let rates = TENANTS.iter().flat_map(|tenant| tenant.after);
            for (flow, rate) in rates.enumerate() {
                self.load.set_rate(flow, rate);
            }
        }
        self.load.run_until(at).await;
    }

    /// Takes a snapshot.
    pub(crate) async fn snapshot(&self) -> Result<DemoSnapshot> {
        let at = self.load.elapsed();
        let mut rows = Vec::new();
        for (place, tenant) in TENANTS.iter().enumerate() {
            let leases = self
                .coordinator
                .leases(&format!("tenant/{}", tenant.name))
                .await?;
            let has = |envoy: &&str| leases.as_ref().map_or(0.0, |leases| leases.has(envoy));
            let record = sum(&self.records(place));
            let tally = record.within(at.saturating_sub(WINDOW)..at);
            let per_second = |requests| requests as f64 / at.min(WINDOW).as_secs_f64();
            rows.push(TenantRow {
                tenant: *tenant,
                wanted: per_second(tally.offered),
                admitted: per_second(tally.admitted),
                refused: per_second(tally.refused),
                waiting: record.total().waiting(),
                leases: ENVOYS.iter().map(has).collect(),
            });
        }
        let note = if at < self.move_at {
            ""
        } else {
            "; coda has moved from east to west"
        };
        Ok(DemoSnapshot { at, note, rows })
    }

    /// Ends the load; gives each tenant's record.
    pub(crate) async fn end(self) -> Result<Vec<Record>> {
        let records = self.load.stop().await?;
        Ok(records.chunks(ENVOYS.len()).map(sum).collect())
    }

    fn records(&self, tenant: usize) -> Vec<Record> {
        let first = tenant * self.envoys.len();
        (first..first + self.envoys.len())
            .map(|flow| self.load.record(flow))
            .collect()
    }
}

/// The coordinator's limits, with a small burst, so that the first second shows more than a burst.
fn limits() -> String {
    let mut limits = "limits:\n".to_owned();
    for tenant in TENANTS {
        let (name, rate) = (tenant.name, tenant.capacity);
        limits.push_str(&format!(
            "  - match: \"tenant/{name}\"\n    requests: {{rate: {rate}, burst: {}, safe: 20}}\n",
            rate / 5.0
        ));
    }
    limits.push_str("  - match: \"*\"\n    requests: {rate: 100}\n");
    limits
}
