//! What limits a scope, as a table.

use serde_json::Value;

use crate::failure::Failure;
use crate::print;

/// The scope's own limits and its group's, each with where it comes from.
pub(super) fn show(limits: &Value) -> Result<(), Failure> {
    let scope = print::text(&limits["scope"]);
    let canonical = print::text(&limits["canonical"]);
    let shared = if canonical == scope {
        String::new()
    } else {
        format!(", uses the capacity of {canonical} as well")
    };
    let group = &limits["group"];
    let member = if group.is_null() {
        String::new()
    } else {
        format!(
            ", member of group {} with weight {}",
            print::text(&group["name"]),
            print::text(&group["weight"])
        )
    };
    print::lines(&print::plain(&format!("{scope}{member}{shared}")))?;
    let own = &limits["own"];
    let mut rows = rows(&source(&own["source"]), &own["units"]);
    rows.extend(self::rows(
        &format!("group {}", print::text(&group["name"])),
        &group["units"],
    ));
    if rows.is_empty() {
        return print::lines("no unit has a limit");
    }
    let header = [
        "FROM",
        "UNIT",
        "CAPACITY",
        "BURST",
        "SAFE",
        "ALGORITHM",
        "LEASE",
        "REFRESH",
    ];
    print::table(&header, rows)
}

fn source(source: &Value) -> String {
    match source["kind"].as_str() {
        Some("file") => format!("file: {}", print::text(&source["match"])),
        Some("override") => format!("override, revision {}", source["revision"]),
        Some(kind) => kind.to_owned(),
        None => "-".to_owned(),
    }
}

fn rows(from: &str, units: &Value) -> Vec<Vec<String>> {
    let units = units.as_object().into_iter().flatten();
    let row = |(unit, limit): (&String, &Value)| {
        let amount = |field: &str| print::amount(unit, &limit[field]);
        let time = |field: &str| print::duration(limit[field].as_u64().unwrap_or_default());
        vec![
            from.to_owned(),
            unit.clone(),
            amount("capacity"),
            amount("burst"),
            amount("safe"),
            print::text(&limit["algorithm"]),
            time("lease_ms"),
            time("refresh_ms"),
        ]
    };
    units.map(row).collect()
}
