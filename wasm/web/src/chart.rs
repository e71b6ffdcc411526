//! Chart of the last minute: leases stacked over each other, below the capacity.

use tollgate_chart::{Chart, Series};

use crate::history::{History, POINTS_MAX, Point, STEP};
use crate::settings::NAMES;

/// Returns the history until `now`, in seconds since the start, as the content of an SVG element.
pub(crate) fn draw(history: &History, now: f64) -> String {
    let span = STEP.as_secs_f64() * (POINTS_MAX - 1) as f64;
    let count = history.last().map_or(0, |point| point.leases.len());
    let leases = (0..count).map(|envoy| band(history, envoy, "", |point| &point.leases));
    let fallbacks = (0..count).map(|envoy| band(history, envoy, " fallback", |of| &of.fallbacks));
    let ago = |seconds: f64, text: &str| (now - seconds, text.to_owned());
    let chart = Chart {
        unit: "requests",
        span: [now - span, now],
        times: history.points().map(|point| point.at).collect(),
        bands: leases.chain(fallbacks).collect(),
        lines: vec![
            line(history, "admitted", |point| point.admitted),
            line(history, "limit", |point| point.capacity),
        ],
        labels: vec![
            ago(span, "60s ago"),
            ago(span / 2.0, "30s"),
            ago(0.0, "now"),
        ],
        events: Vec::new(),
    };
    chart.draw()
}

// === free functions ===

/// Returns what an Envoy has at each point.
fn band(
    history: &History,
    envoy: usize,
    kind: &str,
    rates: fn(&Point) -> &Vec<f64>,
) -> Series<'static> {
    let rate = |point: &Point| rates(point).get(envoy).copied().unwrap_or_default();
    let name = NAMES.get(envoy).copied().unwrap_or_default();
    Series {
        class: format!("b{envoy}{kind}").into(),
        title: name.into(),
        name: name.into(),
        values: history.points().map(rate).collect(),
    }
}

fn line(history: &History, name: &'static str, rate: fn(&Point) -> f64) -> Series<'static> {
    Series {
        class: name.into(),
        title: name.into(),
        values: history.points().map(rate).collect(),
        ..Series::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: f64, leases: [f64; 2], capacity: f64) -> Point {
        Point {
            at,
            capacity,
            admitted: 5.0,
            leases: leases.to_vec(),
            fallbacks: vec![0.0, 0.0],
        }
    }

    #[test]
    fn bands_stand_on_each_other_below_the_capacity() {
        let mut history = History::default();
        history.push(point(0.0, [10.0, 0.0], 100.0));
        history.push(point(60.0, [50.0, 50.0], 100.0));
        let svg = draw(&history, 60.0);
        for part in [
            "class=\"band b0\" d=\"M0.0 90.00L1000.0 50.00L1000.0 100.00L0.0 100.00Z",
            "class=\"band b1\" d=\"M0.0 90.00L1000.0 0.00L1000.0 50.00L0.0 90.00Z",
            "class=\"line limit\" d=\"M0.0 0.00L1000.0 0.00\"",
            ">east</text>",
            ">west</text>",
        ] {
            assert!(svg.contains(part), "no {part} in {svg}");
        }
        assert!(!svg.contains("fallback"), "an empty band is drawn");
    }

    #[test]
    fn an_empty_history_is_drawn() {
        let svg = draw(&History::default(), 0.0);
        assert!(
            svg.contains("now") && !svg.contains("NaN") && !svg.contains("inf"),
            "{svg}"
        );
    }
}
