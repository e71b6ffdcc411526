//! Recorded demand, from CSV: a time and a rate in each line.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use csv::{Position, ReaderBuilder, StringRecord, Trim};
use tollgate_sim::scenario::{Amount, DemandSpec, Program, ScenarioError, Span, Trace};

// === free functions ===

/// Reads the traces that a demand names, from files beside the scenario in `folder`.
pub(super) fn read_all(demand: &mut [DemandSpec], folder: &Path) -> Result<(), Vec<ScenarioError>> {
    let mut errors = Vec::new();
    for (i, spec) in demand.iter_mut().enumerate() {
        let programs = [("each", &mut spec.each), ("total", &mut spec.total)];
        for (name, program) in programs {
            if let Some(Program::Trace(trace)) = program
                && let Err(error) = read(trace, folder)
            {
                errors.push(ScenarioError {
                    field: format!("demand[{i}].{name}.trace"),
                    rule: format!("{error:#}"),
                });
            }
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

fn read(trace: &mut Trace, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(&trace.file);
    let named = || path.display().to_string();
    let text = fs::read_to_string(&path).with_context(named)?;
    trace.points = parse(&text).with_context(named)?;
    Ok(())
}

/// Returns the points of `text`. A first line without a number is a header.
fn parse(text: &str) -> anyhow::Result<Vec<(Span, Amount)>> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let mut points = Vec::new();
    for (number, record) in reader.records().enumerate() {
        let record = record?;
        let first = record.get(0).unwrap_or_default();
        let is_header = number == 0 && !first.starts_with(|first: char| first.is_ascii_digit());
        if is_header {
            continue;
        }
        let line = record.position().map_or(0, Position::line);
        let point = point(&record).with_context(|| format!("line {line}"))?;
        points.push(point);
    }
    Ok(points)
}

fn point(record: &StringRecord) -> anyhow::Result<(Span, Amount)> {
    let fields: Vec<&str> = record.iter().collect();
    let [at, rate] = fields[..] else {
        let line = fields.join(",");
        return Err(anyhow!("{line:?} is not `<seconds>,<requests per second>`"));
    };
    let at = match at.parse::<f64>() {
        Ok(seconds) => Span(Duration::try_from_secs_f64(seconds)?),
        Err(_) => at.parse::<Span>()?,
    };
    Ok((at, rate.parse::<Amount>()?))
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
        for (wrong, why) in [
            ("5", "not `<sec"),
            ("1,2,3", "not `<sec"),
            ("1,-2", "-2"),
            ("y,1", "\"y\""),
        ] {
            let error = format!("{:#}", parse(&format!("0,1\n{wrong}")).unwrap_err());
            assert!(error.contains(why) && error.contains("line 2: "), "{error}");
        }
    }
}
