//! The page of a report: charts, remarks, laws and figures, without any script.

use std::fmt::Write as _;

use tollgate_sim::sample::{ClientSample, Sample, ScopeSample};

use super::RunRecord;
use super::chart::{Chart, Line, Look, escaped, time};
use crate::simulate::comparison::{Comparison, HEADER};
use crate::simulate::figures;

/// The page, with `{{names}}` in place of what a run fills in.
const PAGE: &str = include_str!("page.html");
/// The page of a comparison, alike.
const COMPARISON: &str = include_str!("comparison.html");
/// Style of both.
const STYLE: &str = include_str!("style.css");

/// Heights of charts.
const LARGE: f64 = 300.0;
const SMALL: f64 = 200.0;

/// The most broken laws that are listed.
const VIOLATIONS_MAX: usize = 50;

// === free functions ===

/// Returns the page of a run.
pub(super) fn render(record: &RunRecord<'_>) -> String {
    let algorithm = record.algorithm;
    let algorithm = algorithm.map(|name| format!("All limits are divided by {name}."));
    let mut parts = parts_of_run(record.name, record.seed, record.duration);
    parts.extend([
        ("description", escaped(record.description)),
        ("algorithm", algorithm.unwrap_or_default()),
        ("figures", table_of_figures(record)),
        ("laws", laws(record)),
        ("marks", marks(record)),
        ("charts", charts(record)),
    ]);
    fill(PAGE, &parts)
}

/// Returns the page of a comparison.
pub(super) fn render_comparison(comparison: &Comparison) -> String {
    let Comparison {
        name,
        description,
        seed,
        duration,
        runs,
    } = comparison;
    let mut parts = parts_of_run(name, *seed, *duration);
    parts.extend([
        ("description", escaped(description)),
        ("table", table_of_runs(comparison)),
        (
            "charts",
            runs.iter().map(|run| run.chart.as_str()).collect(),
        ),
    ]);
    fill(COMPARISON, &parts)
}

/// Returns the chart of the whole fleet.
pub(super) fn fleet_chart(record: &RunRecord<'_>, title: &str) -> String {
    let times: Vec<f64> = record.samples.iter().map(|sample| sample.at).collect();
    let chart = Chart {
        title,
        height: SMALL,
        times: &times,
        duration: record.duration,
        lines: fleet(record),
        marks: record.marks,
    };
    chart.render()
}

fn parts_of_run(name: &str, seed: u64, duration: f64) -> Vec<(&'static str, String)> {
    let name = if name.is_empty() { "Simulation" } else { name };
    vec![
        ("name", escaped(name)),
        ("seed", seed.to_string()),
        ("duration", time(duration)),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("style", STYLE.to_owned()),
    ]
}

/// Returns `template` with `parts` in place of their names.
fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut page = String::with_capacity(template.len());
    let mut rest = template;
    // Names are looked for in the template alone, never in what a run fills in.
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        let filled = parts.iter().find(|(part, _)| *part == name);
        page.push_str(filled.map_or("", |(_, text)| text));
        rest = after;
    }
    page + rest
}

fn table_of_figures(record: &RunRecord<'_>) -> String {
    let rows = figures::rows(record.figures).into_iter();
    let rows = rows.map(|(name, value)| {
        format!(
            "<tr><th>{}</th><td>{}</td></tr>",
            escaped(name),
            escaped(&value)
        )
    });
    rows.collect()
}

fn table_of_runs(comparison: &Comparison) -> String {
    let row = |tag: &str, cells: &[String]| {
        let cells = cells
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let header: Vec<String> = HEADER
        .to_lowercase()
        .split('|')
        .map(str::to_owned)
        .collect();
    let rows = comparison.rows().into_iter().map(|cells| row("td", &cells));
    row("th", &header) + &rows.collect::<String>()
}

fn laws(record: &RunRecord<'_>) -> String {
    if record.violations.is_empty() {
        return "<p class=\"good\">Held in every sample: no scope's or group's leases sum to more than its \
                capacity, neither as Envoys use them nor in the coordinators' lease tables. Safe \
                capacity that a coordinator lends while its parent is away comes on top.</p>"
            .to_owned();
    }
    let count = record.violations.len();
    let mut text = format!("<p class=\"bad\">{count} times broken:</p><ul>");
    for broken in record.violations.iter().take(VIOLATIONS_MAX) {
        let _ = write!(
            text,
            "<li>{}: {}</li>",
            time(broken.at),
            escaped(&broken.text)
        );
    }
    text + "</ul>"
}

fn marks(record: &RunRecord<'_>) -> String {
    if record.marks.is_empty() {
        return "<p>None.</p>".to_owned();
    }
    let marks = record.marks.iter();
    let marks = marks.map(|mark| format!("<li>{}: {}</li>", time(mark.at), escaped(&mark.text)));
    format!("<ol>{}</ol>", marks.collect::<String>())
}

fn charts(record: &RunRecord<'_>) -> String {
    let named = record.scopes.iter().enumerate();
    let named = named.map(|(number, name)| match record.is_unlimited(number) {
        true => format!("{name}, unlimited"),
        false => (*name).to_owned(),
    });
    let named: Vec<String> = named.collect();
    let times: Vec<f64> = record.samples.iter().map(|sample| sample.at).collect();
    let chart = |title, height, lines| Chart {
        title,
        height,
        times: &times,
        duration: record.duration,
        lines,
        marks: record.marks,
    };
    let mut html = chart("Whole fleet, requests per second", LARGE, fleet(record)).render();
    // One scope is the whole.
    let several = named.iter().enumerate();
    for (number, name) in several.filter(|_| named.len() > 1) {
        html += &chart(name, SMALL, scope(record, number)).render();
    }
    let title = match record.scopes.first() {
        Some(scope) => format!("{scope}, leases of each Envoy"),
        None => String::new(),
    };
    html += &chart(&title, LARGE, clients(record, |client| drawn(client.has))).render();
    let title = title.replace("leases of", "demand at");
    html + &chart(&title, LARGE, clients(record, |client| client.wants)).render()
}

fn fleet<'a>(record: &RunRecord<'_>) -> Vec<Line<'a>> {
    let line = |name, class, value: fn(&Sample) -> f64| Line {
        name,
        look: Look::Class(class),
        values: record.samples.iter().map(value).collect(),
    };
    vec![
        line("capacity", "capacity", |sample| sample.capacity),
        line("wants", "wants", |sample| sample.wants),
        line("admitted", "admitted", |sample| sample.admitted),
        line("has", "has", |sample| sample.has),
    ]
}

fn scope<'a>(record: &RunRecord<'_>, number: usize) -> Vec<Line<'a>> {
    let line = |name, class, value: fn(&ScopeSample) -> f64| {
        let samples = record.samples.iter();
        let samples = samples.map(|sample| sample.scopes.get(number).map_or(0.0, value));
        Line {
            name,
            look: Look::Class(class),
            values: samples.collect(),
        }
    };
    vec![
        line("capacity", "capacity", |scope| drawn(scope.capacity)),
        line("wants", "wants", |scope| scope.wants),
        line("admitted", "admitted", |scope| scope.admitted),
        line("has", "has", |scope| drawn(scope.has)),
    ]
}

/// Returns a rate as it is drawn: without a bound not at all.
fn drawn(rate: Option<f64>) -> f64 {
    rate.unwrap_or(f64::NAN)
}

fn clients<'a>(record: &RunRecord<'a>, value: fn(&ClientSample) -> f64) -> Vec<Line<'a>> {
    let lines = record.envoys.iter().enumerate().map(|(number, name)| {
        let samples = record.samples.iter();
        let samples = samples.map(|sample| sample.clients.get(number).map_or(0.0, value));
        Line {
            name,
            // The golden angle keeps neighbours apart.
            look: Look::Hue(number * 137 % 360),
            values: samples.collect(),
        }
    });
    lines.collect()
}
