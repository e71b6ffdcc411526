//! The whole story of one scope: its limits with their origins, and its clients.

use std::cmp::Reverse;

use anyhow::anyhow;
use serde::Serialize;
use tollgate_admin::view::{
    Amount, BucketView, QuotaView, ResourceClient, ScopeDetail, ScopeLimits, TrafficView,
    UnitDetail, UnitSummary,
};
use tollgate_core::quantity::{amount_text, duration_text};

use super::limit;
use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::print;

/// The most throttled clients that are named in a line; the table has all.
const NAMED_MAX: usize = 3;

/// A scope, as the API answers it, with its limits.
#[derive(Debug, Serialize)]
struct ScopeStory {
    #[serde(flatten)]
    detail: ScopeDetail,
    /// Its limits, then those of the scope whose capacity it uses as well.
    limits: Vec<ScopeLimits>,
}

// === free functions ===

/// Prints the story of the scope called `name`.
pub(super) fn show(client: &Client, name: &str, json: bool) -> Result<(), Failure> {
    let detail = client.send(Call::get(Kind::Scope.one(name)?));
    let detail = detail.map_err(|failure| hint(failure, name))?;
    let story = ScopeStory {
        detail: detail.read()?,
        limits: limits(client, name)?,
    };
    if json {
        return print::json(&story);
    }
    limit::show(&story.limits)?;
    for (unit, resource) in &story.detail.units {
        print::lines("")?;
        clients(&story.detail.scope, unit, resource)?;
    }
    let silent = &story.detail.unanswered;
    if !silent.is_empty() {
        print::note(&format!("no answer from {}", silent.join(", ")));
    }
    Ok(())
}

/// Reads the limits of the scope called `name`, and those of one whose capacity it uses as well.
fn limits(client: &Client, name: &str) -> Result<Vec<ScopeLimits>, Failure> {
    let read = |name: &str| -> Result<ScopeLimits, Failure> {
        client.send(Call::get(Kind::Limit.one(name)?))?.read()
    };
    let own = read(name)?;
    if own.canonical == own.scope {
        return Ok(vec![own]);
    }
    let shared = read(&own.canonical)?;
    Ok(vec![own, shared])
}

/// Names the command that shows the limits of a scope without clients.
fn hint(failure: Failure, name: &str) -> Failure {
    match failure {
        Failure::Missing(error) => Failure::Missing(anyhow!(
            "{error:#}; `tollgate get limit {name}` shows its limits"
        )),
        other => other,
    }
}

/// Prints a resource with its clients.
fn clients(scope: &str, unit: &str, resource: &UnitDetail) -> Result<(), Failure> {
    let scope = print::plain(scope);
    print::lines(&format!("{scope} {}", sums(unit, resource)))?;
    if let Some(line) = throttled(&resource.clients) {
        print::lines(&print::plain(&line))?;
    }
    let mut clients: Vec<_> = resource.clients.iter().collect();
    clients.sort_by(|one, other| one.client.cmp(&other.client));
    let rows = clients.into_iter().map(|client| {
        vec![
            client.client.clone(),
            resource.summary.text(unit, client.has),
            resource.summary.text(unit, client.wants),
            duration_text(client.expires_in_ms),
            print::or_dash(client.throttled_for_ms.map(duration_text)),
        ]
    });
    print::table("CLIENT|HAS|WANTS|EXPIRES|THROTTLED", rows.collect())
}

/// Returns a line about the clients that get less than they want, the longest first; none if each
/// gets as much.
fn throttled(clients: &[ResourceClient]) -> Option<String> {
    let times = clients.iter().filter_map(|client| {
        let time_ms = client.throttled_for_ms?;
        Some((Reverse(time_ms), client.client.as_str()))
    });
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let (Reverse(longest), _) = times.first()?;
    let named: Vec<&str> = times
        .iter()
        .take(NAMED_MAX)
        .map(|(_, name)| *name)
        .collect();
    let more = match times.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let longest = duration_text(*longest);
    Some(format!(
        "throttled for {longest}: {}{more}",
        named.join(", ")
    ))
}

/// Returns the sums over a resource's clients in a line.
fn sums(unit: &str, resource: &UnitDetail) -> String {
    let UnitDetail {
        summary,
        waiting_count,
        ..
    } = resource;
    let amount = |amount: Amount| summary.text(unit, amount);
    format!(
        "{unit}: capacity {}, has {}, wants {}, safe {}, clients {}, waiting {waiting_count}{}{}{}{}{}",
        amount(summary.capacity),
        amount(summary.sum_has),
        amount(summary.sum_wants),
        print::or_dash(summary.safe.map(amount)),
        summary.client_count,
        traffic(summary),
        bucket(summary),
        quotas(unit, summary),
        learning(summary),
        limited_by(unit, summary),
    )
}

/// Tokens that clients were asked for lately, and refused, if they report it.
fn traffic(summary: &UnitSummary) -> String {
    let TrafficView {
        attempts_per_second,
        refused_per_second,
        attempts,
        ..
    } = summary.traffic;
    match attempts {
        0 => String::new(),
        _ => format!(", asked {attempts_per_second:.1}/s, refused {refused_per_second:.1}/s"),
    }
}

/// Tokens of a limit that is drawn, not leased.
fn bucket(summary: &UnitSummary) -> String {
    summary.bucket.map_or_else(String::new, |bucket| {
        let BucketView { left, held, drawn } = bucket;
        format!(", tokens left {left:.1}, with clients {held:.1}, drawn {drawn:.0}")
    })
}

/// Quotas with what is used of them.
fn quotas(unit: &str, summary: &UnitSummary) -> String {
    let text = |quota: &QuotaView| {
        let amount = |amount| amount_text(unit, amount);
        let (used, whole) = (amount(quota.used), amount(quota.amount));
        format!(", used {used} of {whole} per {}", print::plain(&quota.per))
    };
    summary.quotas.iter().map(text).collect()
}

fn limited_by(unit: &str, summary: &UnitSummary) -> String {
    summary.limited_by.as_ref().map_or_else(String::new, |by| {
        let at_most = summary.text(unit, by.at_most);
        format!(", limited by {} to {at_most}", print::plain(&by.whose))
    })
}

fn learning(summary: &UnitSummary) -> String {
    match summary.learning_ms {
        0 => String::new(),
        ms => format!(", learning for {}", duration_text(ms)),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_clients_that_are_throttled_longest_are_named() {
        let client = |(name, throttled_for_ms): &(&str, Option<u64>)| ResourceClient {
            client: (*name).to_owned(),
            wants: Amount::Number(2.0),
            has: Amount::Number(1.0),
            expires_in_ms: 9000,
            throttled_for_ms: *throttled_for_ms,
        };
        let all = [
            ("a", Some(12_000)),
            ("b", None),
            ("c", Some(192_000)),
            ("d", Some(12_000)),
            ("e", Some(0)),
        ];
        let line = |count: usize| {
            let clients: Vec<_> = all[..count].iter().map(client).collect();
            throttled(&clients)
        };
        assert_eq!(line(0), None);
        assert_eq!(line(2).unwrap(), "throttled for 12s: a");
        assert_eq!(line(4).unwrap(), "throttled for 3m12s: c, a, d");
        assert_eq!(line(5).unwrap(), "throttled for 3m12s: c, a, d and 1 more");
    }
}
