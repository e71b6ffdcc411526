//! Chart of the last minute as SVG: leases stacked over each other, below the capacity.

use std::fmt::Write as _;

use crate::history::{History, POINTS_MAX, Point, STEP};
use crate::narration::rate_text;
use crate::settings::NAMES;

/// Space for the labels of the rates, and for the names of the Envoys.
const LEFT: f64 = 44.0;
const RIGHT: f64 = 52.0;
const TOP: f64 = 8.0;
/// Space for the labels of the times.
const BOTTOM: f64 = 20.0;
/// Smallest height of a band with a name beside it.
const NAMED_MIN: f64 = 11.0;
/// The smallest and the largest chart, in pixels.
const SIZE_MIN: [f64; 2] = [200.0, 100.0];
const SIZE_MAX: f64 = 10_000.0;

/// Chart of one moment.
#[derive(Debug)]
struct Chart<'a> {
    points: Vec<&'a Point>,
    width: f64,
    height: f64,
    /// Time at the right edge, in seconds since the start.
    now: f64,
    /// Rate at the upper edge.
    top: f64,
}

/// Returns the history until `now` as the content of an SVG element of that size, in pixels.
pub(crate) fn draw(history: &History, now: f64, [width, height]: [f64; 2]) -> String {
    let points: Vec<_> = history.points().collect();
    let highest = |most: f64, point: &&Point| {
        let high = point.height().max(point.capacity).max(point.admitted);
        most.max(high)
    };
    let chart = Chart {
        width: side(width, SIZE_MIN[0]),
        height: side(height, SIZE_MIN[1]),
        now,
        top: points.iter().fold(1.0, highest) * 1.08,
        points,
    };
    chart.svg()
}

// === impl Chart ===

impl Chart<'_> {
    fn svg(&self) -> String {
        let mut svg = String::new();
        self.grid(&mut svg);
        let count = self.points.last().map_or(0, |point| point.leases.len());
        for envoy in 0..count {
            let (lower, upper) = (
                |p: &Point| sum(&p.leases, envoy),
                |p: &Point| sum(&p.leases, envoy + 1),
            );
            self.band(&mut svg, &format!("b{envoy}"), lower, upper);
        }
        for envoy in 0..count {
            let lower = |p: &Point| p.leased() + sum(&p.fallbacks, envoy);
            let upper = |p: &Point| p.leased() + sum(&p.fallbacks, envoy + 1);
            self.band(&mut svg, &format!("b{envoy} fallback"), lower, upper);
        }
        self.line(&mut svg, "admitted", |point| point.admitted);
        self.steps(&mut svg);
        self.names(&mut svg);
        svg
    }

    fn x(&self, at: f64) -> f64 {
        let span = STEP.as_secs_f64() * (POINTS_MAX - 1) as f64;
        let right = self.width - RIGHT;
        right - (self.now - at) / span * (right - LEFT)
    }

    fn y(&self, rate: f64) -> f64 {
        let bottom = self.height - BOTTOM;
        bottom - rate / self.top * (bottom - TOP)
    }

    /// Draws lines at round rates, and the labels of both axes.
    fn grid(&self, svg: &mut String) {
        let right = self.width - RIGHT;
        let step = tick(self.top);
        for i in 0..=(self.top / step) as u32 {
            let rate = f64::from(i) * step;
            let y = self.y(rate);
            let (label, text) = (LEFT - 6.0, rate_text(rate));
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right:.1}\"/>\
                 <text class=\"rate\" x=\"{label}\" y=\"{y:.1}\">{text}</text>"
            );
        }
        let y = self.height - 4.0;
        for (ago, anchor, text) in [
            (60.0, "start", "60 s ago"),
            (30.0, "middle", "30 s"),
            (0.0, "end", "now"),
        ] {
            let x = self.x(self.now - ago);
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
            );
        }
    }

    fn band(
        &self,
        svg: &mut String,
        class: &str,
        lower: impl Fn(&Point) -> f64,
        upper: impl Fn(&Point) -> f64,
    ) {
        if self.points.iter().all(|point| upper(point) <= lower(point)) {
            return;
        }
        let _ = write!(svg, "<path class=\"band {class}\" d=\"");
        let above = self.points.iter().map(|point| (point.at, upper(point)));
        let below = self.points.iter().rev();
        let below = below.map(|point| (point.at, lower(point)));
        for (i, (at, rate)) in above.chain(below).enumerate() {
            let letter = if i == 0 { 'M' } else { 'L' };
            let _ = write!(svg, "{letter}{:.1} {:.1}", self.x(at), self.y(rate));
        }
        svg.push_str("Z\"/>");
    }

    fn line(&self, svg: &mut String, class: &str, rate: impl Fn(&Point) -> f64) {
        if self.points.is_empty() {
            return;
        }
        let _ = write!(svg, "<path class=\"{class}\" d=\"");
        for (i, point) in self.points.iter().enumerate() {
            let letter = if i == 0 { 'M' } else { 'L' };
            let _ = write!(
                svg,
                "{letter}{:.1} {:.1}",
                self.x(point.at),
                self.y(rate(point))
            );
        }
        svg.push_str("\"/>");
    }

    /// Draws the capacity, which changes at once.
    fn steps(&self, svg: &mut String) {
        let Some(first) = self.points.first() else {
            return;
        };
        let (x, y) = (self.x(first.at), self.y(first.capacity));
        let _ = write!(svg, "<path class=\"limit\" d=\"M{x:.1} {y:.1}");
        for pair in self.points.windows(2) {
            if pair[0].capacity != pair[1].capacity {
                let (x, y) = (self.x(pair[1].at), self.y(pair[1].capacity));
                let _ = write!(svg, "H{x:.1}V{y:.1}");
            }
        }
        let _ = write!(svg, "H{:.1}\"/>", self.width - RIGHT);
    }

    /// Writes the names of the Envoys beside their bands, where there is room.
    fn names(&self, svg: &mut String) {
        let Some(last) = self.points.last() else {
            return;
        };
        let x = self.width - RIGHT + 6.0;
        for (envoy, name) in NAMES.iter().enumerate().take(last.leases.len()) {
            let below = match last.leases[envoy] > 0.0 {
                true => [sum(&last.leases, envoy), sum(&last.leases, envoy + 1)],
                false => [envoy, envoy + 1].map(|end| last.leased() + sum(&last.fallbacks, end)),
            };
            let [lower, upper] = below.map(|rate| self.y(rate));
            if lower - upper >= NAMED_MIN {
                let y = (lower + upper) / 2.0;
                let _ = write!(
                    svg,
                    "<text class=\"name\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>"
                );
            }
        }
    }
}

// === free functions ===

/// Returns a width or height that can be drawn.
fn side(pixels: f64, least: f64) -> f64 {
    match pixels.is_nan() {
        true => least,
        false => pixels.clamp(least, SIZE_MAX),
    }
}

/// Returns the sum of the first `count` rates.
fn sum(rates: &[f64], count: usize) -> f64 {
    rates.iter().take(count).sum()
}

/// Returns a round distance of which two to five fit below `top`.
fn tick(top: f64) -> f64 {
    let unit = 10f64.powf((top / 2.0).log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|times| times * unit);
    let fits = steps.into_iter().find(|step| top / step >= 2.0);
    fits.unwrap_or(unit)
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
        let svg = draw(&history, 60.0, [496.0, 128.0]);
        // 100 below a top of 108, on 100 pixels that end at 108; 400 pixels from 44 on.
        assert!(
            svg.contains("class=\"band b0\" d=\"M44.0 98.7L444.0 61.7L444.0 108.0L44.0 108.0Z"),
            "{svg}"
        );
        assert!(
            svg.contains("class=\"band b1\" d=\"M44.0 98.7L444.0 15.4L444.0 61.7L44.0 98.7Z"),
            "{svg}"
        );
        assert!(
            svg.contains("class=\"limit\" d=\"M44.0 15.4H444.0\""),
            "{svg}"
        );
        assert!(svg.contains(">east</text>") && svg.contains(">west</text>"));
        assert!(!svg.contains("fallback"), "an empty band is drawn");
    }

    #[test]
    fn an_empty_history_and_a_small_size_are_drawn() {
        let svg = draw(&History::default(), 0.0, [0.0, f64::NAN]);
        assert!(
            svg.contains("now") && !svg.contains("NaN") && !svg.contains("inf"),
            "{svg}"
        );
    }

    #[test]
    fn ticks_are_round() {
        for (top, want) in [
            (108.0, 50.0),
            (1.08, 0.5),
            (250.0, 100.0),
            (4000.0, 2000.0),
            (999.0, 200.0),
        ] {
            let tick = tick(top);
            assert!((tick - want).abs() < 1e-9, "{top}: {tick}");
        }
    }
}
