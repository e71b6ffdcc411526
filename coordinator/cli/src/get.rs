//! `tollgate get`: one thing.

use clap::Args;
use serde_json::Value;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::print;

mod limit;

const EXAMPLES: &str = "\
Examples:
  tollgate get group gold
      The group's limits as YAML, with its revision for --if-match on top.
  tollgate get group gold > gold.yaml; $EDITOR gold.yaml; tollgate put group gold -f gold.yaml
      Changes a group.
  tollgate get tenant acme
      Which group the tenant is attached to.
  tollgate get scope tenant/acme
      Who has and wants how much of it.
  tollgate get limit tenant/acme
      What limits it, and where that comes from; with --json all of it.";

/// Show one thing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Get {
    /// What.
    #[arg(hide_possible_values = false)]
    kind: Kind,

    /// Its name; of a scope, an override and a limit the scope's id, such as `tenant/acme`.
    name: String,
}

// === impl Get ===

impl Get {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        let reply = client.send(Call::get(self.kind.one(&self.name)?))?;
        if json {
            return print::json(&reply.body);
        }
        match self.kind {
            Kind::Scope => scope(&reply.body),
            Kind::Client => leases(&reply.body),
            Kind::Limit => limit::show(&reply.body),
            _ => definition(&reply.body),
        }
    }
}

// === free functions ===

/// What is stored, as it can be put again; what else there is to say of it stands in comments.
fn definition(body: &Value) -> Result<(), Failure> {
    let Some(spec) = body.get("spec") else {
        return print::yaml(body);
    };
    let others = body.as_object().into_iter().flatten();
    for (field, value) in others.filter(|(field, value)| *field != "spec" && !value.is_null()) {
        let value = print::plain(&print::text(value));
        print::lines(&format!("# {field}: {value}"))?;
    }
    print::yaml(spec)
}

/// A scope's resources with their clients.
fn scope(scope: &Value) -> Result<(), Failure> {
    let units = scope["units"].as_object().into_iter().flatten();
    for (i, (unit, resource)) in units.enumerate() {
        let amount = |field: &str| print::amount(unit, &resource[field]);
        let gap = if i > 0 { "\n" } else { "" };
        print::lines(&format!(
            "{gap}{} {unit}: capacity {}, has {}, wants {}, safe {}, clients {}, waiting {}{}{}",
            print::plain(&print::text(&scope["scope"])),
            amount("capacity"),
            amount("sum_has"),
            amount("sum_wants"),
            amount("safe"),
            print::text(&resource["client_count"]),
            print::text(&resource["waiting_count"]),
            learning(resource),
            limited_by(unit, resource),
        ))?;
        let clients = resource["clients"].as_array().into_iter().flatten();
        let mut clients: Vec<&Value> = clients.collect();
        clients.sort_by_key(|client| client["client"].as_str());
        let row = |client: &Value| {
            let mut row = vec![print::text(&client["client"])];
            row.extend(held(unit, client));
            row
        };
        let rows = clients.into_iter().map(row).collect();
        print::table(&["CLIENT", "HAS", "WANTS", "EXPIRES"], rows)?;
    }
    Ok(())
}

/// What a client has of each resource.
fn leases(client: &Value) -> Result<(), Failure> {
    if let Some(ms) = client["drained_for_ms"].as_u64() {
        print::lines(&format!("drained for {}", print::duration(ms)))?;
    }
    let leases = client["leases"].as_array().into_iter().flatten();
    let rows = leases.map(|lease| {
        let unit = print::text(&lease["unit"]);
        let held = held(&unit, lease);
        let mut row = vec![print::text(&lease["scope"]), unit];
        row.extend(held);
        row
    });
    print::table(
        &["SCOPE", "UNIT", "HAS", "WANTS", "EXPIRES"],
        rows.collect(),
    )?;
    let count = client["lease_count"].as_u64().unwrap_or_default();
    let shown = client["leases"].as_array().map_or(0, Vec::len) as u64;
    if shown < count {
        print::note(&format!("only {shown} of {count} leases are shown"));
    }
    Ok(())
}

/// What a client has and wants of a resource of `unit`, and until when.
fn held(unit: &str, books: &Value) -> [String; 3] {
    [
        print::amount(unit, &books["has"]),
        print::amount(unit, &books["wants"]),
        print::duration(books["expires_in_ms"].as_u64().unwrap_or_default()),
    ]
}

fn limited_by(unit: &str, resource: &Value) -> String {
    let limited_by = &resource["limited_by"];
    match limited_by["whose"].as_str() {
        None => String::new(),
        Some(whose) => format!(
            ", limited by {} to {}",
            print::plain(whose),
            print::amount(unit, &limited_by["at_most"])
        ),
    }
}

fn learning(resource: &Value) -> String {
    match resource["learning_ms"].as_u64() {
        None | Some(0) => String::new(),
        Some(ms) => format!(", learning for {}", print::duration(ms)),
    }
}
