//! Chart of amounts over time, as SVG: bands that lie on each other, and lines.
//!
//! Its shapes stretch with the page, its texts do not: they are placed in per cent. So it needs no
//! script and no size. Colours are classes of the page's style.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use tollgate_core::quantity::amount_text;

use self::scale::Scale;

mod scale;

/// Size of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;

/// The most points of a line: more than there are pixels.
const POINTS_MAX: usize = 2000;

/// The least height of a band that has room for its name, in per cent.
const NAME_HEIGHT: f64 = 7.0;

/// Distance of two numbers of events that can be told apart, in per cent.
const NUMBERS_APART: f64 = 4.0;

/// Part of the width in which a label of a time stands beside the edge, not across it.
const EDGE: f64 = 5.0;

/// Chart of amounts over time.
#[derive(Clone, Debug, Default)]
pub struct Chart<'a> {
    /// Name of the unit of all amounts.
    pub unit: &'a str,
    /// Times at the left and the right edge.
    pub span: [f64; 2],
    /// Times of the samples, the first first.
    pub times: Cow<'a, [f64]>,
    /// Series that lie on each other, the lowest first.
    pub bands: Vec<Series<'a>>,
    /// Series that are lines.
    pub lines: Vec<Series<'a>>,
    /// Times with their labels.
    pub labels: Vec<(f64, String)>,
    /// Times of events, with what happened.
    pub events: Vec<(f64, &'a str)>,
}

/// Amounts of one thing over time.
#[derive(Clone, Debug, Default)]
pub struct Series<'a> {
    /// Class of its look.
    pub class: Cow<'a, str>,
    /// Text that shows where somebody points at it.
    pub title: Cow<'a, str>,
    /// Short name beside the end of a band.
    pub name: Cow<'a, str>,
    /// Amounts at the times of the chart; those that are no numbers are left out of a line.
    pub values: Vec<f64>,
}

/// A chart with what follows from its samples.
#[derive(Debug)]
struct Drawing<'a> {
    chart: &'a Chart<'a>,
    /// Heights at which the bands meet, of each sample: one more than there are bands, from 0.
    edges: Vec<Vec<f64>>,
    scale: Scale,
    /// Runs of samples between which none is missing.
    runs: Vec<Range<usize>>,
}

// === impl Chart ===

impl Chart<'_> {
    /// Draws the chart: the content of an element `svg`.
    pub fn draw(&self) -> String {
        let edges = self.edges();
        let values = self.lines.iter().flat_map(|line| &line.values);
        let most = edges.iter().flatten().chain(values).copied();
        let most = most.filter(|value| value.is_finite());
        let scale = Scale::of(most.fold(0.0, f64::max), self.unit.ends_with("_bytes"));
        let drawing = Drawing {
            chart: self,
            edges,
            scale,
            runs: runs(&self.times),
        };
        drawing.draw()
    }

    fn edges(&self) -> Vec<Vec<f64>> {
        let edges = (0..self.times.len()).map(|at| {
            let mut top = 0.0;
            let upper = self.bands.iter().map(|band| {
                top += value(band, at);
                top
            });
            std::iter::once(0.0).chain(upper).collect()
        });
        edges.collect()
    }
}

// === impl Drawing ===

impl Drawing<'_> {
    fn draw(&self) -> String {
        let mut svg = String::new();
        self.draw_amounts(&mut svg);
        // Writing to a text does not fail.
        let _ = write!(
            svg,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\">"
        );
        for tick in self.scale.ticks() {
            let y = self.y(tick);
            let _ = write!(svg, "<path class=\"grid\" d=\"M0 {y:.1}H{WIDTH}\"/>");
        }
        for (i, band) in self.chart.bands.iter().enumerate() {
            if band.values.iter().any(|value| *value > 0.0) {
                shape(&mut svg, "band", band, &self.band(i));
            }
        }
        self.draw_events(&mut svg);
        for line in &self.chart.lines {
            shape(&mut svg, "line", line, &self.line(line));
        }
        svg.push_str("</svg>");
        self.draw_numbers(&mut svg);
        self.draw_times(&mut svg);
        self.draw_names(&mut svg);
        svg
    }

    fn x(&self, at: f64) -> f64 {
        let [left, right] = self.chart.span;
        let part = (at - left) / (right - left).max(f64::MIN_POSITIVE);
        part.clamp(0.0, 1.0) * WIDTH
    }

    /// The place of a time from left to right, in per cent.
    fn percent(&self, at: f64) -> f64 {
        self.x(at) * 100.0 / WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        (1.0 - self.scale.part(value)) * HEIGHT
    }

    /// The outline of band `i`: along its upper edge, and back along its lower.
    fn band(&self, i: usize) -> String {
        let mut path = String::new();
        let edge = |at: usize, i: usize| self.edges.get(at).and_then(|edges| edges.get(i));
        let point = |at: usize, i: usize| (at, edge(at, i).copied().unwrap_or_default());
        for run in &self.runs {
            let upper = run.clone().map(|at| point(at, i + 1));
            let lower = run.clone().map(|at| point(at, i)).rev();
            self.trace(&mut path, upper.chain(lower));
            path.push('Z');
        }
        path
    }

    fn line(&self, line: &Series<'_>) -> String {
        let mut path = String::new();
        let every = self.chart.times.len().div_ceil(POINTS_MAX).max(1);
        for run in &self.runs {
            let points = run.clone().step_by(every);
            let points = points.map(|at| (at, line.values.get(at).copied().unwrap_or(f64::NAN)));
            self.trace(&mut path, points.filter(|(_, value)| value.is_finite()));
        }
        path
    }

    fn trace(&self, path: &mut String, points: impl Iterator<Item = (usize, f64)>) {
        for (i, (at, value)) in points.enumerate() {
            let step = if i == 0 { 'M' } else { 'L' };
            let time = self.chart.times.get(at).copied().unwrap_or_default();
            let _ = write!(path, "{step}{:.1} {:.2}", self.x(time), self.y(value));
        }
    }

    fn draw_amounts(&self, svg: &mut String) {
        for tick in self.scale.ticks() {
            let (y, text) = (self.y(tick), amount_text(self.chart.unit, tick));
            let _ = write!(
                svg,
                "<text class=\"amount\" dx=\"-6\" y=\"{y:.1}%\">{text}</text>"
            );
        }
    }

    fn draw_events(&self, svg: &mut String) {
        for (number, (at, text)) in self.chart.events.iter().enumerate() {
            let (x, text) = (self.x(*at), escaped(text));
            let _ = write!(
                svg,
                "<path class=\"event\" d=\"M{x:.1} 0V{HEIGHT}\"><title>{}: {text}</title></path>",
                number + 1
            );
        }
    }

    /// Writes the numbers of the events, where there is room.
    fn draw_numbers(&self, svg: &mut String) {
        let mut next = 0.0;
        for (number, (at, _)) in self.chart.events.iter().enumerate() {
            let x = self.percent(*at);
            if x >= next {
                next = x + NUMBERS_APART;
                let number = number + 1;
                let _ = write!(
                    svg,
                    "<text class=\"number\" x=\"{x:.1}%\" dy=\"-5\">{number}</text>"
                );
            }
        }
    }

    fn draw_times(&self, svg: &mut String) {
        for (at, text) in &self.chart.labels {
            let x = self.percent(*at);
            let anchor = match x {
                _ if x < EDGE => "start",
                _ if x > 100.0 - EDGE => "end",
                _ => "middle",
            };
            let text = escaped(text);
            let _ = write!(
                svg,
                "<text class=\"time\" x=\"{x:.1}%\" y=\"100%\" dy=\"16\" text-anchor=\"{anchor}\">{text}</text>"
            );
        }
    }

    /// Writes the names of the bands beside their ends, where there is room.
    fn draw_names(&self, svg: &mut String) {
        let now = self.edges.last().map_or(&[][..], Vec::as_slice);
        for (band, edges) in self.chart.bands.iter().zip(now.windows(2)) {
            let &[low, high] = edges else { continue };
            let (low, high) = (self.y(low), self.y(high));
            if low - high >= NAME_HEIGHT && !band.name.is_empty() {
                let (y, name) = ((low + high) / 2.0, escaped(&band.name));
                let _ = write!(
                    svg,
                    "<text class=\"name\" x=\"100%\" dx=\"6\" y=\"{y:.1}%\">{name}</text>"
                );
            }
        }
    }
}

// === free functions ===

fn value(series: &Series<'_>, at: usize) -> f64 {
    let value = series.values.get(at).copied();
    value.filter(|value| value.is_finite()).unwrap_or_default()
}

/// The runs of `times` between which none is missing.
fn runs(times: &[f64]) -> Vec<Range<usize>> {
    let pauses: Vec<f64> = times
        .windows(2)
        .map(|pair| pair.iter().rev().copied().reduce(|a, b| a - b))
        .map(Option::unwrap_or_default)
        .collect();
    let usual = pauses.iter().copied().fold(f64::INFINITY, f64::min);
    let (mut runs, mut start) = (Vec::new(), 0);
    for (i, pause) in pauses.iter().enumerate() {
        if *pause > usual * 4.0 {
            runs.push(start..i + 1);
            start = i + 1;
        }
    }
    runs.push(start..times.len());
    runs
}

fn shape(svg: &mut String, kind: &str, series: &Series<'_>, path: &str) {
    let (class, title) = (escaped(&series.class), escaped(&series.title));
    let _ = write!(
        svg,
        "<path class=\"{kind} {class}\" d=\"{path}\"><title>{title}</title></path>"
    );
}

/// Returns `text` for HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
