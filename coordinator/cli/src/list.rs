//! `tollgate list`: all of a kind, page after page.

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate_admin::view::{
    AttachmentPage, AttachmentView, ClientPage, ClientSummary, GroupPage, GroupView, LimitPage,
    MatchView, OverridePage, OverrideView, QuotasPage, RaisePage, RaiseView, ScopePage,
    ScopeSummary, UnitSummary,
};
use tollgate_core::quantity::duration_text;
use tollgate_net::clock::date_text;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, segment};
use crate::print;
use crate::quota;

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

/// Entries of a page `P`, and the name after which the list goes on.
type Parts<P, E> = fn(&mut P) -> (&mut Vec<E>, &mut Option<String>);

/// Cells of a row, each with its column.
type Row = Vec<(&'static str, String)>;

// === impl List ===

impl List {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        match self.kind {
            Kind::Group => {
                let parts: Parts<GroupPage, _> = |page| (&mut page.groups, &mut page.next);
                self.show(client, json, parts, group)
            }
            Kind::Tenant | Kind::Namespace => {
                let parts: Parts<AttachmentPage, _> =
                    |page| (&mut page.attachments, &mut page.next);
                self.show(client, json, parts, attachment)
            }
            Kind::Override => {
                let parts: Parts<OverridePage, _> = |page| (&mut page.overrides, &mut page.next);
                self.show(client, json, parts, override_of)
            }
            Kind::Raise => {
                let parts: Parts<RaisePage, _> = |page| (&mut page.raises, &mut page.next);
                self.show(client, json, parts, raise)
            }
            Kind::Scope => {
                let parts: Parts<ScopePage, _> = |page| (&mut page.scopes, &mut page.next);
                self.show(client, json, parts, scope)
            }
            Kind::Client => {
                let parts: Parts<ClientPage, _> = |page| (&mut page.clients, &mut page.next);
                self.show(client, json, parts, client_of)
            }
            Kind::Quota => {
                let parts: Parts<QuotasPage, _> = |page| (&mut page.scopes, &mut page.next);
                self.show(client, json, parts, quota::rows)
            }
            Kind::Limit => {
                let parts: Parts<LimitPage, _> = |page| (&mut page.limits, &mut page.next);
                self.show(client, json, parts, limit)
            }
        }
    }

    /// Prints the list, as a table with `rows` about each entry.
    fn show<P: DeserializeOwned + Serialize, E>(
        &self,
        client: &Client,
        json: bool,
        parts: Parts<P, E>,
        rows: fn(&E) -> Vec<Row>,
    ) -> Result<(), Failure> {
        let mut page = self.fetch(client, parts)?;
        if json {
            return print::json(&page);
        }
        let (entries, next) = parts(&mut page);
        if entries.is_empty() {
            print::note(&format!("there is no {}", self.kind.name()));
            return Ok(());
        }
        columns(entries.iter().flat_map(rows).collect())?;
        if let Some(next) = next {
            print::note(&format!("more follow: --after '{}'", print::plain(next)));
        }
        Ok(())
    }

    /// Reads page after page into one, until there are enough entries.
    fn fetch<P: DeserializeOwned, E>(
        &self,
        client: &Client,
        parts: Parts<P, E>,
    ) -> Result<P, Failure> {
        let mut whole: P = self.read(client, self.limit, self.after.as_deref())?;
        loop {
            let (entries, next) = parts(&mut whole);
            let left = self.limit.saturating_sub(entries.len());
            if next.is_none() || left == 0 {
                return Ok(whole);
            }
            let mut page: P = self.read(client, left, next.as_deref())?;
            let (more, after) = parts(&mut page);
            entries.append(more);
            *next = after.take();
        }
    }

    fn read<P: DeserializeOwned>(
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

// === free functions ===

fn group(group: &GroupView) -> Vec<Row> {
    let spec = &group.spec;
    vec![vec![
        ("NAME", group.name.clone()),
        ("REQUESTS", short(&spec.requests)),
        ("REQUEST_BYTES", short(&spec.request_bytes)),
        ("RESPONSE_BYTES", short(&spec.response_bytes)),
        ("CONCURRENCY", short(&spec.concurrency)),
        ("FAIR_BETWEEN", short(&spec.fair_between)),
        ("DEFINED_BY", group.defined_by.name().to_owned()),
        ("REVISION", print::or_dash(group.revision)),
    ]]
}

fn attachment(attachment: &AttachmentView) -> Vec<Row> {
    vec![vec![
        ("NAME", attachment.name.clone()),
        ("GROUP", short(&attachment.spec.group)),
        ("WEIGHT", short(&attachment.spec.weight)),
        ("DEFINED_BY", attachment.defined_by.name().to_owned()),
        ("REVISION", print::or_dash(attachment.revision)),
    ]]
}

fn override_of(one: &OverrideView) -> Vec<Row> {
    vec![vec![
        ("SCOPE", one.scope.clone()),
        ("REQUESTS", short(&one.spec.requests)),
        ("REQUEST_BYTES", short(&one.spec.request_bytes)),
        ("RESPONSE_BYTES", short(&one.spec.response_bytes)),
        ("CONCURRENCY", short(&one.spec.concurrency)),
        ("REVISION", print::or_dash(one.revision)),
    ]]
}

fn raise(one: &RaiseView) -> Vec<Row> {
    let until = one.spec.until.as_ref();
    let until = until.and_then(|until| until.as_str().parse().ok());
    vec![vec![
        ("SCOPE", one.scope.clone()),
        ("REQUESTS", short(&one.spec.requests)),
        ("REQUEST_BYTES", short(&one.spec.request_bytes)),
        ("RESPONSE_BYTES", short(&one.spec.response_bytes)),
        ("CONCURRENCY", short(&one.spec.concurrency)),
        ("UNTIL", print::or_dash(until.map(date_text))),
    ]]
}

fn scope(scope: &ScopeSummary) -> Vec<Row> {
    let row = |(unit, resource): (&String, &UnitSummary)| {
        let learning = Some(resource.learning_ms).filter(|ms| *ms > 0);
        vec![
            ("SCOPE", scope.scope.clone()),
            ("UNIT", unit.clone()),
            ("CAPACITY", resource.text(unit, resource.capacity)),
            ("HAS", resource.text(unit, resource.sum_has)),
            ("WANTS", resource.text(unit, resource.sum_wants)),
            ("CLIENTS", resource.client_count.to_string()),
            ("LEARNING", print::or_dash(learning.map(duration_text))),
        ]
    };
    scope.units.iter().map(row).collect()
}

fn client_of(client: &ClientSummary) -> Vec<Row> {
    vec![vec![
        ("CLIENT", client.client.clone()),
        ("RESOURCE_COUNT", client.resource_count.to_string()),
        ("WAITING_COUNT", client.waiting_count.to_string()),
    ]]
}

fn limit(one: &MatchView) -> Vec<Row> {
    let capacity = |unit: &str| {
        let limit = one.units.get(unit);
        limit.map_or_else(String::new, |limit| limit.text(unit, limit.capacity))
    };
    vec![vec![
        ("MATCH", one.r#match.clone()),
        ("REQUESTS", capacity("requests")),
        ("REQUEST_BYTES", capacity("request_bytes")),
        ("RESPONSE_BYTES", capacity("response_bytes")),
        ("CONCURRENCY", capacity("concurrency")),
    ]]
}

/// Prints rows that have the same columns, without those that are empty in every row.
fn columns(rows: Vec<Row>) -> Result<(), Failure> {
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
        let cell = |(_, cell): (&str, String)| {
            if cell.is_empty() {
                "-".to_owned()
            } else {
                cell
            }
        };
        used.map(cell).collect()
    };
    let rows = rows.into_iter().map(cells).collect();
    print::table(&header.join("|"), rows)
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
