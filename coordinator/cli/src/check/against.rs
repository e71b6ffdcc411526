//! Comparison of a file with the rules that clients of a running coordinator ask for.

use tollgate_admin::view::{RuleStatus, Status};
use tollgate_config::Config;
use tollgate_config::catalog::check::ConfigError;
use tollgate_core::quantity::duration_text;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::print;

// === free functions ===

/// Warns of limits of the file that match no rule of any client of `client`'s coordinator.
pub(super) fn warnings(config: &Config, client: &Client) -> Result<Vec<ConfigError>, Failure> {
    let reply = client.send(Call::get("/v1/status?resources=1&clients=1"))?;
    let status: Status = reply.read()?;
    let rules = status.rules.as_ref();
    let Some((rules, known)) = rules.and_then(|rules| Some((rules, rules.known(config)?))) else {
        let reason = reason(&status);
        print::note(&format!("not compared with {}: {reason}", client.server()));
        return Ok(Vec::new());
    };
    Ok(config.unmatched_warnings(&known, &duration_text(rules.known_for_ms)))
}

/// The reason for which the rules are not known.
fn reason(status: &Status) -> String {
    match &status.rules {
        None if status.unanswered.is_empty() => {
            "it knows no rules, or more than it has room for".to_owned()
        }
        None => format!("no answer from {}", status.unanswered.join(", ")),
        Some(RuleStatus { names, .. }) if names.is_empty() => {
            "no client has asked it yet".to_owned()
        }
        Some(rules) => {
            let time = duration_text(rules.known_for_ms);
            format!("it has known its clients for {time}, and needs two minutes")
        }
    }
}
