//! `tollgate attach`: a tenant or a namespace to a group.

use clap::Args;
use serde_json::json;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, MEMBERS, one_of};
use crate::print;
use crate::put::Condition;

const EXAMPLES: &str = "\
Examples:
  tollgate attach tenant acme gold
  tollgate attach tenant acme gold --weight 3
      When the group is short, acme gets three times what a member of weight 1 gets.
  tollgate attach namespace acme/orders silver
      Only this namespace; acme's others go with the tenant.";

/// Attach a tenant or a namespace to a group instead of its present one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Attach {
    /// The kind.
    #[arg(value_parser = one_of(MEMBERS))]
    kind: Kind,

    /// Its name.
    name: String,

    /// The group.
    group: String,

    /// The weight of its part of the group; 1 by default.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    weight: Option<String>,

    #[command(flatten)]
    condition: Condition,
}

// === impl Attach ===

impl Attach {
    pub(crate) fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let kind = self.kind;
        let mut body = json!({ "group": self.group });
        if let Some(weight) = self.weight {
            body["weight"] = weight.into();
        }
        let call = Call::put(kind.one(&self.name)?, body);
        let reply = client.send(self.condition.apply(call));
        let reply = reply.map_err(|failure| failure.about(kind.name(), &self.name))?;
        if as_json {
            return print::json(&reply.body);
        }
        let (name, group) = (print::plain(&self.name), print::plain(&self.group));
        print::lines(&format!("{} {name} attached to {group}", kind.name()))
    }
}
