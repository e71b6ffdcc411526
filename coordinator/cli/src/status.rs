//! `tollgate status`: the status of the coordinator and its cluster.

use clap::Args;
use tollgate_admin::view::{
    BorrowedStatus, BusyResource, ClusterStatus, NodeStatus, ParentStatus, ResourceStats,
    ShardStatus, Status as Answer, UnmatchedLimit,
};
use tollgate_core::quantity::{amount_text, duration_text};

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::print;

const EXAMPLES: &str = "\
Examples:
  tollgate status
  tollgate status --server https://tollgate.internal:7711 --ca ca.pem --token-file token";

/// Show the status of the coordinator, its cluster and its parent: sums over all scopes by unit.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status;

// === impl Status ===

impl Status {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        let reply = client.send(Call::get("/v1/status?resources=5&clients=1"))?;
        if json {
            return print::json(&reply.body);
        }
        let status: Answer = reply.read()?;
        print::lines(&head(client.server(), &status))?;
        status.cluster.as_ref().map_or(Ok(()), cluster)?;
        status.parent.as_ref().map_or(Ok(()), parent)?;
        units(&status)?;
        unmatched(&status)
    }
}

// === free functions ===

/// Returns the first line: the coordinator that answers, and the nodes that do not.
pub(super) fn head(server: &str, status: &Answer) -> String {
    let silent = if status.unanswered.is_empty() {
        String::new()
    } else {
        format!("  no answer from {}", status.unanswered.join(", "))
    };
    print::plain(&format!(
        "{server}  version {}  epoch {}  up {}  {} refreshes/s{silent}",
        status.version,
        status.epoch,
        duration_text(status.uptime_ms),
        amount_text("", status.refreshes_per_second),
    ))
}

/// Prints the sums by unit, and the resources of which clients want more than they have.
fn units(status: &Answer) -> Result<(), Failure> {
    let rows: Vec<_> = status.units.iter().map(row).collect();
    if rows.is_empty() {
        return print::lines("no client has or wants a lease");
    }
    let header = "UNIT|RESOURCES|UNLIMITED|LEARNING|CAPACITY|HAS|WANTS|CLIENTS|WAITING";
    print::table(header, rows)?;
    let limited: Vec<_> = status.busiest.iter().filter_map(limited).collect();
    if limited.is_empty() {
        return Ok(());
    }
    let header = "WANTED MOST|UNIT|HAS|WANTS|AT MOST|LIMITED BY";
    print::table(header, limited)
}

/// Prints the limits that match no rule of any client.
fn unmatched(status: &Answer) -> Result<(), Failure> {
    let limits = &status.unmatched_limits;
    let Some(rules) = status.rules.as_ref().filter(|_| !limits.is_empty()) else {
        return Ok(());
    };
    let time = duration_text(rules.known_for_ms);
    let row = |limit: &UnmatchedLimit| {
        let source = limit.source.name().to_owned();
        vec![limit.r#match.clone(), source, limit.reason(&time)]
    };
    print::table("NOT ASKED FOR|FROM|WHY", limits.iter().map(row).collect())?;
    match status.unmatched_limit_count.saturating_sub(limits.len()) {
        0 => Ok(()),
        more => print::lines(&format!("and {more} more")),
    }
}

/// Returns a row about a resource of which clients want more than they have.
fn limited(resource: &BusyResource) -> Option<Vec<String>> {
    let BusyResource {
        scope,
        unit,
        summary,
        waiting_count,
        ..
    } = resource;
    let limited_by = summary.limited_by.as_ref().filter(|_| *waiting_count > 0)?;
    Some(vec![
        scope.clone(),
        unit.clone(),
        summary.text(unit, summary.sum_has),
        summary.text(unit, summary.sum_wants),
        summary.text(unit, limited_by.at_most),
        limited_by.whose.clone(),
    ])
}

/// Prints the shards and the nodes of a cluster.
fn cluster(cluster: &ClusterStatus) -> Result<(), Failure> {
    let header = "SHARD|MASTER|EPOCH|TERM|LEARNING";
    print::table(header, cluster.shards.iter().map(shard).collect())?;
    let header = "NODE|STATE|UP|REFRESHES/S|GRPC|HTTP";
    let nodes = cluster.nodes.iter();
    print::table(header, nodes.map(|one| node(&cluster.node, one)).collect())
}

fn shard(shard: &ShardStatus) -> Vec<String> {
    vec![
        shard.shard.to_string(),
        print::or_dash(shard.master.as_ref()),
        print::or_dash(shard.epoch),
        print::or_dash(shard.term_left_ms.map(duration_text)),
        print::or_dash(shard.learning_count),
    ]
}

/// Returns a row about `node`; the node `answers` is the one that was asked.
fn node(answers: &str, node: &NodeStatus) -> Vec<String> {
    let state = match node.alive {
        _ if node.node == answers => "answers this",
        true => "alive",
        false => "no answer",
    };
    let rate = node.refreshes_per_second;
    vec![
        node.node.clone(),
        state.to_owned(),
        print::or_dash(node.uptime_ms.map(duration_text)),
        print::or_dash(rate.map(|rate| amount_text("", rate))),
        node.grpc.clone(),
        node.http.clone(),
    ]
}

/// Prints how the parent is doing, and what it lends.
fn parent(parent: &ParentStatus) -> Result<(), Failure> {
    let answered = match parent.answered_ms_ago {
        Some(ago) => format!("answered {} ago", duration_text(ago)),
        None => "has not answered yet".to_owned(),
    };
    let mut line = format!("parent {}  {answered}", parent.address);
    if !parent.above.is_empty() {
        line.push_str(&format!("  above {}", parent.above.join(", ")));
    }
    if let Some(error) = &parent.error {
        line.push_str(&format!("  last call failed: {error}"));
    }
    print::lines(&print::plain(&line))?;
    let rows: Vec<_> = parent.units.iter().map(borrowed).collect();
    if rows.is_empty() {
        return Ok(());
    }
    print::table("UNIT|BORROWED|WANTS BY BAND", rows)
}

fn borrowed((unit, sums): (&String, &BorrowedStatus)) -> Vec<String> {
    let amount = |value: f64| amount_text(unit, value);
    let bands = sums.wants.iter();
    let bands = bands.map(|(band, wants)| format!("{band}: {}", amount(*wants)));
    vec![
        unit.clone(),
        amount(sums.borrowed),
        bands.collect::<Vec<_>>().join(", "),
    ]
}

fn row((unit, sums): (&String, &ResourceStats)) -> Vec<String> {
    let amount = |value: f64| amount_text(unit, value);
    vec![
        unit.clone(),
        sums.resources.to_string(),
        sums.unlimited.to_string(),
        sums.learning.to_string(),
        amount(sums.capacity),
        amount(sums.has),
        amount(sums.wants),
        sums.clients.to_string(),
        sums.waiting.to_string(),
    ]
}
