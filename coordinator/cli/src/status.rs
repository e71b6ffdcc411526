//! `tollgate status`: how the coordinator is doing.

use clap::Args;
use serde_json::Value;

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::print;

const EXAMPLES: &str = "\
Examples:
  tollgate status
  tollgate status --server https://tollgate.internal:7711 --ca ca.pem --token-file token";

/// Show how the coordinator, its cluster and its parent are doing: sums over all scopes by unit.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status;

// === impl Status ===

impl Status {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        let status = client.send(Call::get("/v1/status?resources=5&clients=1"))?;
        if json {
            return print::json(&status.body);
        }
        print::lines(&head(client.server(), &status.body))?;
        let cluster = &status.body["cluster"];
        if let Some(shards) = cluster["shards"].as_array() {
            let header = ["SHARD", "MASTER", "EPOCH", "TERM", "LEARNING"];
            print::table(&header, shards.iter().map(shard).collect())?;
            let nodes = cluster["nodes"].as_array().into_iter().flatten();
            let header = ["NODE", "STATE", "UP", "REFRESHES/S", "GRPC", "HTTP"];
            print::table(&header, nodes.map(|one| node(cluster, one)).collect())?;
        }
        if status.body["parent"].is_object() {
            parent(&status.body["parent"])?;
        }
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
        print::table(&header, rows)?;
        let busiest = status.body["busiest"].as_array().into_iter().flatten();
        let limited: Vec<_> = busiest.filter_map(limited).collect();
        if limited.is_empty() {
            return Ok(());
        }
        let header = [
            "WANTED MOST",
            "UNIT",
            "HAS",
            "WANTS",
            "AT MOST",
            "LIMITED BY",
        ];
        print::table(&header, limited)
    }
}

// === free functions ===

/// What there is to say in one line.
pub(super) fn head(server: &str, status: &Value) -> String {
    let refreshes = status["refreshes_per_second"].as_f64().unwrap_or_default();
    let silent = status["unanswered"].as_array().into_iter().flatten();
    let silent: Vec<String> = silent.map(print::text).collect();
    let silent = match silent.is_empty() {
        true => String::new(),
        false => format!("  no answer from {}", silent.join(", ")),
    };
    print::plain(&format!(
        "{server}  version {}  epoch {}  up {}  {} refreshes/s{silent}",
        print::text(&status["version"]),
        print::text(&status["epoch"]),
        print::duration(status["uptime_ms"].as_u64().unwrap_or_default()),
        print::number("", refreshes),
    ))
}

/// A row about a resource of which clients want more than they have.
fn limited(resource: &Value) -> Option<Vec<String>> {
    let unit = print::text(&resource["unit"]);
    let amount = |value: &Value| print::amount(&unit, value);
    let limited_by = &resource["limited_by"];
    let waiting = resource["waiting_count"].as_u64().unwrap_or_default();
    (waiting > 0 && limited_by.is_object()).then(|| {
        vec![
            print::text(&resource["scope"]),
            unit.clone(),
            amount(&resource["sum_has"]),
            amount(&resource["sum_wants"]),
            amount(&limited_by["at_most"]),
            print::text(&limited_by["whose"]),
        ]
    })
}

/// A row about a shard.
fn shard(shard: &Value) -> Vec<String> {
    let text = |field: &str| print::text(&shard[field]);
    let term = shard["term_left_ms"].as_u64().map(print::duration);
    vec![
        text("shard"),
        text("master"),
        text("epoch"),
        term.unwrap_or_else(|| "-".to_owned()),
        text("learning_count"),
    ]
}

/// A row about a node of `cluster`.
fn node(cluster: &Value, node: &Value) -> Vec<String> {
    let text = |field: &str| print::text(&node[field]);
    let state = match node["alive"].as_bool() {
        _ if node["node"] == cluster["node"] => "answers this",
        Some(true) => "alive",
        _ => "no answer",
    };
    let up = node["uptime_ms"].as_u64().map(print::duration);
    let rate = node["refreshes_per_second"].as_f64();
    let rate = rate.map(|rate| print::number("", rate));
    vec![
        text("node"),
        state.to_owned(),
        up.unwrap_or_else(|| "-".to_owned()),
        rate.unwrap_or_else(|| "-".to_owned()),
        text("grpc"),
        text("http"),
    ]
}

/// How the coordinator above is doing, and what it lends.
fn parent(parent: &Value) -> Result<(), Failure> {
    let answered = match parent["answered_ms_ago"].as_u64() {
        Some(ago) => format!("answered {} ago", print::duration(ago)),
        None => "has not answered yet".to_owned(),
    };
    let address = print::text(&parent["address"]);
    let mut line = format!("parent {address}  {answered}");
    let above = parent["above"].as_array().into_iter().flatten();
    let above: Vec<String> = above.map(print::text).collect();
    if !above.is_empty() {
        line.push_str(&format!("  above {}", above.join(", ")));
    }
    if let Some(error) = parent["error"].as_str() {
        line.push_str(&format!("  last call failed: {error}"));
    }
    print::lines(&print::plain(&line))?;
    let units = parent["units"].as_object().into_iter().flatten();
    let rows: Vec<_> = units.map(|(unit, sums)| borrowed(unit, sums)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    print::table(&["UNIT", "BORROWED", "WANTS BY BAND"], rows)
}

fn borrowed(unit: &str, sums: &Value) -> Vec<String> {
    let bands = sums["wants"].as_object().into_iter().flatten();
    let bands = bands.map(|(band, wants)| format!("{band}: {}", print::amount(unit, wants)));
    vec![
        unit.to_owned(),
        print::amount(unit, &sums["borrowed"]),
        bands.collect::<Vec<_>>().join(", "),
    ]
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
