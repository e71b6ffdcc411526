//! `tollgate delete` and `tollgate detach`.

use clap::Args;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, Member, Stored};
use crate::print;

const DELETE_EXAMPLES: &str = "\
Examples:
  tollgate delete group gold
      Exit code 5 while something is attached to it.
  tollgate delete override tenant/acme --if-match 42
      Unless it has been changed meanwhile.";

const DETACH_EXAMPLES: &str = "\
Examples:
  tollgate detach tenant acme
  tollgate detach namespace acme/orders
      The namespace then goes with its tenant again.";

/// Delete something that was written through the API.
#[derive(Debug, Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(crate) struct Delete {
    /// The kind.
    kind: Stored,

    /// Its name; of an override the scope's id.
    name: String,

    /// Only if it still has this revision, as `get` shows it.
    #[arg(long, value_name = "REVISION")]
    if_match: Option<String>,
}

/// Detach a tenant or a namespace from its group.
#[derive(Debug, Args)]
#[command(after_help = DETACH_EXAMPLES)]
pub(crate) struct Detach {
    /// The kind.
    kind: Member,

    /// Its name.
    name: String,

    /// Only if it still has this revision, as `get` shows it.
    #[arg(long, value_name = "REVISION")]
    if_match: Option<String>,
}

// === impl Delete ===

impl Delete {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        let kind = self.kind.into();
        delete(
            client,
            kind,
            &self.name,
            self.if_match.as_deref(),
            ("deleted", json),
        )
    }
}

// === impl Detach ===

impl Detach {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        let kind = self.kind.into();
        delete(
            client,
            kind,
            &self.name,
            self.if_match.as_deref(),
            ("detached", json),
        )
    }
}

// === free functions ===

fn delete(
    client: &Client,
    kind: Kind,
    name: &str,
    version: Option<&str>,
    (done, json): (&str, bool),
) -> Result<(), Failure> {
    let call = Call::delete(kind.one(name)?).if_match(version);
    let reply = client.send(call);
    let reply = reply.map_err(|failure| failure.about(kind, name))?;
    if json {
        return print::json(&reply.body);
    }
    print::lines(&format!("{} {} {done}", kind.name(), print::plain(name)))
}
