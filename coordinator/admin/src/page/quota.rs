//! Quotas of a resource: how much of each was left from the start of its window until now, and in earlier windows.

use maud::{Markup, html};

use super::text::{amount, date, duration, plain};
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
                (burn_down(quota))
                (credits(unit, quota))
                (earlier(unit, quota))
            }
        }
    }
}

/// Burn-down of the window: what was left from its start until now, and, dashed, where that leads until its end. Of one
/// that slides the part that is used.
fn burn_down(quota: &QuotaView) -> Markup {
    let Some(passed) = quota.passed_part() else {
        return html! {
            svg.bar viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" {
                rect.room y="0" width="100" height="8" {}
                rect.leased y="0" width=(percents(quota.used_part())) height="8" {}
            }
        };
    };
    let (now, used) = (percents(passed), percents(quota.used_part()));
    let pace = quota.used_part() / passed.max(f64::EPSILON);
    let led_to = (percents(pace.max(1.0).recip().max(passed)), percents(pace));
    html! {
        svg.burn viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true" {
            rect.room width="100" height="100" {}
            path.leased d=(format!("M0 0L{now} {used}V100H0Z")) {}
            path.pace d="M0 0L100 100" vector-effect="non-scaling-stroke" {}
            path.limit d=(format!("M{now} {used}L{} {}", led_to.0, led_to.1)) vector-effect="non-scaling-stroke" {}
        }
    }
}

/// Windows that have ended, the latest first, each with its part of the amount of now.
fn earlier(unit: &str, quota: &QuotaView) -> Markup {
    html! {
        @if !quota.ended.is_empty() {
            table.narrow {
                thead { tr {
                    th scope="col" { "window until" } th.num scope="col" { "used" } th scope="col" { "of the amount of now" }
                } }
                tbody { @for window in quota.ended.iter().rev() { tr {
                    th scope="row" { (date(window.until_ms / 1000)) }
                    td.num { (amount(unit, window.used.into())) }
                    td {
                        svg.bar viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" {
                            rect.room width="100" height="8" {}
                            rect.leased width=(percents(window.used / quota.amount.max(1.0))) height="8" {}
                        }
                    }
                } } }
            }
        }
    }
}

/// Credits that have not expired.
fn credits(unit: &str, quota: &QuotaView) -> Markup {
    html! {
        @for credit in &quota.credits {
            p.dim {
                "Credit " (plain(&credit.id)) ": " (amount(unit, credit.left.into())) " of "
                (amount(unit, credit.amount.into())) " left until " (date(credit.until_ms / 1000)) "."
            }
        }
    }
}

/// A part as a coordinate of a hundred.
fn percents(part: f64) -> String {
    format!("{:.1}", (part * 100.0).clamp(0.0, 100.0))
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
