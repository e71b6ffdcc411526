//! Sentences about a resource: how many of its clients are throttled, why, and since when.

use maud::{Markup, html};
use tollgate_net::clock;

use super::text::{amount, client_name, count, counted, duration, owner, time_of_day};
use crate::lease_view::{Amount, ResourceClient, TrafficView, UnitDetail, UnitSummary};

/// Says how much of what is asked of the resource of `unit` is refused; nothing of clients that do not
/// report it.
pub(super) fn traffic(unit: &str, traffic: &TrafficView) -> Markup {
    let figure = |value: f64| amount(unit, value.into());
    let all = figure(traffic.attempts_per_second);
    html! {
        @if traffic.refused_per_second > 0.0 {
            p.verdict.throttled data-key="traffic" {
                strong.flag { (figure(traffic.refused_per_second)) " of " (all) " are refused" }
                " each second."
            }
        } @else if traffic.attempts_per_second > 0.0 {
            p.verdict data-key="traffic" { "All pass: " (all) " are asked for each second." }
        }
    }
}

/// Says of the resource of `unit` how many of its clients are throttled, why, and since when.
pub(super) fn verdict(unit: &str, detail: &UnitDetail) -> Markup {
    let UnitDetail {
        summary,
        waiting_count,
        clients,
        ..
    } = detail;
    let all = counted(summary.client_count, "client");
    let who = match (*waiting_count, summary.client_count) {
        (0, 1) => "Its only client is not throttled".to_owned(),
        (0, _) => format!("None of {all} is throttled"),
        (_, 1) => "Its only client is throttled".to_owned(),
        (1, _) => format!("1 of {all} is throttled"),
        (waiting, _) => format!("{} of {all} are throttled", count(waiting)),
    };
    if *waiting_count == 0 {
        return html! { p.verdict { (who) ". " (use_of(unit, summary)) } };
    }
    html! {
        p.verdict.throttled {
            strong.flag { (who) }
            ": " (reason(unit, summary)) (since(clients))
        }
    }
}

fn use_of(unit: &str, summary: &UnitSummary) -> Markup {
    let wants = summary.text(unit, summary.sum_wants);
    html! {
        @match (summary.at_most(), &summary.limited_by) {
            (Amount::Unlimited, _) | (_, None) => {
                "Together all want " (wants) ", and nothing limits that."
            }
            (at_most, Some(limited_by)) => {
                "Together all want " (wants) ", and " (the(&limited_by.whose)) " allows "
                (summary.text(unit, at_most)) "."
            }
        }
    }
}

/// The reason for which clients get less than they want.
fn reason(unit: &str, summary: &UnitSummary) -> Markup {
    let at_most = summary.at_most();
    let [wants, most] = [summary.sum_wants, at_most].map(|rate| summary.text(unit, rate));
    let whose = html! {
        @match &summary.limited_by {
            Some(limited_by) => { (the(&limited_by.whose)) }
            None => { "the limit" }
        }
    };
    let learning = summary.learning_ms > 0;
    html! {
        @if at_most == Amount::Number(0.0) {
            (whose) " allows nothing: it blocks every client."
        } @else if is_short(at_most, summary.sum_wants) {
            "together all want " (wants) ", and " (whose) " allows " (most) "."
        } @else if learning {
            "for another " (duration(summary.learning_ms)) " the coordinator learns which leases "
            "are out, and lends only what is surely free."
        } @else {
            "all that is wanted (" (wants) ") is within what " (whose) " allows (" (most)
            "); they get it with their next refreshes, as others give it back."
        }
        @if learning && is_short(at_most, summary.sum_wants) {
            " The coordinator learns for another " (duration(summary.learning_ms)) "."
        }
    }
}

/// Owner of a limit, as it stands in a sentence.
fn the(whose: &str) -> Markup {
    html! {
        @match whose {
            "own limit" => { "the scope's own limit" }
            other => { "the " (owner(other)) }
        }
    }
}

fn is_short(at_most: Amount, wants: Amount) -> bool {
    match (at_most, wants) {
        (Amount::Number(at_most), Amount::Number(wants)) => wants > at_most,
        (Amount::Number(_), Amount::Unlimited) => true,
        (Amount::Unlimited, _) => false,
    }
}

/// The client that has been throttled for longest.
fn since(clients: &[ResourceClient]) -> Markup {
    let throttled = clients
        .iter()
        .filter_map(|one| Some((one.throttled_for_ms?, one)));
    let longest = throttled.max_by_key(|(time, _)| *time);
    html! {
        @if let Some((time, client)) = longest {
            " The longest is " (client_name(&client.client)) ", for " (duration(time)) " (since "
            (since_when(time)) ")."
        }
    }
}

/// The time of the day so many milliseconds ago.
pub(super) fn since_when(ago_ms: u64) -> String {
    let ago = std::time::Duration::from_millis(ago_ms);
    let at = time_of_day(clock::unix_time().saturating_sub(ago));
    format!("{at} UTC")
}
