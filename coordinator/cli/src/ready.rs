//! `tollgate ready`: a probe for process managers.

use clap::Args;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::print;

const EXAMPLES: &str = "\
Examples:
  tollgate ready
  tollgate ready --server https://127.0.0.1:7711 --ca /etc/tollgate/ca.pem";

/// Say whether the coordinator can answer, by the exit code; needs no token.
///
/// For health checks in containers that have no other program to ask with.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ready;

// === impl Ready ===

impl Ready {
    pub(crate) fn run(self, client: &Client) -> Result<(), Failure> {
        let (_, text) = client.answer(Call::get("/readyz"))?;
        print::lines(text.trim_end())
    }
}
