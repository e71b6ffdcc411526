//! Samples of all rounds, and the table that summarises them.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Cost of one slice of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) requests: u64,
    pub(crate) took: Duration,
    pub(crate) cpu: Duration,
}

/// Samples by round, one of each filter.
#[derive(Debug)]
pub(crate) struct Table {
    base: &'static str,
    /// The filter that is the aim of another, by name.
    aim_of: fn(&str) -> &'static str,
    /// Copies of a filter, by which what they add is divided.
    copies: usize,
    rounds: Vec<Vec<(String, Sample)>>,
}

/// Figures of one filter: medians over the rounds.
#[derive(Debug)]
struct Row {
    name: String,
    cpu_us: f64,
    added_us: f64,
    /// The middle half of the rounds' differences.
    spread_us: (f64, f64),
    /// Part of the aim's difference, and the middle half of the rounds' parts.
    to_aim: f64,
    to_aim_spread: (f64, f64),
    per_second: f64,
}

// === impl Sample ===

impl Sample {
    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }

    fn per_second(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }
}

// === impl Table ===

impl Table {
    /// Creates an empty table. The cost that a filter adds to `base` is compared with the cost that its
    /// aim adds.
    pub(crate) fn new(base: &'static str, aim_of: fn(&str) -> &'static str, copies: usize) -> Self {
        Self {
            base,
            aim_of,
            copies,
            rounds: Vec::new(),
        }
    }

    pub(crate) fn add_round(&mut self, samples: Vec<(String, Sample)>) {
        self.rounds.push(samples);
    }

    /// Prints the table, then the same as one line of JSON.
    ///
    /// # Errors
    /// When nothing was measured.
    pub(crate) fn print(&self) -> Result<()> {
        let rows = self.rows()?;
        let mut out = io::stdout().lock();
        let heads = [
            "filter",
            "CPU µs/request",
            "added µs",
            "middle half",
            "× aim",
            "requests/s",
        ];
        writeln!(
            out,
            "{:<19} {:>14} {:>10} {:>15} {:>7} {:>15} {:>11}",
            heads[0], heads[1], heads[2], heads[3], heads[4], heads[3], heads[5]
        )?;
        let half = |(low, high): (f64, f64)| format!("{low:.2} to {high:.2}");
        for row in &rows {
            writeln!(
                out,
                "{:<19} {:>14.2} {:>10.2} {:>15} {:>7.2} {:>15} {:>11.0}",
                row.name,
                row.cpu_us,
                row.added_us,
                half(row.spread_us),
                row.to_aim,
                half(row.to_aim_spread),
                row.per_second,
            )?;
        }
        writeln!(
            out,
            "medians of {} rounds; added by each of {} copies; the aim is the plain wasm filter that reads as \
             many headers, or local_ratelimit",
            self.rounds.len(),
            self.copies,
        )?;
        let figures = |row: &Row| {
            json!({"filter": row.name, "cpu_us": row.cpu_us, "added_us": row.added_us,
                   "added_middle_half_us": row.spread_us, "aim": (self.aim_of)(&row.name),
                   "added_to_aim": row.to_aim, "added_to_aim_middle_half": row.to_aim_spread,
                   "requests_per_second": row.per_second})
        };
        let all: Vec<Value> = rows.iter().map(figures).collect();
        writeln!(
            out,
            "{}",
            json!({"bench": "proxy", "rounds": self.rounds.len(), "copies": self.copies,
                   "filters": all})
        )?;
        Ok(())
    }

    /// Rows of all filters, the base first.
    fn rows(&self) -> Result<Vec<Row>> {
        let first = self.rounds.first().context("no round was measured")?;
        let mut names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_by_key(|name| (*name != self.base, (self.aim_of)(name), *name));
        names.into_iter().map(|name| self.row(name)).collect()
    }

    fn row(&self, name: &str) -> Result<Row> {
        let mut cpu_us = Vec::new();
        let mut added_us = Vec::new();
        let mut to_aim = Vec::new();
        let mut per_second = Vec::new();
        let mut aims_us = Vec::new();
        for round in &self.rounds {
            let of = |wanted: &str| {
                let found = round.iter().find(|(name, _)| name == wanted);
                found
                    .map(|(_, sample)| *sample)
                    .context("a round has every filter")
            };
            let (sample, base) = (of(name)?, of(self.base)?);
            let added = |sample: Sample| (sample.cpu_us() - base.cpu_us()) / self.copies as f64;
            let aim_us = added(of((self.aim_of)(name))?);
            cpu_us.push(sample.cpu_us());
            added_us.push(added(sample));
            to_aim.push(added(sample) / aim_us);
            aims_us.push(aim_us);
            per_second.push(sample.per_second());
        }
        let added = quantile(&mut added_us, 0.5);
        Ok(Row {
            name: name.to_owned(),
            cpu_us: quantile(&mut cpu_us, 0.5),
            added_us: added,
            spread_us: spread(&mut added_us),
            to_aim: added / quantile(&mut aims_us, 0.5),
            to_aim_spread: spread(&mut to_aim),
            per_second: quantile(&mut per_second, 0.5),
        })
    }
}

/// The middle half of the values.
pub(crate) fn spread(values: &mut [f64]) -> (f64, f64) {
    (quantile(values, 0.25), quantile(values, 0.75))
}

/// Quantile `part` of the values; between two values, their mean.
pub(crate) fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = part * (values.len() - 1) as f64;
    f64::midpoint(
        values[place.floor() as usize],
        values[place.ceil() as usize],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_the_values() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&mut [4.0, 1.0], 0.5), 2.5);
        assert_eq!(quantile(&mut [5.0], 0.25), 5.0);
    }

    #[test]
    fn what_is_added_is_compared_within_a_round() {
        let sample = |micros| Sample {
            requests: 1000,
            took: Duration::from_secs(1),
            cpu: Duration::from_millis(micros),
        };
        let mut table = Table::new("base", |_| "aim", 2);
        for noise in [0, 10, 30] {
            table.add_round(vec![
                ("base".to_owned(), sample(20 + noise)),
                ("aim".to_owned(), sample(22 + noise)),
            ]);
        }
        let rows = table.rows().unwrap();
        assert!((rows[1].added_us - 1.0).abs() < 1e-9, "{rows:?}");
        assert!((rows[1].cpu_us - 32.0).abs() < 1e-9, "{rows:?}");
        assert!((rows[1].to_aim - 1.0).abs() < 1e-9, "{rows:?}");
    }
}
