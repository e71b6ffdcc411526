//! Charts of a report.

use maud::{Markup, PreEscaped, html};
use tollgate_chart::Chart;
pub(super) use tollgate_chart::Series as Line;
use tollgate_core::quantity::duration_text;

use super::RunRecord;

/// The most events that are drawn; all are in the list.
const EVENTS_MAX: usize = 200;

/// About how many labels an axis of times has.
const LABELS: f64 = 6.0;

/// Distances of labels on an axis of times, in seconds.
const STEPS: [f64; 13] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0,
];

/// The most lines that a legend names.
const LEGEND_MAX: usize = 4;

// === free functions ===

/// Returns the chart of `lines` over the time of a run, with its title and legend.
pub(super) fn figure(record: &RunRecord<'_>, title: &str, lines: Vec<Line<'_>>) -> Markup {
    let duration = record.duration;
    let step = STEPS.into_iter().find(|step| duration / step <= LABELS);
    let step = step.unwrap_or(duration / LABELS);
    let labels = (0..).map(|i| f64::from(i) * step);
    let labels = labels.take_while(|at| *at <= duration * 1.000_001);
    let events = record.marks.iter().take(EVENTS_MAX);
    let chart = Chart {
        unit: "requests",
        span: [0.0, duration],
        times: record.samples.iter().map(|sample| sample.at).collect(),
        bands: Vec::new(),
        lines,
        labels: labels.map(|at| (at, time(at))).collect(),
        events: events.map(|mark| (mark.at, mark.text.as_str())).collect(),
    };
    html! {
        figure {
            figcaption { (title) }
            @if chart.lines.len() <= LEGEND_MAX { (legend(&chart.lines)) }
            div.plot { svg role="img" aria-label=(title) { (PreEscaped(chart.draw())) } }
        }
    }
}

fn legend(lines: &[Line<'_>]) -> Markup {
    html! {
        ul.legend.inline { @for line in lines {
            li {
                svg.swatch viewBox="0 0 12 12" aria-hidden="true" { path.line.(line.class) d="M0 6H12" {} }
                span { (line.title) }
            }
        } }
    }
}

/// Returns seconds as a person writes them.
pub(super) fn time(seconds: f64) -> String {
    duration_text((seconds * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use tollgate_sim::figures::Figures;
    use tollgate_sim::sample::Sample;

    use super::*;

    #[test]
    fn a_chart_has_round_times_and_no_name_breaks_the_page() {
        let samples = [0.0, 450.0, 900.0].map(|at| Sample {
            at,
            ..Sample::default()
        });
        let record = RunRecord {
            name: "",
            description: "",
            seed: 1,
            algorithm: None,
            duration: 900.0,
            figures: &Figures::default(),
            limits: Vec::new(),
            marks: &[],
            violations: &[],
            scopes: Vec::new(),
            envoys: Vec::new(),
            samples: &samples,
        };
        let line = Line {
            class: "has".into(),
            title: "a<script>".into(),
            values: vec![1.0, 2.0, 3.0],
            ..Line::default()
        };
        let html = figure(&record, "\"x\" & y", vec![line]).into_string();
        for part in [
            ">0s</text>",
            ">5m</text>",
            ">15m</text>",
            "a&lt;script&gt;",
            "&quot;x&quot; &amp; y",
        ] {
            assert!(html.contains(part), "no {part} in {html}");
        }
        assert!(!html.contains("<script>"), "{html}");
    }
}
