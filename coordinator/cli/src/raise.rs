//! `tollgate raise` and `unraise`: other limits for a time, such as in an incident.

use anyhow::anyhow;
use clap::Args;
use serde_json::json;
use tollgate_net::clock::{date_text, unix_time};

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::print;
use crate::put::FieldOptions;

const EXAMPLES: &str = "\
Examples:
  tollgate raise tenant/acme --requests 2k --burst 4k --for 1h
      Whatever the file or an override says of acme; other fields stay as they are.
  tollgate raise group/gold --requests 5k --for 30m
  tollgate raise tenant/bot --requests 0 --for 10m
      Lowered to nothing: a block that ends by itself.
  tollgate list raises
  tollgate unraise tenant/acme";

const UNRAISE_EXAMPLES: &str = "\
Examples:
  tollgate list raises
  tollgate unraise tenant/acme
      Gives acme the limits of the file, its override or its group again, at once.";

/// Give a scope or a group other limits for a time.
///
/// They win over the file, also where it names the scope, and over overrides; a group's limit holds beside them. At
/// their end what was there before holds again.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Raise {
    /// The scope, such as `tenant/acme`, or `group/NAME`.
    scope: String,

    #[command(flatten)]
    fields: FieldOptions,

    /// For how long, such as `90s` or `2h`.
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    time: humantime::Duration,
}

/// End a raise.
#[derive(Debug, Args)]
#[command(after_help = UNRAISE_EXAMPLES)]
pub(crate) struct Unraise {
    /// The scope, such as `tenant/acme`, or `group/NAME`.
    scope: String,
}

// === impl Raise ===

impl Raise {
    pub(crate) fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let until = self.until().map_err(Failure::usage)?;
        let mut body = self.fields.fields().map_err(Failure::usage)?;
        body["until"] = json!(until);
        let path = Kind::Raise.one(&self.scope)?;
        let reply = client.send(Call::patch(path, body));
        let reply = reply.map_err(|failure| failure.about(Kind::Raise.name(), &self.scope))?;
        if as_json {
            return print::json(&reply.body);
        }
        let scope = print::plain(&self.scope);
        print::lines(&format!("{scope} is raised until {}", date_text(until)))
    }

    /// Its end, in seconds since 1970.
    fn until(&self) -> anyhow::Result<u64> {
        let end = unix_time().checked_add(*self.time);
        let end = end.ok_or_else(|| anyhow!("--for {} is too long", self.time))?;
        Ok(end.as_secs())
    }
}

// === impl Unraise ===

impl Unraise {
    pub(crate) fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let reply = client.send(Call::delete(Kind::Raise.one(&self.scope)?));
        let reply = reply.map_err(|failure| failure.about(Kind::Raise.name(), &self.scope))?;
        if as_json {
            return print::json(&reply.body);
        }
        print::lines(&format!(
            "{} is not raised any more",
            print::plain(&self.scope)
        ))
    }
}
