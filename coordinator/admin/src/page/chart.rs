//! Chart of shares over time: bands that lie on each other, below the line of their limit.
//!
//! SVG without a script. Its shapes stretch with the page, its texts do not: they stand beside it and
//! are placed in per cent. Each band has a letter as well as a colour, in the chart and in the legend.

use std::fmt::Write as _;

use maud::{Markup, html};

use self::scale::Scale;
use super::legend;
use super::text::{amount, plain};

mod scale;

/// The most bands of a chart that have a colour of their own.
pub(super) const BANDS_MAX: usize = 8;

/// Size of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;

/// The least height of a band that has room for its letter, in per cent.
const LETTER_MIN: f64 = 7.0;

/// Shares over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Chart {
    /// The unit of all amounts.
    pub(super) unit: String,
    /// The time that the chart spans, up to now.
    pub(super) window_ms: u64,
    /// The ages of the samples, the oldest first.
    pub(super) ages_ms: Vec<u64>,
    /// The bands, the lowest first.
    pub(super) bands: Vec<Band>,
    /// The amount now that has no band; none if all has.
    pub(super) beside: Option<f64>,
    /// The limit at each sample; `None` where there was none.
    pub(super) limits: Vec<Option<f64>>,
}

/// Shares of one scope or client.
#[derive(Clone, Debug, Default)]
pub(super) struct Band {
    /// Its name; none of all that have no band of their own.
    pub(super) name: Option<String>,
    /// The page about it.
    pub(super) href: Option<String>,
    /// The share at each sample.
    pub(super) shares: Vec<f64>,
}

/// A chart with the heights of its bands.
#[derive(Debug)]
struct Stack<'a> {
    chart: &'a Chart,
    /// Of each sample, where the bands meet: one more than there are bands, from 0.
    edges: Vec<Vec<f64>>,
    scale: Scale,
}

// === impl Chart ===

impl Chart {
    /// Whether there is a share.
    pub(super) fn has_bands(&self) -> bool {
        !self.bands.is_empty()
    }

    /// Draws the chart, called `title`, with its legend.
    pub(super) fn figure(&self, title: &str) -> Markup {
        if self.ages_ms.len() < 2 {
            return html! { p.dim { "The first shares are drawn after some seconds." } };
        }
        let stack = Stack::of(self);
        html! {
            figure.chart {
                div.plot {
                    (stack.axis())
                    (stack.drawing(title))
                    (stack.letters())
                    (self.times())
                }
                (legend::bands(self))
            }
        }
    }

    fn times(&self) -> Markup {
        let ago = |ms: u64| format!("{} min ago", ms / 60_000);
        html! {
            p.times {
                span { (ago(self.window_ms)) } span { (ago(self.window_ms / 2)) } span { "now" }
            }
        }
    }

    /// The place of sample `at` from left to right.
    fn x(&self, at: usize) -> f64 {
        let age = self
            .ages_ms
            .get(at)
            .copied()
            .unwrap_or(0)
            .min(self.window_ms);
        (1.0 - age as f64 / self.window_ms.max(1) as f64) * WIDTH
    }

    /// The runs of samples between which none is missing.
    fn runs(&self) -> Vec<std::ops::Range<usize>> {
        let pauses = self
            .ages_ms
            .windows(2)
            .map(|pair| pair[0].saturating_sub(pair[1]));
        let pauses: Vec<u64> = pauses.collect();
        let usual = pauses.iter().copied().min().unwrap_or(0);
        let (mut runs, mut start) = (Vec::new(), 0);
        for (i, pause) in pauses.iter().enumerate() {
            if *pause > usual.saturating_mul(4) {
                runs.push(start..i + 1);
                start = i + 1;
            }
        }
        runs.push(start..self.ages_ms.len());
        runs
    }
}

// === impl Stack ===

impl<'a> Stack<'a> {
    fn of(chart: &'a Chart) -> Self {
        let edges = (0..chart.ages_ms.len()).map(|at| {
            let mut edges = vec![0.0];
            let mut top = 0.0;
            for band in &chart.bands {
                top += band.shares.get(at).copied().unwrap_or(0.0);
                edges.push(top);
            }
            edges
        });
        let edges: Vec<Vec<f64>> = edges.collect();
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let highest = most(&mut edges.iter().flatten().copied());
        let limit = most(&mut chart.limits.iter().copied().flatten());
        // A limit that is far away would press the bands to the ground.
        let near = highest == 0.0 || limit <= highest * 4.0;
        let top = if near { highest.max(limit) } else { highest };
        Self {
            chart,
            edges,
            scale: Scale::of(top, super::text::is_bytes(&chart.unit)),
        }
    }

    fn y(&self, value: f64) -> f64 {
        (1.0 - self.scale.part(value)) * HEIGHT
    }

    /// The amounts beside the lines.
    fn axis(&self) -> Markup {
        html! {
            svg.axis aria-hidden="true" {
                @for tick in self.scale.ticks() {
                    text x="100%" y={ (format!("{:.1}", self.y(tick))) "%" } {
                        (amount(&self.chart.unit, tick.into()))
                    }
                }
            }
        }
    }

    fn drawing(&self, title: &str) -> Markup {
        html! {
            svg.bands viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label=(title) {
                @for tick in self.scale.ticks() {
                    @let y = format!("{:.1}", self.y(tick));
                    line.grid x1="0" x2="1000" y1=(y) y2=(y) {}
                }
                @for (i, band) in self.chart.bands.iter().enumerate() {
                    path class=(class(i, band)) d=(self.band(i)) {
                        title { (plain(band.name.as_deref().unwrap_or(OTHERS))) }
                    }
                }
                path.limit d=(self.limit()) {}
            }
        }
    }

    /// The letter of each band that is high enough now.
    fn letters(&self) -> Markup {
        let now = self.edges.last().map_or(&[][..], Vec::as_slice);
        html! {
            svg.letters aria-hidden="true" {
                @for (i, edges) in now.windows(2).enumerate() {
                    @let (low, high) = (self.y(edges[0]), self.y(edges[1]));
                    @if low - high >= LETTER_MIN {
                        text x="50%" y={ (format!("{:.1}", (low + high) / 2.0)) "%" } {
                            (letter(i, &self.chart.bands[i]))
                        }
                    }
                }
            }
        }
    }

    /// The outline of band `i`: along its upper edge, and back along its lower.
    fn band(&self, i: usize) -> String {
        let mut path = String::new();
        for run in self.chart.runs() {
            let upper = run.clone().map(|at| (at, self.edges[at][i + 1]));
            let lower = run.map(|at| (at, self.edges[at][i])).rev();
            self.line(&mut path, upper.chain(lower));
            path.push('Z');
        }
        path
    }

    fn limit(&self) -> String {
        let mut path = String::new();
        for run in self.chart.runs() {
            let limits = run.filter_map(|at| {
                let limit = self.chart.limits.get(at).copied().flatten();
                limit
                    .filter(|limit| *limit <= self.scale.top)
                    .map(|limit| (at, limit))
            });
            self.line(&mut path, limits);
        }
        path
    }

    fn line(&self, path: &mut String, points: impl Iterator<Item = (usize, f64)>) {
        for (i, (at, value)) in points.enumerate() {
            let step = if i == 0 { 'M' } else { 'L' };
            // Writing to a text does not fail.
            let _ = write!(path, "{step}{:.1} {:.2}", self.chart.x(at), self.y(value));
        }
    }
}

// === free functions ===

/// Name of all that have no band of their own.
pub(super) const OTHERS: &str = "all others";

/// Returns the class of `band`, the `i`th, which gives it its colour.
pub(super) fn class(i: usize, band: &Band) -> String {
    match band.name {
        Some(_) => format!("b{}", i % BANDS_MAX),
        None => "others".to_owned(),
    }
}

/// Returns the letter of `band`, the `i`th.
pub(super) fn letter(i: usize, band: &Band) -> char {
    let letter = u8::try_from(i % BANDS_MAX).map_or(b'A', |i| b'A' + i);
    if band.name.is_some() {
        char::from(letter)
    } else {
        '+'
    }
}

#[cfg(test)]
mod tests;
