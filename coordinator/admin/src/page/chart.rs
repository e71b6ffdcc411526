//! Chart of shares over time: bands that lie on each other, below the line of their limit.
//!
//! Each band has a letter as well as a colour, in the chart and in the legend.

use maud::{Markup, PreEscaped, html};
use tollgate_chart::Series;

use super::legend;
use super::text::{duration, plain};

/// The most bands of a chart that have a colour of their own.
pub(super) const BANDS_MAX: usize = 8;

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
        html! {
            figure.chart {
                div.plot { svg role="img" aria-label=(title) { (PreEscaped(self.drawing().draw())) } }
                (legend::bands(self))
            }
        }
    }

    fn drawing(&self) -> tollgate_chart::Chart<'_> {
        let window = self.window_ms as f64;
        let bands = self.bands.iter().enumerate().map(|(i, band)| Series {
            class: class(i, band).into(),
            title: plain(band.name.as_deref().unwrap_or(OTHERS)),
            name: letter(i, band).to_string().into(),
            values: band.shares.clone(),
        });
        let limit = Series {
            class: "limit".into(),
            values: self.near_limits(),
            ..Series::default()
        };
        let ago = |ms: f64| (-ms, format!("{} ago", duration(ms as u64)));
        tollgate_chart::Chart {
            unit: &self.unit,
            span: [-window, 0.0],
            times: self.ages_ms.iter().map(|age| -(*age as f64)).collect(),
            bands: bands.collect(),
            lines: vec![limit],
            labels: vec![ago(window), ago(window / 2.0), (0.0, "now".to_owned())],
            events: Vec::new(),
        }
    }

    /// The limits, unless they are so far away that they would press the bands to the ground.
    fn near_limits(&self) -> Vec<f64> {
        let sum = |at: usize| {
            self.bands
                .iter()
                .filter_map(move |band| band.shares.get(at))
        };
        let sums = (0..self.ages_ms.len()).map(|at| sum(at).sum());
        let highest = sums.fold(0.0, f64::max);
        let limits = self.limits.iter().map(|limit| limit.unwrap_or(f64::NAN));
        let near = limits.map(|limit| {
            if highest == 0.0 || limit <= highest * 4.0 {
                limit
            } else {
                f64::NAN
            }
        });
        near.collect()
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
