//! The figures of all attacks, as Markdown.

use std::io::Write as _;

use anyhow::Result;

use crate::client::Served;

/// The figures of one attack.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) attack: &'static str,
    /// Bytes before, at most meanwhile, and after it.
    pub(crate) memory: [u64; 3],
    /// The probe, the new Envoy and the Envoy that keeps its connection.
    pub(crate) seen: Vec<Served>,
}

/// Prints `rows`.
pub(crate) fn print(rows: &[Row]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| attack | MiB before / peak / after | health probe | new gRPC client | connected gRPC client |\n\
         |---|---|---|---|---|"
    )?;
    for Row {
        attack,
        memory,
        seen,
    } in rows
    {
        let [before, peak, after] = memory.map(|bytes| bytes >> 20);
        let seen: Vec<_> = seen.iter().map(cell).collect();
        let seen = seen.join(" | ");
        writeln!(out, "| {attack} | {before} / {peak} / {after} | {seen} |")?;
    }
    writeln!(
        out,
        "\nSeconds locked out; attempts that failed, of all; milliseconds p50 / p99 / max of the others."
    )?;
    Ok(())
}

fn cell(served: &Served) -> String {
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
