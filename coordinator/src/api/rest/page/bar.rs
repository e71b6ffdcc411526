//! Bar of a resource's shares: the leases of its clients, the capacity, and the wants.

use std::fmt::{self, Write as _};

use crate::leases::view::{Amount, ResourceClient, UnitSummary};

/// How wide a bar is, in its own units.
const WIDTH: f64 = 1000.0;

/// Shades that neighbours take by turns.
const SHADES: usize = 4;

/// Draws the shares of `clients`; nothing for a resource without a limit, which has no shares.
///
/// The policy of the page allows no styles in tags, so it is SVG, whose sizes are attributes.
pub(super) fn bar(
    out: &mut String,
    summary: &UnitSummary,
    clients: &[ResourceClient],
) -> fmt::Result {
    let Amount::Number(capacity) = summary.at_most() else {
        return Ok(());
    };
    let (has, wants) = (finite(summary.sum_has), finite(summary.sum_wants));
    let whole = capacity.max(has).max(wants);
    if whole <= 0.0 {
        return Ok(());
    }
    let place = |value: f64| (value / whole * WIDTH).clamp(0.0, WIDTH);
    out.push_str(
        "<svg viewBox=\"0 0 1000 22\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\n",
    );
    rect(out, "room", (0.0, place(capacity)), (0, 16))?;
    let mut at = 0.0;
    for (i, client) in clients.iter().enumerate() {
        let next = (at + finite(client.has)).min(has);
        let class = format!("s{}", i % SHADES);
        rect(out, &class, (place(at), place(next)), (0, 16))?;
        at = next;
    }
    // Those that are not listed.
    rect(out, "rest", (place(at), place(has)), (0, 16))?;
    rect(out, "wants", (0.0, place(wants)), (18, 4))?;
    out.push_str("</svg>\n");
    Ok(())
}

fn rect(
    out: &mut String,
    class: &str,
    (from, to): (f64, f64),
    (y, height): (u8, u8),
) -> fmt::Result {
    if to - from < 0.05 {
        return Ok(());
    }
    let width = to - from;
    writeln!(
        out,
        "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\"/>"
    )
}

fn finite(amount: Amount) -> f64 {
    match amount {
        Amount::Number(value) => value,
        Amount::Unlimited => 0.0,
    }
}
