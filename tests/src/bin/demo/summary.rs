//! Summary of the whole run.

use std::time::Duration;

use tollgate_tests::record::Record;

use crate::fleet::{DemoSnapshot, Tenant};

/// Time of the first burst and the first leases; rates are measured after it.
const SETTLED: Duration = Duration::from_secs(2);

/// Collects the figures of the summary.
pub(crate) struct Summary {
    tenants: &'static [Tenant],
    /// Largest sum of leases in any snapshot, by tenant, as a part of the capacity.
    largest: Vec<f64>,
}

// === impl Summary ===

impl Summary {
    pub(crate) fn new(tenants: &'static [Tenant]) -> Self {
        Self {
            tenants,
            largest: vec![0.0; tenants.len()],
        }
    }

    /// Adds a snapshot.
    pub(crate) fn note(&mut self, snapshot: &DemoSnapshot) {
        for (largest, row) in self.largest.iter_mut().zip(&snapshot.rows) {
            let sum: f64 = row.leases.iter().sum();
            *largest = largest.max(sum / row.tenant.capacity);
        }
    }

    /// Lines of the summary, from each tenant's record.
    pub(crate) fn lines(&self, records: &[Record], length: Duration) -> Vec<String> {
        let mut lines = vec![
            String::new(),
            format!(
                "Summary, after the first {} s. Both Envoys together may admit the capacity.",
                SETTLED.as_secs()
            ),
            format!(
                "{:<7} {:>9} {:>9} {:>11} {:>14} {:>9} {:>20}",
                "tenant",
                "capacity",
                "wanted/s",
                "admitted/s",
                "of capacity",
                "refused",
                "leases, at most"
            ),
        ];
        let settled = SETTLED..length;
        for ((tenant, record), largest) in self.tenants.iter().zip(records).zip(&self.largest) {
            let tally = record.within(settled.clone());
            let seconds = (length - SETTLED).as_secs_f64();
            let admitted = tally.admitted as f64 / seconds;
            lines.push(format!(
                "{:<7} {:>9.0} {:>9.0} {:>11.1} {:>12.1} % {:>7.1} % {:>7.1} % of capacity",
                tenant.name,
                tenant.capacity,
                tally.offered as f64 / seconds,
                admitted,
                100.0 * admitted / tenant.capacity,
                100.0 * tally.refused as f64 / tally.offered.max(1) as f64,
                100.0 * largest,
            ));
        }
        lines.push(failures(records));
        lines
    }
}

fn failures(records: &[Record]) -> String {
    match records
        .iter()
        .map(|record| record.total().failed)
        .sum::<u64>()
    {
        0 => "No request failed.".to_owned(),
        failed => format!("{failed} requests FAILED: neither admitted nor refused."),
    }
}
