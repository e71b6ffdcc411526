//! Quotas of a resource: how much of each is used beside how much of its window has passed.

use maud::{Markup, html};

use super::text::{amount, duration};
use crate::lease_view::QuotaView;

/// Draws `quotas` of `unit`; nothing without any.
pub(super) fn quotas(unit: &str, quotas: &[QuotaView]) -> Markup {
    html! {
        @for quota in quotas {
            section.quota data-key=(quota.per) {
                h3 { "Quota per " (quota.per) }
                p {
                    strong { (amount(unit, quota.used.into())) " of " (amount(unit, quota.amount.into())) }
                    " used (" (percent(quota.used_part())) ")"
                    @if let Some(end) = end(quota) { "; " (end) }
                    "."
                }
                (bar(quota))
            }
        }
    }
}

/// Used part above, passed part of the window below.
fn bar(quota: &QuotaView) -> Markup {
    let wide = |part: f64| format!("{:.1}", (part * 100.0).clamp(0.0, 100.0));
    html! {
        svg.bar viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" {
            rect.room y="0" width="100" height="8" {}
            rect.leased y="0" width=(wide(quota.used_part())) height="8" {}
            @if let Some(passed) = quota.passed_part() {
                rect.wanted y="10" width=(wide(passed)) height="2" {}
            }
        }
    }
}

/// When the window ends, and whether the quota lasts until then at the pace so far. One that slides has no end.
fn end(quota: &QuotaView) -> Option<String> {
    let left_ms = quota
        .until_ms
        .checked_sub(quota.at_ms)
        .filter(|left| *left > 0)?;
    let ends = format!("the window ends in {}", duration(left_ms));
    if quota.left < 1.0 {
        return Some(format!("nothing is left, and {ends}"));
    }
    Some(match quota.used_up_in_ms() {
        Some(used_up) if used_up < left_ms => format!(
            "at this pace it is used up in {}, and {ends}",
            duration(used_up)
        ),
        _ => format!("at this pace it lasts, and {ends}"),
    })
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}
