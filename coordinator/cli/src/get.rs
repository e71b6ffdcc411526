//! `tollgate get`: one thing.

use clap::Args;
use serde::Serialize;
use tollgate_coordinator::api::rest::view::{
    AttachmentView, ClientDetail, GroupDetail, LeaseView, OverrideView, ScopeDetail, UnitDetail,
    UnitSummary,
};

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
      The group of the tenant.
  tollgate get scope tenant/acme
      Its clients, with what each has and wants.
  tollgate get limit tenant/acme
      The limits in force and their sources; with --json all of it.";

/// Show one thing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Get {
    /// The kind.
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
            Kind::Scope => scope(&reply.read()?),
            Kind::Client => leases(&reply.read()?),
            Kind::Limit => limit::show(&reply.read()?),
            Kind::Group => group(&reply.read()?),
            Kind::Tenant | Kind::Namespace => attachment(&reply.read()?),
            Kind::Override => override_of(&reply.read()?),
        }
    }
}

// === free functions ===

fn group(detail: &GroupDetail) -> Result<(), Failure> {
    let group = &detail.group;
    let about = [
        ("name", group.name.clone()),
        ("defined_by", group.defined_by.name().to_owned()),
        ("attached_count", detail.attached_count.to_string()),
    ];
    definition(&about, group.revision, &group.spec)
}

fn attachment(attachment: &AttachmentView) -> Result<(), Failure> {
    let about = [
        ("name", attachment.name.clone()),
        ("defined_by", attachment.defined_by.name().to_owned()),
    ];
    definition(&about, attachment.revision, &attachment.spec)
}

fn override_of(stored: &OverrideView) -> Result<(), Failure> {
    let about = [("scope", stored.scope.clone())];
    definition(&about, stored.revision, &stored.spec)
}

/// Prints `spec` as it can be put again, below comments with the rest.
fn definition(
    about: &[(&str, String)],
    revision: Option<u64>,
    spec: &impl Serialize,
) -> Result<(), Failure> {
    for (field, value) in about {
        print::lines(&format!("# {field}: {}", print::plain(value)))?;
    }
    if let Some(revision) = revision {
        print::lines(&format!("# revision: {revision}"))?;
    }
    print::yaml(spec)
}

/// Prints a scope's resources with their clients.
fn scope(detail: &ScopeDetail) -> Result<(), Failure> {
    for (i, (unit, resource)) in detail.units.iter().enumerate() {
        let gap = if i > 0 { "\n" } else { "" };
        let scope = print::plain(&detail.scope);
        print::lines(&format!("{gap}{scope} {}", sums(unit, resource)))?;
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
        print::table("CLIENT|HAS|WANTS|EXPIRES", rows.collect())?;
    }
    Ok(())
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

/// Prints a client's lease of each resource.
fn leases(client: &ClientDetail) -> Result<(), Failure> {
    if let Some(ms) = client.drained_for_ms {
        print::lines(&format!("drained for {}", print::duration(ms)))?;
    }
    let row = |lease: &LeaseView| {
        vec![
            lease.scope.clone(),
            lease.unit.clone(),
            print::amount(&lease.unit, lease.has),
            print::amount(&lease.unit, lease.wants),
            print::duration(lease.expires_in_ms),
        ]
    };
    let rows = client.leases.iter().map(row).collect();
    print::table("SCOPE|UNIT|HAS|WANTS|EXPIRES", rows)?;
    let (shown, count) = (client.leases.len(), client.lease_count);
    if shown < count {
        print::note(&format!("only {shown} of {count} leases are shown"));
    }
    Ok(())
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
