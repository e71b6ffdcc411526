//! Limits in force for a scope, as a table.

use std::collections::BTreeMap;

use tollgate_coordinator::api::rest::view::{
    Amount, LimitView, MemberView, SafeView, ScopeLimits, SourceView,
};

use crate::failure::Failure;
use crate::print;

const HEADER: &str = "FROM|UNIT|CAPACITY|BURST|SAFE|ALGORITHM|LEASE|REFRESH";

/// Prints the scope's own limits and its group's, each with its source.
pub(super) fn show(limits: &ScopeLimits) -> Result<(), Failure> {
    let ScopeLimits {
        scope,
        canonical,
        own,
        group,
        ..
    } = limits;
    let shared = match canonical == scope {
        true => String::new(),
        false => format!(", uses the capacity of {canonical} as well"),
    };
    let member = group.as_ref().map_or_else(String::new, member);
    print::lines(&print::plain(&format!("{scope}{member}{shared}")))?;
    let own = own
        .iter()
        .flat_map(|own| rows(&source(&own.source), &own.units));
    let group = group
        .iter()
        .flat_map(|group| rows(&format!("group {}", group.name), &group.units));
    let rows: Vec<_> = own.chain(group).collect();
    if rows.is_empty() {
        return print::lines("no unit has a limit");
    }
    print::table(HEADER, rows)
}

fn member(group: &MemberView) -> String {
    let MemberView { name, weight, .. } = group;
    format!(", member of group {name} with weight {weight}")
}

fn source(source: &SourceView) -> String {
    match source {
        SourceView::File { r#match } => format!("file: {}", r#match),
        SourceView::Override { revision } => format!("override, revision {revision}"),
        SourceView::Group => "group".to_owned(),
    }
}

fn rows(from: &str, units: &BTreeMap<String, LimitView>) -> Vec<Vec<String>> {
    let row = |(unit, limit): (&String, &LimitView)| {
        let amount = |amount| print::amount(unit, amount);
        vec![
            from.to_owned(),
            unit.clone(),
            amount(limit.capacity),
            amount(limit.burst),
            safe(unit, limit.safe),
            limit.algorithm.clone(),
            print::duration(limit.lease_ms),
            print::duration(limit.refresh_ms),
        ]
    };
    units.iter().map(row).collect()
}

fn safe(unit: &str, safe: Option<SafeView>) -> String {
    match safe {
        None => "-".to_owned(),
        Some(SafeView::Dynamic(_)) => "dynamic".to_owned(),
        Some(SafeView::Amount(value)) => print::amount(unit, Amount::Number(value)),
    }
}
