//! The whole story of one scope: its limits with their origins, and its clients.

use anyhow::anyhow;
use serde::Serialize;
use tollgate_coordinator::api::rest::view::{ScopeDetail, ScopeLimits, UnitDetail, UnitSummary};

use super::limit;
use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::print;

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
    let mut clients: Vec<_> = resource.clients.iter().collect();
    clients.sort_by(|one, other| one.client.cmp(&other.client));
    let rows = clients.into_iter().map(|client| {
        vec![
            client.client.clone(),
            print::amount(unit, client.has),
            print::amount(unit, client.wants),
            print::duration(client.expires_in_ms),
        ]
    });
    print::table("CLIENT|HAS|WANTS|EXPIRES", rows.collect())
}

/// Returns the sums over a resource's clients in a line.
fn sums(unit: &str, resource: &UnitDetail) -> String {
    let UnitDetail {
        summary,
        waiting_count,
        ..
    } = resource;
    let amount = |amount| print::amount(unit, amount);
    format!(
        "{unit}: capacity {}, has {}, wants {}, safe {}, clients {}, waiting {waiting_count}{}{}",
        amount(summary.capacity),
        amount(summary.sum_has),
        amount(summary.sum_wants),
        print::or_dash(summary.safe.map(amount)),
        summary.client_count,
        learning(summary),
        limited_by(unit, summary),
    )
}

fn limited_by(unit: &str, summary: &UnitSummary) -> String {
    summary.limited_by.as_ref().map_or_else(String::new, |by| {
        let at_most = print::amount(unit, by.at_most);
        format!(", limited by {} to {at_most}", print::plain(&by.whose))
    })
}

fn learning(summary: &UnitSummary) -> String {
    match summary.learning_ms {
        0 => String::new(),
        ms => format!(", learning for {}", print::duration(ms)),
    }
}
