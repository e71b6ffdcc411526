//! The page of a report: figures, laws, charts and events, in the style of the coordinator's pages.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use tollgate_sim::sample::{ClientSample, Sample, ScopeSample};

use super::RunRecord;
use super::chart::{Line, figure, time};
use crate::simulate::comparison::{Comparison, HEADER};
use crate::simulate::figures;

/// Lines of the fleet and of a scope, with the classes of their looks.
const RATES: [(&str, &str); 4] = [
    ("capacity", "capacity limit"),
    ("wants", "wants b1"),
    ("admitted", "admitted b3"),
    ("has", "has b0"),
];

/// The most broken laws that are listed.
const VIOLATIONS_MAX: usize = 50;

// === free functions ===

/// Returns the page of a run.
pub(super) fn render(record: &RunRecord<'_>) -> String {
    let main = html! {
        section {
            h1 { (named(record.name)) }
            p.dim {
                (record.description)
                @if let Some(name) = record.algorithm { " All limits are divided by " (name) "." }
            }
        }
        section { h2 { "Figures" } (table_of_figures(record)) }
        section {
            h2 { "Limits" }
            (table(&figures::LIMIT_HEADER.replace('_', " "), record.limits.iter().map(figures::shown_limit_row)))
        }
        section { h2 { "Laws" } (laws(record)) }
        section { h2 { "Course" } (charts(record)) }
        section { h2 { "Events" } (events(record)) }
        p.dim {
            "Seed " (record.seed) ", " (time(record.duration)) " of virtual time. Beside this page: report.json, "
            "samples.csv, scopes.csv, clients.csv, limits.csv."
        }
    };
    page(
        &format!("{}: Tollgate simulation", named(record.name)),
        &main,
    )
}

/// Returns the page of a comparison.
pub(super) fn render_comparison(comparison: &Comparison) -> String {
    let main = html! {
        section { h1 { (named(&comparison.name)) } p.dim { (comparison.description) } }
        section {
            h2 { "Algorithms" }
            (table(&HEADER.to_lowercase(), comparison.rows().into_iter()))
            p.dim {
                "Fairness is Jain's index over leases as parts of max-min shares: 1 is max-min. Time to fair is how long "
                "5 % of a capacity or more stayed in other hands than max-min gives it to. Only capacities that more is "
                "wanted of than there is count for both."
            }
        }
        section {
            h2 { "Courses" }
            p.dim { "The whole fleet with each algorithm. Numbered lines are events, which each report lists." }
            @for run in &comparison.runs { (run.chart) }
        }
        p.dim {
            "Seed " (comparison.seed) ", " (time(comparison.duration)) " of virtual time for each. Beside this page: "
            "comparison.json, and a folder with the report of each algorithm."
        }
    };
    page(
        &format!(
            "{}: algorithms compared by Tollgate",
            named(&comparison.name)
        ),
        &main,
    )
}

/// Returns the chart of the whole fleet.
pub(super) fn fleet_chart(record: &RunRecord<'_>, title: &str) -> Markup {
    let lines = rates(record, |sample| {
        let Sample {
            capacity,
            wants,
            admitted,
            has,
            ..
        } = *sample;
        [capacity, wants, admitted, has]
    });
    figure(record, title, lines)
}

fn page(title: &str, main: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(tollgate_admin::STYLE)) }
            }
            body {
                header { span.brand { "Tollgate simulation" } p.version { (env!("CARGO_PKG_VERSION")) } }
                main { (main) }
            }
        }
    };
    page.into_string()
}

fn named(name: &str) -> &str {
    if name.is_empty() { "Simulation" } else { name }
}

fn table_of_figures(record: &RunRecord<'_>) -> Markup {
    html! {
        table.narrow { @for (name, value) in figures::rows(record.figures) {
            tr { th scope="row" { (name) } td.num { (value) } }
        } }
    }
}

/// Returns rows below a header, whose columns are apart by `|`.
fn table(header: &str, rows: impl Iterator<Item = Vec<String>>) -> Markup {
    html! {
        div.wide { table {
            thead { tr { @for (i, name) in header.split('|').enumerate() { th.num[i > 0] scope="col" { (name) } } } }
            tbody { @for row in rows {
                tr { @for (i, text) in row.iter().enumerate() { td.num[i > 0] { (text) } } }
            } }
        } }
    }
}

fn laws(record: &RunRecord<'_>) -> Markup {
    let count = record.violations.len();
    html! {
        @if count == 0 {
            p.good {
                "Held in every sample: no scope's or group's leases sum to more than its capacity, neither as Envoys "
                "use them nor in the coordinators' lease tables. Safe capacity that a coordinator lends while its "
                "parent is away comes on top."
            }
        } @else {
            p.alert { (count) " times broken:" }
            ul { @for broken in record.violations.iter().take(VIOLATIONS_MAX) {
                li { (time(broken.at)) ": " (broken.text) }
            } }
        }
    }
}

fn events(record: &RunRecord<'_>) -> Markup {
    html! {
        @if record.marks.is_empty() {
            p { "None." }
        } @else {
            ol { @for mark in record.marks { li { (time(mark.at)) ": " (mark.text) } } }
        }
    }
}

fn charts(record: &RunRecord<'_>) -> Markup {
    let first = record.scopes.first().copied().unwrap_or_default();
    html! {
        (fleet_chart(record, "Whole fleet, requests per second"))
        // One scope is the whole.
        @for (number, name) in record.scopes.iter().enumerate().filter(|_| record.scopes.len() > 1) {
            (scope_chart(record, number, name))
        }
        (figure(record, &format!("{first}, leases of each Envoy"), clients(record, |client| drawn(client.has))))
        (figure(record, &format!("{first}, demand at each Envoy"), clients(record, |client| client.wants)))
    }
}

fn scope_chart(record: &RunRecord<'_>, number: usize, name: &str) -> Markup {
    let title = if record.is_unlimited(number) {
        format!("{name}, unlimited")
    } else {
        name.to_owned()
    };
    let lines = rates(record, |sample| {
        let scope = sample.scopes.get(number).copied().unwrap_or_default();
        let ScopeSample {
            wants, admitted, ..
        } = scope;
        [drawn(scope.capacity), wants, admitted, drawn(scope.has)]
    });
    figure(record, &title, lines)
}

/// Returns the lines of [`RATES`], whose values `of` takes out of a sample.
fn rates<'a>(record: &RunRecord<'_>, of: impl Fn(&Sample) -> [f64; 4]) -> Vec<Line<'a>> {
    let named = RATES.iter().enumerate().map(|(i, (name, class))| Line {
        class: (*class).into(),
        title: (*name).into(),
        values: record.samples.iter().map(|sample| of(sample)[i]).collect(),
        ..Line::default()
    });
    named.collect()
}

/// Returns a line for each Envoy, in eight colours.
fn clients<'a>(record: &RunRecord<'a>, value: fn(&ClientSample) -> f64) -> Vec<Line<'a>> {
    let named = record.envoys.iter().enumerate().map(|(i, name)| Line {
        class: format!("one b{}", i % 8).into(),
        title: (*name).into(),
        values: record
            .samples
            .iter()
            .map(|sample| sample.clients.get(i).map_or(0.0, value))
            .collect(),
        ..Line::default()
    });
    named.collect()
}

/// Returns a rate as it is drawn: without a bound not at all.
fn drawn(rate: Option<f64>) -> f64 {
    rate.unwrap_or(f64::NAN)
}
