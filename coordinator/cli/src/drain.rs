//! `tollgate drain`: takes an Envoy's leases back in order.

use clap::Args;
use tollgate_admin::view::ClientDetail;
use tollgate_core::quantity::duration_text;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, segment};
use crate::print;

const EXAMPLES: &str = "\
Examples:
  tollgate list clients
  tollgate drain edge-7/5f3a9c01
      Once no requests come to it any more, so that others get its leases at once.
  tollgate get client edge-7/5f3a9c01
      The leases that it still has.
  tollgate drain edge-7/5f3a9c01 --undo";

/// Give an Envoy nothing for a time, so that its leases go to the others.
///
/// They shrink to nothing at its next refreshes, and then it refuses what it is asked for: take it
/// out of service first.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Drain {
    /// The client, `<node id>/<random>`.
    client: String,

    /// For how long, such as `90s`; a day at most.
    #[arg(long = "for", value_name = "TIME", default_value = "10m")]
    time: String,

    /// Let it serve again.
    #[arg(long, conflicts_with = "time")]
    undo: bool,
}

// === impl Drain ===

impl Drain {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        let path = format!("{}/drain", Kind::Client.one(&self.client)?);
        let call = if self.undo {
            Call::delete(path)
        } else {
            Call::post(format!("{path}?for={}", segment(&self.time)))
        };
        let reply = client.send(call);
        let reply = reply.map_err(|failure| failure.about(Kind::Client.name(), &self.client))?;
        if json {
            return print::json(&reply.body);
        }
        if self.undo {
            return self.report("is not drained");
        }
        let client: ClientDetail = reply.read()?;
        match client.drained_for_ms {
            Some(ms) => self.report(&format!("is drained for {}", duration_text(ms))),
            None => self.report("is not drained"),
        }
    }

    fn report(&self, done: &str) -> Result<(), Failure> {
        print::lines(&format!("client {} {done}", print::plain(&self.client)))
    }
}
