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

/// Lines of the fleet and of a scope, which are classes of the page's style, too.
const RATES: [&str; 4] = ["capacity", "wants", "admitted", "has"];

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
        ("limits", table_of_limits(record)),
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
    let rows =
        rows.map(|(name, value)| format!("<tr>{}{}</tr>", cell("th", name), cell("td", &value)));
    rows.collect()
}

fn table_of_limits(record: &RunRecord<'_>) -> String {
    let rows = record.limits.iter().map(figures::limit_row);
    table(&figures::LIMIT_HEADER.replace('_', " "), rows)
}

fn table_of_runs(comparison: &Comparison) -> String {
    table(&HEADER.to_lowercase(), comparison.rows().into_iter())
}

/// Returns rows below a header, whose columns are apart by `|`.
fn table(header: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let header: String = header.split('|').map(|name| cell("th", name)).collect();
    let rows = rows.map(|row| {
        let cells = row.iter().map(|text| cell("td", text));
        format!("<tr>{}</tr>", cells.collect::<String>())
    });
    format!("<tr>{header}</tr>{}", rows.collect::<String>())
}

fn cell(tag: &str, text: &str) -> String {
    format!("<{tag}>{}</{tag}>", escaped(text))
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
    let mut html = fleet_chart(record, "Whole fleet, requests per second");
    // One scope is the whole.
    let several = record.scopes.iter().enumerate();
    for (number, name) in several.filter(|_| record.scopes.len() > 1) {
        let title = match record.is_unlimited(number) {
            true => format!("{name}, unlimited"),
            false => (*name).to_owned(),
        };
        let rates = rates(record, |sample| {
            let scope = sample.scopes.get(number).copied().unwrap_or_default();
            let ScopeSample {
                wants, admitted, ..
            } = scope;
            [drawn(scope.capacity), wants, admitted, drawn(scope.has)]
        });
        html += &chart(record, &title, SMALL, rates);
    }
    let scope = record.scopes.first().copied().unwrap_or_default();
    let leases = clients(record, |client| drawn(client.has));
    let wants = clients(record, |client| client.wants);
    html += &chart(
        record,
        &format!("{scope}, leases of each Envoy"),
        LARGE,
        leases,
    );
    html + &chart(
        record,
        &format!("{scope}, demand at each Envoy"),
        LARGE,
        wants,
    )
}

/// Returns the chart of the whole fleet.
pub(super) fn fleet_chart(record: &RunRecord<'_>, title: &str) -> String {
    let rates = rates(record, |sample| {
        let Sample {
            capacity,
            wants,
            admitted,
            has,
            ..
        } = *sample;
        [capacity, wants, admitted, has]
    });
    chart(record, title, LARGE, rates)
}

fn chart(record: &RunRecord<'_>, title: &str, height: f64, lines: Vec<Line<'_>>) -> String {
    let times: Vec<f64> = record.samples.iter().map(|sample| sample.at).collect();
    let chart = Chart {
        title,
        height,
        times: &times,
        duration: record.duration,
        lines,
        marks: record.marks,
    };
    chart.render()
}

/// Returns the lines of [`RATES`], whose values `of` takes out of a sample.
fn rates<'a>(record: &RunRecord<'_>, of: impl Fn(&Sample) -> [f64; 4]) -> Vec<Line<'a>> {
    let named = RATES.iter().enumerate();
    let lines =
        named.map(|(i, name)| line(record, name, Look::Class(name), |sample| of(sample)[i]));
    lines.collect()
}

/// Returns a line for each Envoy.
fn clients<'a>(record: &RunRecord<'a>, value: fn(&ClientSample) -> f64) -> Vec<Line<'a>> {
    let named = record.envoys.iter().enumerate();
    let lines = named.map(|(number, name)| {
        // The golden angle keeps neighbours apart.
        let look = Look::Hue(number * 137 % 360);
        let value = |sample: &Sample| sample.clients.get(number).map_or(0.0, value);
        line(record, name, look, value)
    });
    lines.collect()
}

fn line<'a>(
    record: &RunRecord<'_>,
    name: &'a str,
    look: Look,
    value: impl Fn(&Sample) -> f64,
) -> Line<'a> {
    Line {
        name,
        look,
        values: record.samples.iter().map(value).collect(),
    }
}

/// Returns a rate as it is drawn: without a bound not at all.
fn drawn(rate: Option<f64>) -> f64 {
    rate.unwrap_or(f64::NAN)
}
