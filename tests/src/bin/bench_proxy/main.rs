//! Benchmark of rate limiters in Envoy: CPU per request and throughput, or latency at a fixed rate.
//!
//! One Envoy has a listener for each filter under test, so that all of them share the process, its
//! workers, its memory layout and its upstream connections. Slices of load go to one listener
//! after another, in a random order in each round, and each round's filters are compared with that
//! round's listener without a filter. A few Envoys are used one after another,
//! because a process keeps its memory layout for life. Nothing is refused.
//!
//! A listener has several copies of its filter, one behind another: what a single one costs is less than
//! the noise of a busy machine.

mod closed_loop;
mod fleet;
mod latency;
mod rate_limit_service;
mod table;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate_tests::cores;

use crate::fleet::{AIM, AIM_OF_MODULE, AIM_OF_THREE, BASE, EMPTY_MODULE, Fleet, MODULE, THREE};
use crate::latency::LatencyTable;
use crate::table::Table;

/// CPU or latency that rate limiters add to each request in Envoy, several in one run.
#[derive(Debug, Parser)]
struct Options {
    /// Measures latency at a fixed rate instead of CPU, for no filter, local_ratelimit and both builds of
    /// Tollgate. It counts from when a request was to be sent.
    #[arg(long)]
    latency: bool,
    /// Requests per second, with --latency.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Numbers of Envoy's workers, a table each: one has a core to itself, more share theirs with the load
    /// if the machine has no more.
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    workers: Vec<u32>,
    /// Numbers of tenants, a table each. They are used in turn; with --latency the k-th busiest has 1/k of
    /// the requests of the busiest.
    #[arg(long, value_delimiter = ',', default_values_t = [100])]
    tenants: Vec<usize>,
    /// Copies of a filter in its listener, each of which decides on every request: by default 10, with
    /// --latency one. The filters that call a service for each request, or draw a token for it, are only
    /// measured with one.
    #[arg(long)]
    copies: Option<usize>,
    /// Number of Envoys of a table, used one after another.
    #[arg(long, default_value_t = 2)]
    envoys: u32,
    /// Rounds with each Envoy; a round is one slice for each filter.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Load before each slice that is not measured, in milliseconds: Tollgate's tenants get their leases
    /// back, which they release while the other filters are measured.
    #[arg(long, default_value_t = 1000)]
    settle_ms: u64,
    /// Length of a slice in milliseconds: short, so that other work of the machine disturbs all filters
    /// alike.
    #[arg(long, default_value_t = 500)]
    slice_ms: u64,
    /// Connections that send one request after another; with --latency there are always 64.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Measures only the baselines, without Tollgate.
    #[arg(long)]
    baselines_only: bool,
}

/// Envoy's workers and the tenants of one table.
#[derive(Clone, Copy, Debug)]
struct Setup {
    /// Worker threads of Envoy.
    workers: u32,
    tenants: usize,
}

// === impl Options ===

impl Options {
    fn copies(&self) -> usize {
        self.copies.unwrap_or(if self.latency { 1 } else { 10 })
    }

    fn setups(&self) -> Vec<Setup> {
        let of = |workers: &u32| {
            let workers = *workers;
            self.tenants.iter().map(move |tenants| Setup {
                workers,
                tenants: *tenants,
            })
        };
        self.workers.iter().flat_map(of).collect()
    }
}

// === free functions ===

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = cores::load_runtime()?;
    let setups = options.setups();
    for (done, setup) in setups.iter().enumerate() {
        eprintln!("table {} of {}: {setup:?}", done + 1, setups.len());
        if options.latency {
            latency(&runtime, *setup, &options)?
        } else {
            cpu(&runtime, *setup, &options)?
        }
    }
    Ok(())
}

/// Measures CPU per request, and prints the table.
fn cpu(runtime: &Runtime, setup: Setup, options: &Options) -> Result<()> {
    let aim = |name: &str| match name {
        AIM_OF_THREE | THREE => AIM_OF_THREE,
        AIM_OF_MODULE | EMPTY_MODULE | MODULE => AIM_OF_MODULE,
        _ => AIM,
    };
    let mut table = Table::new(BASE, aim, options.copies());
    for_each_envoy(options, |dir| {
        let fleet = start(runtime, dir, setup, options)?;
        for name in fleet.names() {
            runtime.block_on(fleet.slice(&name, setup, options))?; // warm-up, not counted
        }
        for round in 0..options.rounds {
            table.add_round(in_turn(&fleet, round, |name| {
                runtime.block_on(fleet.slice(name, setup, options))
            })?);
        }
        Ok(())
    })?;
    table.print()
}

/// Measures latency, and prints the table.
fn latency(runtime: &Runtime, setup: Setup, options: &Options) -> Result<()> {
    let mut table = LatencyTable::new(BASE, setup, options.rate);
    for_each_envoy(options, |dir| {
        let fleet = start(runtime, dir, setup, options)?;
        for name in fleet.names() {
            runtime.block_on(fleet.warm_up(&name, setup, options))?;
        }
        for round in 0..options.rounds {
            table.add_round(in_turn(&fleet, round, |name| {
                let to = fleet.address(name)?;
                runtime.block_on(latency::slice(to, setup, options))
            })?);
        }
        Ok(())
    })?;
    table.print()
}

/// Runs `measure` for each Envoy, with a directory for its files.
fn for_each_envoy(options: &Options, mut measure: impl FnMut(&Path) -> Result<()>) -> Result<()> {
    for generation in 1..=options.envoys {
        let dir = TempDir::new()?;
        measure(dir.path())
            .with_context(|| format!("with Envoy {generation} of {}", options.envoys))?;
        eprintln!("Envoy {generation} of {} is measured", options.envoys);
    }
    Ok(())
}

/// Starts an Envoy on as many cores as it has workers.
fn start(runtime: &Runtime, dir: &Path, setup: Setup, options: &Options) -> Result<Fleet> {
    let cores = usize::try_from(setup.workers)?;
    cores::on_first(cores, || {
        runtime.block_on(Fleet::start(dir, setup, options))
    })
}

/// One round: measures each listener, in an order that looks random and is the same in each run.
fn in_turn<S>(
    fleet: &Fleet,
    round: usize,
    mut measure: impl FnMut(&str) -> Result<S>,
) -> Result<Vec<(String, S)>> {
    let mut names = fleet.names();
    names.sort_by_key(|name| place(round, name));
    let mut samples = Vec::new();
    for name in names {
        let sample = measure(&name).with_context(|| format!("through {name}"))?;
        samples.push((name, sample));
    }
    Ok(samples)
}

/// Place of a listener in the order of a round.
fn place(round: usize, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (round, name).hash(&mut hasher);
    hasher.finish()
}
