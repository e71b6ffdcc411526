//! Limits in force for a scope, as a table.

use std::collections::BTreeMap;

use tollgate_admin::view::{LimitView, MemberView, SafeView, ScopeLimits, SourceView};
use tollgate_core::quantity::duration_text;
use tollgate_net::clock::date_text;

use crate::failure::Failure;
use crate::print;

const HEADER: &str = "FROM|UNIT|CAPACITY|BURST|SAFE|ALGORITHM|LEASE|REFRESH";

/// Prints the limits of the first of `scopes`, then those of the others, whose capacity it uses as
/// well; all with their origins.
pub(super) fn show(scopes: &[ScopeLimits]) -> Result<(), Failure> {
    let Some(first) = scopes.first() else {
        return Ok(());
    };
    print::lines(&print::plain(&about(first)))?;
    let rows: Vec<_> = scopes
        .iter()
        .flat_map(|limits| rows_of(limits, first))
        .collect();
    if rows.is_empty() {
        return print::lines("no unit has a limit");
    }
    print::table(HEADER, rows)
}

/// The scope, its group, and the scope whose capacity it uses as well.
fn about(limits: &ScopeLimits) -> String {
    let ScopeLimits {
        scope,
        canonical,
        group,
        ..
    } = limits;
    let shared = if canonical == scope {
        String::new()
    } else {
        format!(", uses the capacity of {canonical} as well")
    };
    let member = group.as_ref().map_or_else(String::new, member);
    format!("{scope}{member}{shared}")
}

/// Rows of a scope's own limits and its group's, named after it unless it is `first`.
fn rows_of(limits: &ScopeLimits, first: &ScopeLimits) -> Vec<Vec<String>> {
    let ScopeLimits {
        scope, own, group, ..
    } = limits;
    let named = match (scope == &first.scope, scope.starts_with("group/")) {
        (true, _) => String::new(),
        (false, true) => scope.replacen('/', " ", 1),
        (false, false) => format!("{scope}, "),
    };
    let own = own.iter().flat_map(|own| {
        let from = match own.source {
            SourceView::Group if !named.is_empty() => named.clone(),
            _ => format!("{named}{}", source(&own.source)),
        };
        rows(&from, &own.units)
    });
    // The scope of a group is a member of it, whose limits stand there already.
    let group = group
        .iter()
        .filter(|group| *scope != format!("group/{}", group.name));
    let group = group.flat_map(|group| {
        let until = group.raised_until.map(raised);
        let until = until.map_or_else(String::new, |until| format!(", {until}"));
        rows(&format!("group {}{until}", group.name), &group.units)
    });
    own.chain(group).collect()
}

fn member(group: &MemberView) -> String {
    let MemberView { name, weight, .. } = group;
    format!(", member of group {name} with weight {weight}")
}

fn source(source: &SourceView) -> String {
    match source {
        SourceView::File { r#match } => format!("file: {}", r#match),
        SourceView::Override { revision } => format!("override, revision {revision}"),
        SourceView::Raise { until } => raised(*until),
        SourceView::Group => "group".to_owned(),
    }
}

fn raised(until: u64) -> String {
    format!("raised until {}", date_text(until))
}

fn rows(from: &str, units: &BTreeMap<String, LimitView>) -> Vec<Vec<String>> {
    let row = |(unit, limit): (&String, &LimitView)| {
        vec![
            from.to_owned(),
            unit.clone(),
            limit.text(unit, limit.capacity),
            limit.burst.text(unit),
            safe(unit, limit),
            limit.algorithm.clone(),
            duration_text(limit.lease_ms),
            duration_text(limit.refresh_ms),
        ]
    };
    units.iter().map(row).collect()
}

fn safe(unit: &str, limit: &LimitView) -> String {
    match limit.safe {
        None => "-".to_owned(),
        Some(SafeView::Dynamic(_)) => "dynamic".to_owned(),
        Some(SafeView::Amount(value)) => limit.text(unit, value.into()),
    }
}
