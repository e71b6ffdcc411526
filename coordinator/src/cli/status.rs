//! `tollgate status`: how the coordinator is doing.

use clap::Args;
use serde_json::Value;

use super::{Failure, print};
use crate::client::{Call, Client};

const EXAMPLES: &str = "\
Examples:
  tollgate status
  tollgate status --server https://tollgate.internal:7711 --ca ca.pem --token-file token";

/// Show how the coordinator is doing: sums over all scopes by unit.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status;

// === impl Status ===

impl Status {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        let status = client.send(Call::get("/v1/status?resources=1&clients=1"))?;
        if json {
            return print::json(&status.body);
        }
        print::lines(&head(client.server(), &status.body))?;
        let units = status.body["units"].as_object().into_iter().flatten();
        let rows: Vec<_> = units.map(|(unit, sums)| row(unit, sums)).collect();
        if rows.is_empty() {
            return print::lines("no client has or wants a lease");
        }
        let header = [
            "UNIT",
            "RESOURCES",
            "UNLIMITED",
            "LEARNING",
            "CAPACITY",
            "HAS",
            "WANTS",
            "CLIENTS",
            "WAITING",
        ];
        print::table(&header, rows)
    }
}

// === free functions ===

/// What there is to say in one line.
pub(super) fn head(server: &str, status: &Value) -> String {
    let refreshes = status["refreshes_per_second"].as_f64().unwrap_or_default();
    print::plain(&format!(
        "{server}  version {}  epoch {}  up {}  {} refreshes/s",
        print::text(&status["version"]),
        print::text(&status["epoch"]),
        print::duration(status["uptime_ms"].as_u64().unwrap_or_default()),
        print::number("", refreshes),
    ))
}

fn row(unit: &str, sums: &Value) -> Vec<String> {
    let count = |field: &str| print::text(&sums[field]);
    let amount = |field: &str| print::amount(unit, &sums[field]);
    vec![
        unit.to_owned(),
        count("resource_count"),
        count("unlimited_count"),
        count("learning_count"),
        amount("capacity"),
        amount("sum_has"),
        amount("sum_wants"),
        count("client_count"),
        count("waiting_count"),
    ]
}
