//! Markdown table of the figures of all attacks.

use std::io::Write as _;

use anyhow::Result;

use crate::client::ServiceRecord;

/// Figures of one attack.
#[derive(Debug)]
pub(crate) struct AttackRow {
    pub(crate) attack: &'static str,
    /// Memory in bytes before, at most during, and after the attack.
    pub(crate) memory: [u64; 3],
    /// Service of the health probe, the new lease client and the connected lease client.
    pub(crate) clients: Vec<ServiceRecord>,
}

/// Prints `rows`.
pub(crate) fn print(rows: &[AttackRow]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| attack | MiB before / peak / after | health probe | new gRPC client | connected gRPC client |\n\
         |---|---|---|---|---|"
    )?;
    for AttackRow {
        attack,
        memory,
        clients,
    } in rows
    {
        let [before, peak, after] = memory.map(|bytes| bytes >> 20);
        let cells: Vec<_> = clients.iter().map(cell).collect();
        let cells = cells.join(" | ");
        writeln!(out, "| {attack} | {before} / {peak} / {after} | {cells} |")?;
    }
    writeln!(
        out,
        "\nSeconds locked out; failed attempts of all attempts; latency of the successful ones in ms, p50 / p99 / max."
    )?;
    Ok(())
}

fn cell(served: &ServiceRecord) -> String {
    let mut sorted = served.latencies_ms.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(index).copied().unwrap_or(f64::NAN)
    };
    format!(
        "{:.0} s; {} of {}; {:.1} / {:.1} / {:.1}",
        served.locked_out.as_secs_f64(),
        served.failed,
        served.failed + sorted.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    )
}
