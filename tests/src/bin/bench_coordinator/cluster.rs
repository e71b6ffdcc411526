//! Three coordinators with three shards compared with one: the cost of a refresh that comes to any node or
//! to the right one, and the division of the work.
//!
//! Calls go to any node, as through a load balancer, or straight to the master of their scopes, as from an
//! Envoy with a cluster for each shard. All rows load their nodes alike: each node has as many concurrent
//! calls as a single one, each call has as many scopes, and all shards have equally many scopes. An uneven
//! division would cost more.
//!
//! On a machine with few cores the nodes share one, so the rate by the clock cannot rise. The rate with a
//! core for each node follows from the CPU of the busiest.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};
use tollgate_core::cluster::shard_of;
use tollgate_tests::connection::get_once;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::etcd::Etcd;
use tollgate_tests::{cores, wait};

use crate::fleet::Fleet;
use crate::load::{CallerGroup, Load};
use crate::{Options, limits, warm_up};

/// Longest time for the elections, including moves of shards to their preferred nodes.
const ELECTED_WITHIN: Duration = Duration::from_secs(60);

/// Length of the leases, and so of a new master's learning mode.
const LEARNING: Duration = Duration::from_secs(5);

/// Numbers of coordinators and shards; without shards there is no etcd.
#[derive(Clone, Copy, Debug)]
struct Setup {
    name: &'static str,
    nodes: usize,
    shards: Option<usize>,
    /// Whether calls go to the masters of their scopes, and not to any node.
    straight: bool,
}

/// Figures of one setup for one fleet.
#[derive(Debug)]
struct ClusterRow {
    setup: Setup,
    fleet: Fleet,
    refreshes: u64,
    took: Duration,
    nodes: Vec<NodeStats>,
}

/// Figures of one coordinator.
#[derive(Clone, Copy, Debug, Default)]
struct NodeStats {
    cpu: Duration,
    /// Scopes answered from its own lease table.
    own: u64,
    /// Scopes that it forwarded to others.
    forwarded: u64,
}

/// Number of parts, of equally many scopes each.
const PARTS: NonZeroU16 = NonZeroU16::new(3).unwrap();

const SETUPS: [Setup; 4] = [
    Setup {
        name: "one, alone",
        nodes: 1,
        shards: None,
        straight: false,
    },
    Setup {
        name: "one, elected",
        nodes: 1,
        shards: Some(1),
        straight: false,
    },
    Setup {
        name: "three, any node",
        nodes: 3,
        shards: Some(3),
        straight: false,
    },
    Setup {
        name: "three, straight",
        nodes: 3,
        shards: Some(3),
        straight: true,
    },
];

/// Measures every setup with single and with bulk calls, and prints the table.
pub(crate) fn run(runtime: &Runtime, options: &Options) -> Result<()> {
    let single = Fleet {
        clients: options.bulk_clients,
        scopes: 60,
        scopes_per_call: 1,
    };
    let bulk = Fleet {
        clients: options.bulk_clients,
        scopes: 12 * options.scopes.max(1),
        scopes_per_call: options.scopes.max(1),
    };
    let mut rows = Vec::new();
    for fleet in [single, bulk] {
        for setup in SETUPS {
            let dir = TempDir::new()?;
            let row = measure(runtime, dir.path(), setup, fleet, options);
            rows.push(row.with_context(|| format!("{setup:?} with {fleet:?}"))?);
        }
    }
    print(&rows)
}

/// Measures one row.
fn measure(
    runtime: &Runtime,
    dir: &Path,
    setup: Setup,
    fleet: Fleet,
    options: &Options,
) -> Result<ClusterRow> {
    let etcd = match setup.shards {
        Some(_) => Some(runtime.block_on(Etcd::start(dir, 1))?),
        None => None,
    };
    let started = cores::beside_load(|| runtime.block_on(start(dir, setup, etcd.as_ref())));
    let nodes = started?;
    runtime.block_on(async {
        let groups = groups(setup, fleet, &nodes).await?;
        let mut load = Load::start(groups, fleet, options.connections, options.workers).await?;
        warm_up(&mut load, fleet).await?;
        let before = (Instant::now(), load.refreshed(), totals(&nodes).await?);
        sleep(options.measured_time()?).await;
        let after = (Instant::now(), load.refreshed(), totals(&nodes).await?);
        let done = load.stop().await?;
        let leased = done.sum_has / fleet.capacity();
        ensure!(
            leased < 1.0 + 1e-9,
            "the part of the capacity leased was {leased}"
        );
        let nodes = after.2.iter().zip(&before.2);
        Ok(ClusterRow {
            setup,
            fleet,
            refreshes: after.1 - before.1,
            took: after.0 - before.0,
            nodes: nodes.map(|(after, before)| after.since(before)).collect(),
        })
    })
}

/// Starts the coordinators, and waits until each is master of its part.
async fn start(dir: &Path, setup: Setup, etcd: Option<&Etcd>) -> Result<Vec<Coordinator>> {
    let mut nodes = Vec::new();
    for index in 0..setup.nodes {
        let cluster = match (etcd, setup.shards) {
            (Some(etcd), Some(shards)) => format!(
                "cluster: {{node: n{index}, shards: {shards}, etcd: {{endpoints: {}}}}}\n",
                etcd.endpoints_yaml()
            ),
            _ => String::new(),
        };
        let dir = dir.join(format!("n{index}"));
        std::fs::create_dir(&dir)?;
        nodes.push(Coordinator::start(&dir, &format!("{cluster}{}", limits(LEARNING))).await?);
    }
    let shards = setup.shards.unwrap_or(0);
    wait::until("masters of all shards", ELECTED_WITHIN, async || {
        let mut masters = 0;
        for node in &nodes {
            let mine = sum(node.http(), "tollgate_master").await?;
            ensure!(shards == 0 || mine > 0, "a node without a shard");
            masters += mine;
        }
        ensure!(masters as usize >= shards, "{masters} of {shards} shards");
        Ok(())
    })
    .await?;
    if shards > 0 {
        sleep(LEARNING + LEARNING / 5).await;
    }
    Ok(nodes)
}

/// Callers of the fleet, grouped by the addresses that they call.
async fn groups(setup: Setup, fleet: Fleet, nodes: &[Coordinator]) -> Result<Vec<CallerGroup>> {
    let parts = parts(fleet.scopes);
    if !setup.straight {
        let to = nodes.iter().map(Coordinator::grpc).collect();
        // In turn, so that a call of many scopes has some of each part.
        let each = parts.iter().map(Vec::len).max().unwrap_or(0);
        let rows = (0..each).flat_map(|row| parts.iter().filter_map(move |part| part.get(row)));
        let callers = fleet.callers_for(&rows.cloned().collect::<Vec<_>>());
        return Ok(vec![CallerGroup { callers, to }]);
    }
    let mut groups = Vec::new();
    for (shard, scopes) in parts.iter().enumerate() {
        groups.push(CallerGroup {
            callers: fleet.callers_for(scopes),
            to: vec![master(nodes, shard).await?],
        });
    }
    Ok(groups)
}

/// Names of `count` scopes, by part.
fn parts(count: usize) -> Vec<Vec<String>> {
    let mut parts = vec![Vec::new(); PARTS.get().into()];
    let each = count.div_ceil(parts.len());
    for name in Fleet::names() {
        let part = &mut parts[shard_of(&name, PARTS).index()];
        if part.len() < each {
            part.push(name);
        }
        if parts.iter().all(|part| part.len() == each) {
            break;
        }
    }
    parts
}

async fn master(nodes: &[Coordinator], shard: usize) -> Result<SocketAddr> {
    let name = format!("tollgate_master{{shard=\"{shard}\"}}");
    for node in nodes {
        if sum(node.http(), &name).await? == 1 {
            return Ok(node.grpc());
        }
    }
    bail!("shard {shard} has no master")
}

/// Figures of all nodes so far.
async fn totals(nodes: &[Coordinator]) -> Result<Vec<NodeStats>> {
    let mut stats = Vec::new();
    for node in nodes {
        stats.push(NodeStats {
            cpu: node.process.cpu()?,
            own: sum(node.http(), "tollgate_answered_total{by=\"local\"}").await?,
            forwarded: sum(node.http(), "tollgate_answered_total{by=\"peer\"}").await?,
        });
    }
    Ok(stats)
}

/// Sum of the metrics whose lines begin with `name`.
async fn sum(http: SocketAddr, name: &str) -> Result<u64> {
    let metrics = get_once(http, "/metrics", &[]).await?.body;
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    Ok(values.sum())
}

// === impl NodeStats ===

impl NodeStats {
    fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            own: self.own - before.own,
            forwarded: self.forwarded - before.forwarded,
        }
    }
}

// === impl ClusterRow ===

impl ClusterRow {
    fn per_second(&self) -> f64 {
        self.refreshes as f64 / self.took.as_secs_f64()
    }

    /// CPU of all nodes together for each refresh, in microseconds.
    fn cpu_us(&self) -> f64 {
        let cpu: Duration = self.nodes.iter().map(|node| node.cpu).sum();
        self.per_refresh(cpu)
    }

    /// CPU of the busiest node for each refresh, in microseconds; it bounds the rate if each node has a core.
    fn busiest_us(&self) -> f64 {
        let busiest = self.nodes.iter().map(|node| node.cpu).max();
        self.per_refresh(busiest.unwrap_or_default())
    }

    fn per_refresh(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.refreshes.max(1) as f64
    }

    /// Forwarded calls per refresh, on average.
    fn forwards(&self) -> f64 {
        let count = |of: fn(&NodeStats) -> u64| self.nodes.iter().map(of).sum::<u64>() as f64;
        count(|node| node.forwarded) / count(|node| node.own).max(1.0)
    }
}

// === free functions ===

/// Prints the table, then the same as one line of JSON. Ratios are to the first setup of the same fleet.
fn print(rows: &[ClusterRow]) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<16} {:>12} {:>11} {:>15} {:>13} {:>13} {:>5}  answered + forwarded, by node",
        "coordinators",
        "scopes/call",
        "refreshes/s",
        "CPU µs/refresh",
        "the busiest's",
        "× on 3 cores",
        "fwd",
    )?;
    let mut all = Vec::new();
    for row in rows {
        let of_fleet = |first: &&ClusterRow| first.fleet == row.fleet;
        let first = rows.iter().find(of_fleet).unwrap_or(row);
        let scale = first.busiest_us() / row.busiest_us();
        let counts = row
            .nodes
            .iter()
            .map(|n| format!("{} + {}", n.own, n.forwarded));
        let counts: Vec<_> = counts.collect();
        writeln!(
            out,
            "{:<16} {:>12} {:>11.0} {:>15.2} {:>13.2} {scale:>13.2} {:>5.2}  {}",
            row.setup.name,
            row.fleet.scopes_per_call,
            row.per_second(),
            row.cpu_us(),
            row.busiest_us(),
            row.forwards(),
            counts.join(", "),
        )?;
        all.push(json!({
            "coordinators": row.setup.name,
            "scopes_per_call": row.fleet.scopes_per_call,
            "refreshes_per_second": row.per_second(),
            "cpu_us_per_refresh": row.cpu_us(),
            "busiest_cpu_us_per_refresh": row.busiest_us(),
            "times_first_by_cpu_of_busiest": scale,
            "forwards": row.forwards(),
            "answered": row.nodes.iter().map(|node| node.own).collect::<Vec<_>>(),
            "forwarded": row.nodes.iter().map(|node| node.forwarded).collect::<Vec<_>>(),
        }));
    }
    writeln!(out, "{}", json!({"bench": "cluster", "rows": all}))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_bounded_by_its_busiest_node() {
        let node = |cpu_ms, own, forwarded| NodeStats {
            cpu: Duration::from_millis(cpu_ms),
            own,
            forwarded,
        };
        let row = ClusterRow {
            setup: SETUPS[2],
            fleet: Fleet {
                clients: 1,
                scopes: 3,
                scopes_per_call: 1,
            },
            refreshes: 1000,
            took: Duration::from_millis(500),
            nodes: vec![node(10, 400, 200), node(20, 300, 200), node(10, 300, 200)],
        };
        assert_eq!(row.per_second(), 2000.0);
        assert_eq!((row.cpu_us(), row.busiest_us()), (40.0, 20.0));
        assert_eq!(row.forwards(), 0.6);
    }

    #[test]
    fn each_part_has_as_many_scopes_and_all_are_of_its_shard() {
        let parts = parts(60);
        assert_eq!(parts.len(), 3);
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(part.len(), 20);
            assert!(
                part.iter()
                    .all(|name| shard_of(name, PARTS).index() == index)
            );
        }
    }
}
