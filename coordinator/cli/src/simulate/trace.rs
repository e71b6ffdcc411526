//! Recorded demand, from CSV: a time and a rate in each line.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use tollgate_sim::scenario::{Amount, DemandSpec, Program, Span, Trace};

use crate::failure::Failure;

// === free functions ===

/// Reads the traces that a demand names, from files beside the scenario in `folder`.
pub(super) fn read_all(demand: &mut [DemandSpec], folder: &Path) -> Result<(), Failure> {
    for spec in demand {
        let programs = spec.each.iter_mut().chain(&mut spec.total);
        for program in programs {
            if let Program::Trace(trace) = program {
                read(trace, folder)?;
            }
        }
    }
    Ok(())
}

fn read(trace: &mut Trace, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(&trace.file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string());
    let points = parse(&text.map_err(Failure::Usage)?);
    let named = |error: anyhow::Error| Failure::Usage(error.context(path.display().to_string()));
    trace.points = points.map_err(named)?;
    Ok(())
}

/// Returns the points of `text`. A first line without numbers is a header.
fn parse(text: &str) -> anyhow::Result<Vec<(Span, Amount)>> {
    let mut points = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_header = number == 0 && !line.starts_with(|first: char| first.is_ascii_digit());
        if line.is_empty() || line.starts_with('#') || is_header {
            continue;
        }
        let point = point(line).with_context(|| format!("line {}: {line:?}", number + 1))?;
        points.push(point);
    }
    Ok(points)
}

fn point(line: &str) -> anyhow::Result<(Span, Amount)> {
    let parts = line.split_once(',');
    let (at, rate) = parts.ok_or_else(|| anyhow!("is not `<seconds>,<requests per second>`"))?;
    let at = at.trim();
    let at = match at.parse::<f64>() {
        Ok(_) => format!("{at}s").parse::<Span>()?,
        Err(_) => at.parse::<Span>()?,
    };
    Ok((at, rate.trim().parse::<Amount>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_times_and_rates() {
        let text = "seconds,requests per second\n0,10\n1.5, 2k\n# night\n\n1m,0\n";
        let points = parse(text).unwrap();
        let want = [(0, 10.0), (1500, 2000.0), (60_000, 0.0)];
        let want = want.map(|(at, rate)| (Span::from_millis(at), Amount(rate)));
        assert_eq!(points, want);
        for (wrong, why) in [("5", "not `<sec"), ("1,-2", "-2"), ("y,1", "\"y\"")] {
            let error = format!("{:#}", parse(&format!("0,1\n{wrong}")).unwrap_err());
            assert!(error.contains(why) && error.contains("line"), "{error}");
        }
    }
}
