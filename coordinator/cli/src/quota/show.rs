//! Quotas as tables.

use tollgate_admin::view::{CreditView, QuotaView, QuotasView};
use tollgate_core::quantity::duration_text;
use tollgate_net::clock::date_text;

use crate::failure::Failure;
use crate::print;

/// Prints the quotas of a scope, with their credits, earlier windows and changes.
pub(crate) fn show(quotas: &QuotasView) -> Result<(), Failure> {
    let each = quotas.units.iter();
    let each = || {
        each.clone()
            .flat_map(|(unit, quotas)| quotas.iter().map(move |quota| (unit, quota)))
    };
    let rows = each().map(|(unit, quota)| row(unit, quota));
    let cells = |row: Vec<(&'static str, String)>| row.into_iter().map(|(_, cell)| cell).collect();
    print::table(
        "UNIT|PER|AMOUNT|USED|HELD|LEFT|ENDS IN",
        rows.map(cells).collect(),
    )?;
    for (unit, quota) in each() {
        credits(unit, quota)?;
        earlier(unit, quota)?;
        changes(unit, quota)?;
    }
    Ok(())
}

/// The rows of a scope in a list.
pub(crate) fn rows(quotas: &QuotasView) -> Vec<Vec<(&'static str, String)>> {
    let mut rows = Vec::new();
    for (unit, quotas_of_unit) in &quotas.units {
        for quota in quotas_of_unit {
            let mut cells = vec![("SCOPE", quotas.scope.clone())];
            cells.extend(row(unit, quota));
            rows.push(cells);
        }
    }
    rows
}

fn row(unit: &str, quota: &QuotaView) -> Vec<(&'static str, String)> {
    let left_ms = quota.until_ms.saturating_sub(quota.at_ms);
    let ends = Some(left_ms).filter(|left_ms| *left_ms > 0);
    vec![
        ("UNIT", unit.to_owned()),
        ("PER", quota.per.clone()),
        ("AMOUNT", quota.amount.to_string()),
        ("USED", quota.used.to_string()),
        ("HELD", quota.held.to_string()),
        ("LEFT", quota.left.to_string()),
        ("ENDS IN", print::or_dash(ends.map(duration_text))),
    ]
}

fn credits(unit: &str, quota: &QuotaView) -> Result<(), Failure> {
    let row = |credit: &CreditView| {
        vec![
            credit.id.clone(),
            credit.amount.to_string(),
            credit.left.to_string(),
            time(credit.until_ms),
        ]
    };
    let rows = quota.credits.iter().map(row).collect();
    section(unit, quota, "credits", "ID|AMOUNT|LEFT|UNTIL", rows)
}

fn earlier(unit: &str, quota: &QuotaView) -> Result<(), Failure> {
    let ended = quota.ended.iter().rev();
    let rows = ended.map(|window| {
        let (from, until) = (time(window.from_ms), time(window.until_ms));
        vec![from, until, window.used.to_string()]
    });
    section(
        unit,
        quota,
        "earlier windows",
        "FROM|UNTIL|USED",
        rows.collect(),
    )
}

fn changes(unit: &str, quota: &QuotaView) -> Result<(), Failure> {
    let rows = quota.changes.iter().rev().map(|change| {
        let what = match &change.credit {
            Some(id) if change.tokens == 0.0 => format!("credit {id} withdrawn"),
            Some(id) => format!("credit {id}: {}", change.tokens),
            None => format!("used set to {}", change.tokens),
        };
        let by = Some(&change.by).filter(|by| !by.is_empty());
        vec![time(change.at_ms), print::or_dash(by), what]
    });
    section(unit, quota, "changes", "AT|BY|CHANGE", rows.collect())
}

/// Prints a table of a quota below its title; nothing without rows.
fn section(
    unit: &str,
    quota: &QuotaView,
    title: &str,
    header: &str,
    rows: Vec<Vec<String>>,
) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    print::lines(&format!(
        "\n{title} of {unit} per {}",
        print::plain(&quota.per)
    ))?;
    print::table(header, rows)
}

/// Milliseconds since 1970 as a date and a time.
pub(super) fn time(ms: u64) -> String {
    date_text(ms / 1000)
}
