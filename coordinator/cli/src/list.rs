//! `tollgate list`: all of a kind, page after page.

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate_coordinator::api::rest::view::{
    AttachmentPage, AttachmentView, ClientPage, ClientSummary, DefinedBy, GroupPage, GroupView,
    LimitPage, MatchView, OverridePage, OverrideView, ScopePage, ScopeSummary,
};

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
    /// The kind.
    kind: Kind,

    /// The most entries; where more follow, a line on standard error says so.
    #[arg(long, value_name = "COUNT", default_value_t = PAGE_LEN)]
    limit: usize,

    /// Only those whose names come after this.
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
}

/// Page of a list, as the API answers it.
trait Page: DeserializeOwned + Serialize {
    /// Entry of the list.
    type Entry;

    /// Returns the entries, and the name after which the list goes on.
    fn parts(&mut self) -> (&mut Vec<Self::Entry>, &mut Option<String>);

    /// Prints the entries as a table.
    fn print(&self) -> Result<(), Failure>;
}

// === impl List ===

impl List {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        match self.kind {
            Kind::Group => self.show::<GroupPage>(client, json),
            Kind::Tenant | Kind::Namespace => self.show::<AttachmentPage>(client, json),
            Kind::Override => self.show::<OverridePage>(client, json),
            Kind::Scope => self.show::<ScopePage>(client, json),
            Kind::Client => self.show::<ClientPage>(client, json),
            Kind::Limit => self.show::<LimitPage>(client, json),
        }
    }

    fn show<P: Page>(&self, client: &Client, json: bool) -> Result<(), Failure> {
        let mut page: P = self.fetch(client)?;
        if json {
            return print::json(&page);
        }
        if page.parts().0.is_empty() {
            print::note(&format!("there is no {}", self.kind.name()));
            return Ok(());
        }
        page.print()?;
        if let Some(next) = page.parts().1 {
            print::note(&format!("more follow: --after '{}'", print::plain(next)));
        }
        Ok(())
    }

    /// Reads page after page into one, until there are enough entries.
    fn fetch<P: Page>(&self, client: &Client) -> Result<P, Failure> {
        let mut whole: P = self.read(client, self.limit, self.after.as_deref())?;
        loop {
            let (entries, next) = whole.parts();
            let left = self.limit.saturating_sub(entries.len());
            if next.is_none() || left == 0 {
                return Ok(whole);
            }
            let mut page: P = self.read(client, left, next.as_deref())?;
            let (more, after) = page.parts();
            entries.append(more);
            *next = after.take();
        }
    }

    fn read<P: Page>(
        &self,
        client: &Client,
        limit: usize,
        after: Option<&str>,
    ) -> Result<P, Failure> {
        let mut path = format!("{}?limit={}", self.kind.all(), limit.min(PAGE_LEN));
        if let Some(after) = after {
            path.push_str(&format!("&after={}", segment(after)));
        }
        client.send(Call::get(path))?.read()
    }
}

// === impl Page ===

impl Page for GroupPage {
    type Entry = GroupView;

    fn parts(&mut self) -> (&mut Vec<GroupView>, &mut Option<String>) {
        (&mut self.groups, &mut self.next)
    }

    fn print(&self) -> Result<(), Failure> {
        let row = |group: &GroupView| {
            let spec = &group.spec;
            let mut row = vec![
                ("NAME", group.name.clone()),
                ("REQUESTS", short(&spec.requests)),
                ("REQUEST_BYTES", short(&spec.request_bytes)),
                ("RESPONSE_BYTES", short(&spec.response_bytes)),
                ("CONCURRENCY", short(&spec.concurrency)),
                ("FAIR_BETWEEN", short(&spec.fair_between)),
            ];
            row.extend(origin(Some(group.defined_by), group.revision));
            row
        };
        columns(self.groups.iter().map(row).collect())
    }
}

impl Page for AttachmentPage {
    type Entry = AttachmentView;

    fn parts(&mut self) -> (&mut Vec<AttachmentView>, &mut Option<String>) {
        (&mut self.attachments, &mut self.next)
    }

    fn print(&self) -> Result<(), Failure> {
        let row = |attachment: &AttachmentView| {
            let mut row = vec![
                ("NAME", attachment.name.clone()),
                ("GROUP", short(&attachment.spec.group)),
                ("WEIGHT", short(&attachment.spec.weight)),
            ];
            row.extend(origin(Some(attachment.defined_by), attachment.revision));
            row
        };
        columns(self.attachments.iter().map(row).collect())
    }
}

impl Page for OverridePage {
    type Entry = OverrideView;

    fn parts(&mut self) -> (&mut Vec<OverrideView>, &mut Option<String>) {
        (&mut self.overrides, &mut self.next)
    }

    fn print(&self) -> Result<(), Failure> {
        let row = |one: &OverrideView| {
            let mut row = vec![
                ("SCOPE", one.scope.clone()),
                ("REQUESTS", short(&one.spec.requests)),
                ("REQUEST_BYTES", short(&one.spec.request_bytes)),
                ("RESPONSE_BYTES", short(&one.spec.response_bytes)),
                ("CONCURRENCY", short(&one.spec.concurrency)),
            ];
            row.extend(origin(None, one.revision));
            row
        };
        columns(self.overrides.iter().map(row).collect())
    }
}

impl Page for ScopePage {
    type Entry = ScopeSummary;

    fn parts(&mut self) -> (&mut Vec<ScopeSummary>, &mut Option<String>) {
        (&mut self.scopes, &mut self.next)
    }

    fn print(&self) -> Result<(), Failure> {
        let rows = self.scopes.iter().flat_map(|scope| {
            scope.units.iter().map(|(unit, resource)| {
                vec![
                    ("SCOPE", scope.scope.clone()),
                    ("UNIT", unit.clone()),
                    ("CAPACITY", print::amount(unit, resource.capacity)),
                    ("HAS", print::amount(unit, resource.sum_has)),
                    ("WANTS", print::amount(unit, resource.sum_wants)),
                    ("CLIENTS", resource.client_count.to_string()),
                    (
                        "LEARNING",
                        match resource.learning_ms {
                            0 => "-".to_owned(),
                            ms => print::duration(ms),
                        },
                    ),
                ]
            })
        });
        columns(rows.collect())
    }
}

impl Page for ClientPage {
    type Entry = ClientSummary;

    fn parts(&mut self) -> (&mut Vec<ClientSummary>, &mut Option<String>) {
        (&mut self.clients, &mut self.next)
    }

    fn print(&self) -> Result<(), Failure> {
        let row = |client: &ClientSummary| {
            vec![
                ("CLIENT", client.client.clone()),
                ("RESOURCE_COUNT", client.resource_count.to_string()),
                ("WAITING_COUNT", client.waiting_count.to_string()),
            ]
        };
        columns(self.clients.iter().map(row).collect())
    }
}

impl Page for LimitPage {
    type Entry = MatchView;

    fn parts(&mut self) -> (&mut Vec<MatchView>, &mut Option<String>) {
        (&mut self.limits, &mut self.next)
    }

    fn print(&self) -> Result<(), Failure> {
        let row = |one: &MatchView| {
            let capacity = |unit: &str| {
                let limit = one.units.get(unit);
                limit.map_or_else(String::new, |limit| print::amount(unit, limit.capacity))
            };
            vec![
                ("MATCH", one.r#match.clone()),
                ("REQUESTS", capacity("requests")),
                ("REQUEST_BYTES", capacity("request_bytes")),
                ("RESPONSE_BYTES", capacity("response_bytes")),
                ("CONCURRENCY", capacity("concurrency")),
            ]
        };
        columns(self.limits.iter().map(row).collect())
    }
}

// === free functions ===

/// Returns the cells that say where something is defined.
fn origin(
    defined_by: Option<DefinedBy>,
    revision: Option<u64>,
) -> impl Iterator<Item = (&'static str, String)> {
    let defined_by = defined_by.map(|by| ("DEFINED_BY", by.name().to_owned()));
    let revision = ("REVISION", print::or_dash(revision));
    defined_by.into_iter().chain([revision])
}

/// Prints rows that have the same columns, without those that are empty in every row.
fn columns(rows: Vec<Vec<(&'static str, String)>>) -> Result<(), Failure> {
    let header: Vec<&str> = rows.first().map_or_else(Vec::new, |row| {
        let names = row.iter().map(|(name, _)| *name);
        let is_used = |name: &&str| {
            let mut cells = rows.iter().flatten();
            cells.any(|(column, cell)| column == name && !cell.is_empty())
        };
        names.filter(is_used).collect()
    });
    let cells = |row: Vec<(&str, String)>| {
        let used = row.into_iter().filter(|(name, _)| header.contains(name));
        let cell = |(_, cell): (&str, String)| match cell.is_empty() {
            true => "-".to_owned(),
            false => cell,
        };
        used.map(cell).collect()
    };
    let rows = rows.into_iter().map(cells).collect();
    print::table(&header, rows)
}

/// Returns a definition in one cell; of a unit's limit first the rate or the maximum.
fn short(value: &impl Serialize) -> String {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let value = serde_json::to_value(value).unwrap_or_default();
    let Some(fields) = value.as_object() else {
        return text(&value);
    };
    let (main, rest): (Vec<_>, Vec<_>) = fields
        .iter()
        .partition(|(field, _)| ["rate", "max"].contains(&field.as_str()));
    let main = main.into_iter().map(|(_, value)| text(value));
    let rest = rest.into_iter();
    let rest = rest.map(|(field, value)| format!("{field}={}", text(value)));
    main.chain(rest).collect::<Vec<_>>().join(" ")
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
            (json!("members"), "members"),
            (json!(null), ""),
        ];
        for (value, want) in rows {
            assert_eq!(short(&value), want);
        }
    }
}
