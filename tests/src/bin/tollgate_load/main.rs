//! The load of the docker-compose demos: several tenants, each at its own rate, against several Envoys,
//! with a table of the rates that each tenant got.

mod table;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::wait;

use crate::table::{Row, table};

/// Longest time until an Envoy has an address: its container may still be starting.
const RESOLVE_LIMIT: Duration = Duration::from_secs(60);

/// Sends requests of several tenants to several Envoys at given rates, independent of the answers, and
/// prints every few seconds the rates that each tenant wanted and got.
///
/// Half of a tenant's requests go to one Envoy and the rest evenly to the others. The favoured Envoy
/// changes from time to time, so that the leases have to follow.
#[derive(Debug, Parser)]
struct Options {
    /// An Envoy, as HOST:PORT; repeat it for several Envoys.
    #[arg(long = "to", value_name = "HOST:PORT", required = true)]
    envoys: Vec<String>,

    /// A tenant and its requests per second over all Envoys, as acme=300; repeat it for several tenants.
    #[arg(long = "tenant", value_name = "NAME=RATE", required = true, value_parser = tenant)]
    tenants: Vec<Tenant>,

    /// Interval between two tables, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,

    /// Number of tables after which the demand moves on to the next Envoy; 0 for never.
    #[arg(long, default_value_t = 6)]
    move_after: u32,

    /// Number of tables until it ends. All results stay in memory until then.
    #[arg(long, default_value_t = 720, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tables: u32,
}

/// A tenant and its rate.
#[derive(Clone, Debug)]
struct Tenant {
    name: String,
    rate: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = offer(&options) => ended,
        _ = ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

async fn offer(options: &Options) -> Result<()> {
    let mut envoys = Vec::new();
    for name in &options.envoys {
        envoys.push(resolve(name).await?);
    }
    let load = Load::start(options.tenants.iter().flat_map(|tenant| {
        let parts = parts(envoys.len(), 0).map(|part| part * tenant.rate);
        let flows = envoys.iter().zip(parts);
        flows.map(|(envoy, rate)| Flow::new(*envoy, &tenant.name, rate))
    }));
    let every = Duration::from_secs(options.every);
    for printed in 1..=options.tables {
        load.run_until(every * printed).await;
        println_table(options, &load, envoys.len());
        if options.move_after > 0 && printed.is_multiple_of(options.move_after) {
            favour(options, &load, envoys.len(), printed / options.move_after);
        }
    }
    Ok(())
}

/// Gives half of the demand to the Envoy that is favoured in this turn.
fn favour(options: &Options, load: &Load, envoys: usize, turn: u32) {
    let favoured = usize::try_from(turn).unwrap_or_default() % envoys;
    let rates = options
        .tenants
        .iter()
        .flat_map(|tenant| parts(envoys, favoured).map(|part| part * tenant.rate));
    for (flow, rate) in rates.enumerate() {
        load.set_rate(flow, rate);
    }
}

/// Part of a tenant's demand for each of `envoys`.
fn parts(envoys: usize, favoured: usize) -> impl Iterator<Item = f64> {
    let others = 0.5 / (envoys.max(2) - 1) as f64;
    (0..envoys).map(move |place| match place == favoured {
        _ if envoys == 1 => 1.0,
        true => 0.5,
        false => others,
    })
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn println_table(options: &Options, load: &Load, envoys: usize) {
    let at = load.elapsed();
    let window = at.saturating_sub(Duration::from_secs(options.every))..at;
    let rows = options.tenants.iter().enumerate().map(|(place, tenant)| {
        let flows = place * envoys..(place + 1) * envoys;
        let records: Vec<_> = flows.map(|flow| load.record(flow)).collect();
        Row {
            tenant: &tenant.name,
            tally: sum(&records).within(window.clone()),
        }
    });
    println!("{}", table(at, options.every, rows));
}

async fn resolve(name: &str) -> Result<SocketAddr> {
    let what = format!("an address of {name}");
    wait::until(&what, RESOLVE_LIMIT, async || {
        let mut addresses = tokio::net::lookup_host(name).await?;
        addresses.next().context("the name has no address")
    })
    .await
}

fn tenant(text: &str) -> Result<Tenant, String> {
    let (name, rate) = text.split_once('=').ok_or("is not NAME=RATE")?;
    let rate: f64 = rate.parse().map_err(|_| "its rate is not a number")?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err("its name is empty or has control characters".to_owned());
    }
    if !(0.0..=100_000.0).contains(&rate) {
        return Err("its rate is not from 0 to 100000 per second".to_owned());
    }
    let name = name.to_owned();
    Ok(Tenant { name, rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_checked() {
        let rows = [
            ("acme=300", true),
            ("acme=0", true),
            ("acme", false),
            ("=3", false),
            ("acme=many", false),
            ("acme=NaN", false),
            ("acme=-1", false),
            ("acme=1e9", false),
            ("a\nb=1", false),
        ];
        for (text, good) in rows {
            assert_eq!(tenant(text).is_ok(), good, "{text:?}");
        }
    }

    #[test]
    fn all_of_the_demand_goes_somewhere() {
        for envoys in 1..5 {
            for favoured in 0..envoys {
                let sum: f64 = parts(envoys, favoured).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{envoys} {favoured}: {sum}");
            }
        }
    }
}
