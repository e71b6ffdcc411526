//! Bar of a resource: how much is leased and wanted of how much there is.

use maud::{Markup, html};

use crate::lease_view::{Amount, UnitSummary};

/// How wide a bar is, in its own units.
const WIDTH: f64 = 100.0;

/// Draws `summary`; nothing for a resource without a limit, which has no whole.
///
/// The policy of the pages allows no styles in tags, so it is SVG, whose sizes are attributes.
pub(super) fn bar(summary: &UnitSummary) -> Markup {
    let Amount::Number(at_most) = summary.at_most() else {
        return html! {};
    };
    let (has, wants) = (finite(summary.sum_has), finite(summary.sum_wants));
    let whole = at_most.max(has).max(wants);
    let wide = |value: f64| {
        let part = if whole > 0.0 { value / whole } else { 0.0 };
        format!("{:.1}", (part * WIDTH).clamp(0.0, WIDTH))
    };
    html! {
        svg.bar viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" {
            rect.room y="0" width=(wide(at_most)) height="8" {}
            rect.leased y="0" width=(wide(has)) height="8" {}
            rect.wanted y="10" width=(wide(wants)) height="2" {}
        }
    }
}

/// Returns a number to draw; 0 for what has no bound.
pub(super) fn finite(amount: Amount) -> f64 {
    match amount {
        Amount::Number(value) => value,
        Amount::Unlimited => 0.0,
    }
}
