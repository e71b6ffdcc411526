//! `tollgate quota`: changes of what is used of quotas, and their usage for billing.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tollgate_admin::view::QuotasView;
use tollgate_net::clock::unix_time;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::print;

mod export;
mod show;

pub(crate) use self::show::{rows, show};

const EXAMPLES: &str = "\
Examples:
  tollgate get quota tenant/acme
      What is used, held by Envoys and left of each quota of acme, its credits and earlier windows.
  tollgate quota credit tenant/acme 500 --id ticket-7
      500 more until the window ends; the same command once more gives nothing.
  tollgate quota credit group/gold 1M --id promotion --for 90d --per month
  tollgate quota set-used tenant/acme 4200
      As another limiter has counted before.
  tollgate quota withdraw group/gold --id promotion --per month
  tollgate quota reset tenant/acme
  tollgate quota export --format csv > usage.csv
      The use of each scope, of this window and of earlier ones.";

/// Change what is used of quotas, and export it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Quota {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say that nothing is used of a quota; tokens that Envoys hold count on.
    Reset {
        #[command(flatten)]
        which: Which,
    },
    /// Say how much has been used in this window; tokens that Envoys hold count beside that.
    SetUsed {
        #[command(flatten)]
        which: Which,

        /// The amount, such as `4200` or `5k`.
        amount: String,
    },
    /// Give tokens beside the amount, once.
    Credit {
        #[command(flatten)]
        which: Which,

        /// The tokens, such as `500` or `1M`.
        amount: String,

        /// Id of the credit, such as that of a ticket: it is given once.
        #[arg(long)]
        id: String,

        /// How long they can be used, such as `30d`; by default until the window ends.
        #[arg(long = "for", value_name = "TIME")]
        time: Option<humantime::Duration>,
    },
    /// Take back what is left of a credit.
    Withdraw {
        #[command(flatten)]
        which: Which,

        /// Id of the credit.
        #[arg(long)]
        id: String,
    },
    Export(export::Export),
}

/// The quota in question.
#[derive(Debug, Args)]
struct Which {
    /// The scope, such as `tenant/acme`, or `group/NAME`.
    scope: String,

    /// Its unit, if the scope has quotas of several.
    #[arg(long)]
    unit: Option<String>,

    /// Its period, such as `day`, if the scope has quotas of several.
    #[arg(long, value_name = "PERIOD")]
    per: Option<String>,
}

// === impl Quota ===

impl Quota {
    pub(crate) fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        match self.command {
            Command::Reset { which } => which.change(client, as_json, json!({"set_used": 0})),
            Command::SetUsed { which, amount } => {
                which.change(client, as_json, json!({"set_used": amount}))
            }
            Command::Credit {
                which,
                amount,
                id,
                time,
            } => {
                let mut credit = json!({"id": id, "amount": amount});
                if let Some(time) = time {
                    let end = unix_time().saturating_add(*time);
                    credit["until"] = json!(end.as_secs());
                }
                which.change(client, as_json, json!({ "credit": credit }))
            }
            Command::Withdraw { which, id } => {
                which.change(client, as_json, json!({"withdraw": id}))
            }
            Command::Export(export) => export.run(client, as_json),
        }
    }
}

// === impl Which ===

impl Which {
    /// Makes the change `body`, and shows what it led to.
    fn change(self, client: &Client, as_json: bool, mut body: Value) -> Result<(), Failure> {
        for (field, value) in [("unit", &self.unit), ("per", &self.per)] {
            if let Some(value) = value {
                body[field] = json!(value);
            }
        }
        let call = Call::post(Kind::Quota.one(&self.scope)?).with_body(body);
        let reply = client.send(call);
        let reply = reply.map_err(|failure| failure.about(Kind::Quota.name(), &self.scope))?;
        if as_json {
            return print::json(&reply.body);
        }
        let quotas: QuotasView = reply.read()?;
        show(&quotas)
    }
}
