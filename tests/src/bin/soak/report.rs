//! Report of a soak: its checks, its figures by quarters, and its samples.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::fault::Fault;
use crate::fleet::{BURST, CAPACITY, ENVOYS};
use crate::sample::{Sample, mebibytes};

/// Growth of memory from the second quarter to the last one that counts as flat: a few steps of the
/// allocators.
const GROWTH_MAX: f64 = 4.0;

/// Tokens of the token caches of all workers, and of the burst that a lease's end and a safe capacity
/// may each let through once in a window.
const SLACK: f64 = 3.0 * BURST;

/// Figure of a sample.
type Figure = fn(&Sample) -> f64;

/// Samples and events of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    samples: Vec<Sample>,
    faults: Vec<(Duration, Fault)>,
}

/// A check of a report.
struct Check {
    name: &'static str,
    holds: bool,
    figure: String,
}

// === impl Report ===

impl Report {
    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Notes the beginning of a fault.
    pub(crate) fn note(&mut self, at: Duration, fault: Fault) {
        eprintln!("{:>6.0} s: {fault}", at.as_secs_f64());
        self.faults.push((at, fault));
    }

    /// Writes the report into `dir` and returns whether all checks hold.
    pub(crate) fn write(&self, dir: &Path) -> Result<bool> {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let lines = self.samples.iter().map(Sample::csv);
        let csv: Vec<String> = [Sample::HEADER.to_owned()]
            .into_iter()
            .chain(lines)
            .collect();
        fs::write(dir.join("soak.csv"), csv.join("\n") + "\n")?;
        let checks = self.checks();
        let page = self.page(&checks)?;
        write!(io::stdout(), "{page}")?;
        fs::write(dir.join("soak.md"), page)?;
        Ok(checks.iter().all(|check| check.holds))
    }

    fn checks(&self) -> Vec<Check> {
        let failures: u64 = self.samples.iter().map(|sample| sample.failures).sum();
        let most = self.most_admitted();
        vec![
            Check {
                name: "no window admits more than the capacity and its slack",
                holds: most <= 0.0,
                figure: format!("{most:+.0} requests in the worst window"),
            },
            Check {
                name: "every request is answered",
                holds: failures == 0,
                figure: format!("{failures} failed"),
            },
            self.flat("an Envoy's memory is flat", |sample| sample.envoy_bytes),
            self.flat("a VM's memory is flat", |sample| sample.vm_bytes),
            self.flat("a coordinator's memory is flat", |sample| {
                sample.coordinator_bytes
            }),
        ]
    }

    /// Requests admitted beyond the capacity and its slack, in the worst window between two samples;
    /// negative if there is none.
    fn most_admitted(&self) -> f64 {
        let pairs = self.samples.windows(2);
        let beyond = pairs.map(|pair| {
            let window = pair[1].at.saturating_sub(pair[0].at).as_secs_f64();
            (pair[1].admitted - CAPACITY) * window - SLACK
        });
        beyond.fold(f64::NEG_INFINITY, f64::max)
    }

    fn flat(&self, name: &'static str, bytes: fn(&Sample) -> u64) -> Check {
        let [_, before, _, after] = self.quarters(|sample| mebibytes(bytes(sample)));
        Check {
            name,
            holds: after - before <= GROWTH_MAX,
            figure: format!("{before:.1} MiB in the second quarter, {after:.1} MiB in the last"),
        }
    }

    /// Medians of a figure in the four quarters of the run.
    fn quarters(&self, figure: impl Fn(&Sample) -> f64) -> [f64; 4] {
        let quarter = self.samples.len().div_ceil(4).max(1);
        let mut medians = [0.0; 4];
        for (median, samples) in medians.iter_mut().zip(self.samples.chunks(quarter)) {
            let mut figures: Vec<f64> = samples.iter().map(&figure).collect();
            figures.sort_by(f64::total_cmp);
            *median = figures[figures.len() / 2];
        }
        medians
    }

    fn page(&self, checks: &[Check]) -> Result<String> {
        let mut page = String::from("# Soak\n\n");
        let length = self.samples.last().map_or(Duration::ZERO, |last| last.at);
        let tenants = self.samples.last().map_or(0, |last| last.tenants);
        writeln!(
            page,
            "{:.0} minutes, {} Envoys, {tenants} tenants, {} faults.\n",
            length.as_secs_f64() / 60.0,
            ENVOYS.len(),
            self.faults.len()
        )?;
        writeln!(page, "| check | holds | figure |\n|---|---|---|")?;
        for Check {
            name,
            holds,
            figure,
        } in checks
        {
            let holds = if *holds { "yes" } else { "NO" };
            writeln!(page, "| {name} | {holds} | {figure} |")?;
        }
        self.table(&mut page)?;
        writeln!(page, "\n| at | fault |\n|---|---|")?;
        for (at, fault) in &self.faults {
            writeln!(page, "| {:.0} s | {fault} |", at.as_secs_f64())?;
        }
        Ok(page)
    }

    /// Writes the table of medians by quarter.
    fn table(&self, page: &mut String) -> Result<()> {
        writeln!(
            page,
            "\n| median of | first | second | third | last quarter |"
        )?;
        writeln!(page, "|---|---|---|---|---|")?;
        let rows: [(&str, Figure); 7] = [
            ("admitted per second", |s| s.admitted),
            ("median latency, ms", |s| {
                s.latencies.median.as_secs_f64() * 1e3
            }),
            ("99th percentile, ms", |s| {
                s.latencies.p99.as_secs_f64() * 1e3
            }),
            ("Envoy, MiB", |s| mebibytes(s.envoy_bytes)),
            ("VM, MiB", |s| mebibytes(s.vm_bytes)),
            ("slots in use", |s| s.slots as f64),
            ("coordinator, MiB", |s| mebibytes(s.coordinator_bytes)),
        ];
        for (name, figure) in rows {
            let [first, second, third, last] = self.quarters(figure);
            writeln!(
                page,
                "| {name} | {first:.2} | {second:.2} | {third:.2} | {last:.2} |"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Latencies;

    fn sample(at: u64, admitted: f64, mebibytes: u64) -> Sample {
        Sample {
            at: Duration::from_secs(at),
            admitted,
            failures: 0,
            latencies: Latencies::default(),
            tenants: at,
            envoy_bytes: mebibytes << 20,
            vm_bytes: 1 << 20,
            slots: 1,
            coordinator_bytes: 1 << 20,
        }
    }

    fn report(samples: impl Iterator<Item = Sample>) -> Report {
        let samples = samples.collect();
        Report {
            samples,
            faults: Vec::new(),
        }
    }

    fn broken(report: &Report) -> Vec<&'static str> {
        let checks = report.checks().into_iter();
        let broken = checks.filter(|check| !check.holds);
        broken.map(|check| check.name).collect()
    }

    #[test]
    fn a_healthy_run_passes_each_check() {
        let healthy = report((1..=40).map(|i| sample(10 * i, 200.0, 60)));
        assert_eq!(broken(&healthy), [""; 0]);
    }

    #[test]
    fn growth_excess_and_failures_are_found() {
        let grows = report((1..=40).map(|i| sample(10 * i, 200.0, 60 + i)));
        assert_eq!(broken(&grows), ["an Envoy's memory is flat"]);
        let exceeds =
            report((1..=40).map(|i| sample(10 * i, if i == 7 { 220.0 } else { 190.0 }, 60)));
        assert_eq!(
            broken(&exceeds),
            ["no window admits more than the capacity and its slack"]
        );
        let mut fails = sample(5, 1.0, 60);
        fails.failures = 1;
        let fails = report((1..=9).map(|i| sample(10 * i, 1.0, 60)).chain([fails]));
        assert_eq!(broken(&fails), ["every request is answered"]);
    }
}
