//! `tollgate get`: one thing.

use clap::Args;
use serde::Serialize;
use tollgate_admin::view::{
    AttachmentView, ClientDetail, GroupDetail, LeaseView, OverrideView, RaiseView,
};
use tollgate_core::quantity::duration_text;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::print;
use crate::quota;

mod limit;
mod scope;

const EXAMPLES: &str = "\
Examples:
  tollgate get group gold
      The group's limits as YAML, with its revision for --if-match on top.
  tollgate get group gold > gold.yaml; $EDITOR gold.yaml; tollgate put group gold -f gold.yaml
      Changes a group.
  tollgate get tenant acme
      The group of the tenant.
  tollgate get scope tenant/acme
      Its limits and their origins, its group, and its clients with what each has and wants.
  tollgate get limit tenant/acme
      The limits in force and their sources; with --json all of it.
  tollgate get quota tenant/acme
      What is used, held by Envoys and left of each quota, its credits, earlier windows and changes.";

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
        if self.kind == Kind::Scope {
            return scope::show(client, &self.name, json);
        }
        let reply = client.send(Call::get(self.kind.one(&self.name)?))?;
        if json {
            return print::json(&reply.body);
        }
        match self.kind {
            Kind::Client => leases(&reply.read()?),
            Kind::Scope | Kind::Limit => limit::show(&[reply.read()?]),
            Kind::Group => group(&reply.read()?),
            Kind::Tenant | Kind::Namespace => attachment(&reply.read()?),
            Kind::Override => override_of(&reply.read()?),
            Kind::Raise => raise(&reply.read()?),
            Kind::Quota => quota::show(&reply.read()?),
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

fn raise(raise: &RaiseView) -> Result<(), Failure> {
    let about = [("scope", raise.scope.clone())];
    definition(&about, raise.revision, &raise.spec)
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

/// Prints a client's lease of each resource.
fn leases(client: &ClientDetail) -> Result<(), Failure> {
    if let Some(ms) = client.drained_for_ms {
        print::lines(&format!("drained for {}", duration_text(ms)))?;
    }
    let row = |lease: &LeaseView| {
        vec![
            lease.scope.clone(),
            lease.unit.clone(),
            lease.has.text(&lease.unit),
            lease.wants.text(&lease.unit),
            duration_text(lease.expires_in_ms),
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
