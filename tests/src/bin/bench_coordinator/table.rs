//! Measured rows, and their table.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::fleet::Fleet;

/// Cost of one fleet's refreshes.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) fleet: Fleet,
    /// Leases refreshed in `took`.
    pub(crate) refreshes: u64,
    pub(crate) took: Duration,
    /// CPU time of the coordinator during `took`.
    pub(crate) cpu: Duration,
    /// CPU time of the load generator during `took`.
    pub(crate) generator_cpu: Duration,
    /// Latencies of all calls in microseconds, sorted.
    pub(crate) latencies_us: Vec<u32>,
    /// Leased part of the capacity at the end.
    pub(crate) leased: f64,
    /// The coordinator's memory at the end.
    pub(crate) memory_bytes: u64,
}

// === impl Row ===

impl Row {
    fn name(&self) -> String {
        let Fleet {
            clients, scopes, ..
        } = self.fleet;
        match scopes {
            1 => clients.to_string(),
            _ => format!(
                "{clients} × {scopes} scopes, {} a call",
                self.fleet.scopes_per_call
            ),
        }
    }

    fn per_second(&self) -> f64 {
        self.refreshes as f64 / self.took.as_secs_f64()
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.refreshes.max(1) as f64
    }

    /// Refreshes in one second of a core's time.
    fn per_core_second(&self) -> f64 {
        1e6 / self.cpu_us()
    }

    fn generator_share(&self) -> f64 {
        self.generator_cpu.as_secs_f64() / self.took.as_secs_f64()
    }

    /// Quantile `part` of the latencies, in milliseconds.
    fn latency_ms(&self, part: f64) -> f64 {
        quantile_ms(&self.latencies_us, part)
    }

    fn json(&self) -> Value {
        json!({
            "clients": self.fleet.clients,
            "scopes": self.fleet.scopes,
            "scopes_per_call": self.fleet.scopes_per_call,
            "refreshes_per_second": self.per_second(),
            "cpu_us_per_refresh": self.cpu_us(),
            "refreshes_per_core_second": self.per_core_second(),
            "p50_ms": self.latency_ms(0.5),
            "p99_ms": self.latency_ms(0.99),
            "generator_share": self.generator_share(),
            "leased": self.leased,
            "memory_bytes": self.memory_bytes,
        })
    }
}

// === free functions ===

/// Quantile `part` of sorted latencies in microseconds, in milliseconds.
pub(crate) fn quantile_ms(latencies_us: &[u32], part: f64) -> f64 {
    let last = latencies_us.len().saturating_sub(1);
    let place = (part * last as f64).round() as usize;
    latencies_us
        .get(place)
        .map_or(f64::NAN, |us| f64::from(*us) / 1e3)
}

/// Prints the table, then the same as one line of JSON. CPU is compared with the first row's, if both
/// have as many scopes per call.
pub(crate) fn print(rows: &[Row]) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<32} {:>11} {:>15} {:>7} {:>14} {:>7} {:>7} {:>6} {:>5} {:>9}",
        "clients",
        "refreshes/s",
        "CPU µs/refresh",
        "× first",
        "a core's rate",
        "p50 ms",
        "p99 ms",
        "leased",
        "MiB",
        "generator"
    )?;
    for row in rows {
        let first = rows
            .first()
            .filter(|first| first.fleet.scopes_per_call == row.fleet.scopes_per_call);
        let ratio = first.map_or_else(String::new, |first| {
            format!("{:.2}", row.cpu_us() / first.cpu_us())
        });
        writeln!(
            out,
            "{:<32} {:>11.0} {:>15.2} {ratio:>7} {:>14.0} {:>7.2} {:>7.2} {:>5.1}% {:>5.0} {:>8.0}%",
            row.name(),
            row.per_second(),
            row.cpu_us(),
            row.per_core_second(),
            row.latency_ms(0.5),
            row.latency_ms(0.99),
            row.leased * 100.0,
            row.memory_bytes as f64 / f64::from(1 << 20),
            row.generator_share() * 100.0,
        )?;
    }
    let last = "a core's rate: refreshes per second of the coordinator's CPU time; generator: its \
                share of its core";
    writeln!(out, "{last}")?;
    let rows: Vec<_> = rows.iter().map(Row::json).collect();
    writeln!(out, "{}", json!({"bench": "coordinator", "rows": rows}))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(latencies_us: Vec<u32>) -> Row {
        Row {
            fleet: Fleet {
                clients: 10,
                scopes: 1,
                scopes_per_call: 1,
            },
            refreshes: 1000,
            took: Duration::from_millis(500),
            cpu: Duration::from_millis(20),
            generator_cpu: Duration::from_millis(100),
            latencies_us,
            leased: 1.0,
            memory_bytes: 0,
        }
    }

    #[test]
    fn a_row_is_per_second_and_per_refresh() {
        let row = row((1..=101).map(|step| step * 1000).collect());
        assert_eq!(row.per_second(), 2000.0);
        assert_eq!(row.cpu_us(), 20.0);
        assert_eq!(row.per_core_second(), 50_000.0);
        assert_eq!(row.generator_share(), 0.2);
        assert_eq!(row.latency_ms(0.5), 51.0);
        assert_eq!(row.latency_ms(0.99), 100.0);
    }

    #[test]
    fn no_calls_have_no_latency() {
        assert!(row(Vec::new()).latency_ms(0.5).is_nan());
    }
}
