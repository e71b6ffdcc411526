//! Latency at a fixed rate: what each filter adds to the median and to the 99th percentile.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tollgate_tests::connection::Connection;
use tollgate_tests::open_loop::OpenLoop;

use crate::closed_loop::request;
use crate::table::{quantile, spread};
use crate::{Options, Setup};

/// Connections, enough that no request waits for one while answers take less than 30 ms.
const CONNECTIONS: usize = 64;

/// The golden ratio's fraction: its multiples are spread evenly over a unit whatever their number.
const SPREAD: f64 = 0.618_033_988_749_894_9;

/// Quantiles of one slice of load, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatencySample {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// Samples of one setup by round, one of each filter.
#[derive(Debug)]
pub(crate) struct LatencyTable {
    base: &'static str,
    setup: Setup,
    rate: u32,
    rounds: Vec<Vec<(String, LatencySample)>>,
}

// === impl LatencyTable ===

impl LatencyTable {
    /// Creates an empty table of filters that are compared with `base` at `rate` requests per second.
    pub(crate) fn new(base: &'static str, setup: Setup, rate: u32) -> Self {
        Self {
            base,
            setup,
            rate,
            rounds: Vec::new(),
        }
    }

    pub(crate) fn add_round(&mut self, samples: Vec<(String, LatencySample)>) {
        self.rounds.push(samples);
    }

    /// Prints the table, then the same as one line of JSON.
    ///
    /// # Errors
    /// When nothing was measured.
    pub(crate) fn print(&self) -> Result<()> {
        let Setup { workers, tenants } = self.setup;
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{workers} workers, {tenants} tenants, {} requests/s: medians of {} rounds, µs",
            self.rate,
            self.rounds.len()
        )?;
        let heads = ["filter", "p50", "added", "middle half", "p99"];
        writeln!(
            out,
            "{:<19} {:>9} {:>8} {:>17} {:>9} {:>8} {:>19}",
            heads[0], heads[1], heads[2], heads[3], heads[4], heads[2], heads[3]
        )?;
        let first = self.rounds.first().context("no round was measured")?;
        let mut names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_by_key(|name| (*name != self.base, *name));
        let mut all = Vec::new();
        for name in names {
            let [p50, p99] = [|s: LatencySample| s.p50_us, |s: LatencySample| s.p99_us]
                .map(|of| self.figures(name, of));
            let (p50, p99) = (p50?, p99?);
            let half = |(low, high): (f64, f64)| format!("{low:.0} to {high:.0}");
            writeln!(
                out,
                "{name:<19} {:>9.0} {:>8.0} {:>17} {:>9.0} {:>8.0} {:>19}",
                p50.median,
                p50.added,
                half(p50.middle_half),
                p99.median,
                p99.added,
                half(p99.middle_half),
            )?;
            all.push(
                json!({"filter": name, "p50_us": p50.median, "p50_added_us": p50.added,
                       "p50_middle_half_us": p50.middle_half, "p99_us": p99.median,
                       "p99_added_us": p99.added, "p99_middle_half_us": p99.middle_half}),
            );
        }
        let line = json!({"bench": "proxy latency", "workers": workers, "tenants": tenants,
                          "rate": self.rate, "rounds": self.rounds.len(), "filters": all});
        writeln!(out, "{line}")?;
        Ok(())
    }

    /// Figures of one filter; `of` is the quantile of a slice.
    fn figures(&self, name: &str, of: impl Fn(LatencySample) -> f64) -> Result<Figures> {
        let mut values = Vec::new();
        let mut added = Vec::new();
        for round in &self.rounds {
            let of = |wanted: &str| {
                let found = round.iter().find(|(name, _)| name == wanted);
                found
                    .map(|(_, sample)| of(*sample))
                    .context("a round has every filter")
            };
            values.push(of(name)?);
            added.push(of(name)? - of(self.base)?);
        }
        Ok(Figures {
            median: quantile(&mut values, 0.5),
            added: quantile(&mut added, 0.5),
            middle_half: spread(&mut added),
        })
    }
}

/// Figures of one quantile and one filter over the rounds, in microseconds.
#[derive(Debug)]
struct Figures {
    median: f64,
    /// Median of the differences within each round.
    added: f64,
    middle_half: (f64, f64),
}

// === free functions ===

/// Sends load at a fixed rate through one listener, and measures after a while to settle.
///
/// # Errors
/// When any request was not admitted, or the address does not accept connections.
pub(crate) async fn slice(
    to: SocketAddr,
    setup: Setup,
    options: &Options,
) -> Result<LatencySample> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Connection::open(to).await?);
    }
    let settle = Duration::from_millis(options.settle_ms);
    let measured = Duration::from_millis(options.slice_ms);
    let load = OpenLoop::start(options.rate, settle, measured, CONNECTIONS)?;
    let mut senders = JoinSet::new();
    for connection in connections {
        senders.spawn(send(connection, Arc::clone(&load), setup.tenants));
    }
    let mut latencies = Vec::new();
    while let Some(done) = senders.join_next().await {
        latencies.extend(done??);
    }
    ensure!(!latencies.is_empty(), "no request was measured");
    Ok(LatencySample {
        p50_us: quantile(&mut latencies, 0.5),
        p99_us: quantile(&mut latencies, 0.99),
    })
}

/// Sends requests on one connection as they fall due; returns the latencies in microseconds.
async fn send(mut connection: Connection, load: Arc<OpenLoop>, tenants: usize) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    while let Some(due) = load.next().await {
        let request = request(tenant(due.index, tenants));
        let status = connection.status_of(&request).await?;
        ensure!(status == 200, "a request was answered {status}");
        latencies.extend(due.latency_us().map(f64::from));
    }
    Ok(latencies)
}

/// The tenant of a request: the k-th busiest has 1/k of the requests of the busiest, so that half of all
/// requests are of the busiest √n of n tenants.
fn tenant(index: usize, tenants: usize) -> usize {
    let part = (index as f64 * SPREAD).fract();
    let rank = (tenants as f64).powf(part) as usize;
    rank.clamp(1, tenants) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_requests_are_of_few_tenants() {
        let of_few = (0..10_000).filter(|index| tenant(*index, 10_000) < 99);
        let part = of_few.count() as f64 / 10_000.0;
        assert!((part - 0.5).abs() < 0.01, "{part}");
        assert!((0..10_000).all(|index| tenant(index, 100) < 100));
    }

    #[test]
    fn latencies_are_compared_within_a_round() {
        let setup = Setup {
            workers: 1,
            tenants: 1,
        };
        let mut table = LatencyTable::new("base", setup, 1000);
        for noise in [0.0, 50.0, 900.0] {
            let sample = |p50_us: f64| LatencySample {
                p50_us: p50_us + noise,
                p99_us: 3.0 * p50_us + noise,
            };
            table.add_round(vec![
                ("base".to_owned(), sample(100.0)),
                ("filter".to_owned(), sample(110.0)),
            ]);
        }
        let p50 = table.figures("filter", |sample| sample.p50_us).unwrap();
        assert_eq!((p50.median, p50.added), (160.0, 10.0));
        let p99 = table.figures("filter", |sample| sample.p99_us).unwrap();
        assert_eq!((p99.added, p99.middle_half), (30.0, (30.0, 30.0)));
    }
}
