//! Legends: the names of the colours, with a sign beside each colour.

use maud::{Markup, html};

use super::chart::{Chart, OTHERS, class, letter};
use super::text::{amount, name};

/// Names the bands of `chart`, the highest first as in the chart, with their shares now.
pub(super) fn bands(chart: &Chart) -> Markup {
    let now = |values: &[f64]| {
        values
            .last()
            .map(|value| amount(&chart.unit, (*value).into()))
    };
    let limit = chart.limits.last().copied().flatten();
    html! {
        ol.legend {
            @if let Some(beside) = chart.beside {
                li {
                    (swatch("none")) b {} span { "all others, not drawn" }
                    span.num { (amount(&chart.unit, beside.into())) }
                }
            }
            @for (i, band) in chart.bands.iter().enumerate().rev() {
                li {
                    (swatch(&class(i, band))) b { (letter(i, band)) }
                    span {
                        @match (&band.name, &band.href) {
                            (Some(text), Some(href)) => { a href=(href) { (name(text)) } }
                            (Some(text), None) => { (name(text)) }
                            (None, _) => { (OTHERS) }
                        }
                    }
                    span.num { (now(&band.shares).unwrap_or_default()) }
                }
            }
            @if let Some(limit) = limit {
                li {
                    (dash()) b {} span { "limit" }
                    span.num { (amount(&chart.unit, limit.into())) }
                }
            }
        }
    }
}

/// Names the parts of the bars in a table, and its mark.
pub(super) fn bars() -> Markup {
    html! {
        ul.legend.inline {
            li { (swatch("leased")) span { "leased" } }
            li { (swatch("room")) span { "left of the limit" } }
            li { (swatch("wanted")) span { "wanted" } }
            li { strong.flag { "throttled" } span { "clients that get less than they want" } }
        }
    }
}

fn swatch(class: &str) -> Markup {
    html! {
        svg.swatch viewBox="0 0 12 12" aria-hidden="true" {
            @if class == "none" {
            } @else if class == "wanted" {
                rect class=(class) y="8" width="12" height="4" {}
            } @else {
                rect class=(class) width="12" height="12" {}
            }
        }
    }
}

fn dash() -> Markup {
    html! {
        svg.swatch viewBox="0 0 12 12" aria-hidden="true" { path.limit d="M0 6L12 6" {} }
    }
}
