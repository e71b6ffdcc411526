//! `tollgate delete` and `tollgate detach`.

use clap::Args;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, MEMBERS, STORED, one_of};
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
    #[arg(value_parser = one_of(STORED))]
    kind: Kind,

    #[command(flatten)]
    entry: Entry,
}

/// Detach a tenant or a namespace from its group.
#[derive(Debug, Args)]
#[command(after_help = DETACH_EXAMPLES)]
pub(crate) struct Detach {
    /// The kind.
    #[arg(value_parser = one_of(MEMBERS))]
    kind: Kind,

    #[command(flatten)]
    entry: Entry,
}

/// Entry that is to go.
#[derive(Debug, Args)]
struct Entry {
    /// Its name; of an override the scope's id.
    name: String,

    /// Only if it still has this revision, as `get` shows it.
    #[arg(long, value_name = "REVISION")]
    if_match: Option<String>,
}

// === impl Delete ===

impl Delete {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        self.entry.delete(client, self.kind, json, "deleted")
    }
}

// === impl Detach ===

impl Detach {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        self.entry.delete(client, self.kind, json, "detached")
    }
}

// === impl Entry ===

impl Entry {
    fn delete(self, client: &Client, kind: Kind, json: bool, done: &str) -> Result<(), Failure> {
        let name = &self.name;
        let call = Call::delete(kind.one(name)?).if_match(self.if_match.as_deref());
        let reply = client.send(call);
        let reply = reply.map_err(|failure| failure.about(kind.name(), name))?;
        if json {
            return print::json(&reply.body);
        }
        print::lines(&format!("{} {} {done}", kind.name(), print::plain(name)))
    }
}
