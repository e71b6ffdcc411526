//! `tollgate list`: all of a kind.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::{Map, Value};

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, segment};
use crate::print;

/// The most entries that the API gives at once.
const PAGE_LEN: usize = 1000;

const EXAMPLES: &str = "\
Examples:
  tollgate list groups
  tollgate list tenants --limit 10000 --json
  tollgate list scopes --after tenant/acme";

/// List what there is, in the order of names.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct List {
    /// What.
    kind: Kind,

    /// How many at most; where more follow, a line on standard error says so.
    #[arg(long, value_name = "COUNT", default_value_t = PAGE_LEN)]
    limit: usize,

    /// Only those whose names come after this.
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
}

/// What was listed.
#[derive(Debug, Default)]
struct Found {
    /// The name under which the API lists them.
    field: String,
    entries: Vec<Value>,
    /// After which name to list on.
    next: Option<String>,
}

// === impl List ===

impl List {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        let found = self.fetch(client)?;
        let Found {
            field,
            entries,
            next,
        } = found;
        if json {
            let mut page = Map::new();
            page.insert("next".to_owned(), next.into());
            page.insert(field, entries.into());
            return print::json(&page.into());
        }
        if entries.is_empty() {
            print::note(&format!("there is no {}", self.kind.name()));
            return Ok(());
        }
        match self.kind {
            Kind::Scope => print::table(
                &[
                    "SCOPE", "UNIT", "CAPACITY", "HAS", "WANTS", "CLIENTS", "LEARNING",
                ],
                entries.iter().flat_map(scope_rows).collect(),
            )?,
            _ => listed(&entries)?,
        }
        if let Some(next) = next {
            print::note(&format!("more follow: --after '{}'", print::plain(&next)));
        }
        Ok(())
    }

    /// Page after page, until there are enough.
    fn fetch(&self, client: &Client) -> Result<Found, Failure> {
        let mut found = Found {
            next: self.after.clone(),
            ..Found::default()
        };
        loop {
            let left = self.limit.saturating_sub(found.entries.len());
            let mut path = format!("{}?limit={}", self.kind.all(), left.min(PAGE_LEN));
            if let Some(after) = &found.next {
                path.push_str(&format!("&after={}", segment(after)));
            }
            found.add(client.send(Call::get(path))?.body);
            if found.next.is_none() || found.entries.len() >= self.limit {
                return Ok(found);
            }
        }
    }
}

// === impl Found ===

impl Found {
    /// Adds a page: an object with `next` and one list.
    fn add(&mut self, page: Value) {
        let Value::Object(page) = page else { return };
        self.next = None;
        for (field, value) in page {
            match value {
                Value::Array(entries) => {
                    self.field = field;
                    self.entries.extend(entries);
                }
                Value::String(next) if field == "next" => self.next = Some(next),
                _ => {}
            }
        }
    }
}

// === free functions ===

fn scope_rows(scope: &Value) -> Vec<Vec<String>> {
    let units = scope["units"].as_object().into_iter().flatten();
    let row = |(unit, resource): (&String, &Value)| {
        vec![
            print::text(&scope["scope"]),
            unit.clone(),
            print::amount(unit, &resource["capacity"]),
            print::amount(unit, &resource["sum_has"]),
            print::amount(unit, &resource["sum_wants"]),
            print::text(&resource["client_count"]),
            match resource["learning_ms"].as_u64() {
                None | Some(0) => "-".to_owned(),
                Some(ms) => print::duration(ms),
            },
        ]
    };
    units.map(row).collect()
}

/// A column for each field that some entry has: first what it is called, last where it is from.
fn listed(entries: &[Value]) -> Result<(), Failure> {
    let entries: Vec<_> = entries.iter().map(flat).collect();
    let fields: BTreeSet<&str> = entries
        .iter()
        .flat_map(|entry| entry.keys().copied())
        .collect();
    let mut fields: Vec<&str> = fields.into_iter().collect();
    fields.sort_by_key(|field| match *field {
        "name" | "scope" | "match" | "client" => 0,
        "defined_by" => 2,
        "revision" => 3,
        _ => 1,
    });
    let header: Vec<String> = fields.iter().map(|field| field.to_uppercase()).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let row = |entry: &BTreeMap<&str, &Value>| {
        let cell = |field: &&str| {
            entry
                .get(field)
                .map_or_else(|| "-".to_owned(), |cell| short(field, cell))
        };
        fields.iter().map(cell).collect()
    };
    print::table(&header, entries.iter().map(row).collect())
}

/// The fields of an entry and, beside them, those of what it says.
fn flat(entry: &Value) -> BTreeMap<&str, &Value> {
    let mut fields = BTreeMap::new();
    for (field, value) in entry.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(below) if ["spec", "units"].contains(&field.as_str()) => {
                fields.extend(below.iter().map(|(field, value)| (field.as_str(), value)));
            }
            _ => {
                fields.insert(field.as_str(), value);
            }
        }
    }
    fields
}

/// A value in a cell; of a unit's limit first the number that matters.
fn short(field: &str, value: &Value) -> String {
    let Some(fields) = value.as_object() else {
        return print::text(value);
    };
    if let Some(capacity) = fields.get("capacity") {
        return print::amount(field, capacity);
    }
    let main = ["rate", "max"];
    let first = main.into_iter().find_map(|main| fields.get(main));
    let others = fields
        .iter()
        .filter(|(field, _)| !main.contains(&field.as_str()));
    let others = others.map(|(field, value)| format!("{field}={}", print::text(value)));
    let parts = first.map(print::text).into_iter().chain(others);
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_in_a_cell_begins_with_the_number_that_matters() {
        let rows = [
            (json!({"burst": 5, "rate": "1.5k"}), "1.5k burst=5"),
            (json!({"max": 64}), "64"),
            (json!({"capacity": 100.0, "lease_ms": 10_000}), "100"),
            (json!("members"), "members"),
            (json!(null), "-"),
        ];
        for (value, want) in rows {
            assert_eq!(short("requests", &value), want);
        }
    }

    #[test]
    fn pages_make_one_list() {
        let mut found = Found::default();
        found.add(json!({"groups": [1, 2], "next": "b"}));
        assert_eq!(found.next.as_deref(), Some("b"));
        found.add(json!({"groups": [3], "next": null}));
        assert_eq!((found.field.as_str(), found.next), ("groups", None));
        assert_eq!(found.entries, [1, 2, 3]);
    }
}
