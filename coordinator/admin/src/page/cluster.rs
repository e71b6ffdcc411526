//! Nodes of the cluster, and the masters of its shards.

use maud::{Markup, html};

use super::text::{Text, count, duration, number};
use crate::status::{ClusterStatus, NodeStatus, ShardStatus};

/// Two tables: the shards, and the nodes.
pub(super) fn cluster(cluster: &ClusterStatus) -> Markup {
    html! {
        section.side {
            h2 { "Cluster" small { "as node " (Text(&cluster.node)) " sees it" } }
            table {
                thead { tr {
                    th scope="col" { "shard" } th scope="col" { "master" }
                    th.num scope="col" { "epoch" } th.num scope="col" { "term ends in" }
                    th.num scope="col" { "learning" }
                } }
                tbody { @for one in &cluster.shards { (shard(one)) } }
            }
            table {
                thead { tr {
                    th scope="col" { "node" } th.num scope="col" { "up" }
                    th.num scope="col" { "refreshes/s" } th scope="col" { "reached at" }
                } }
                tbody { @for one in &cluster.nodes { (node(one)) } }
            }
        }
    }
}

fn shard(shard: &ShardStatus) -> Markup {
    html! {
        tr {
            th scope="row" { (shard.shard) }
            td { (Text(shard.master.as_deref().unwrap_or("none now"))) }
            td.num { @if let Some(epoch) = shard.epoch { (epoch) } }
            td.num { @if let Some(left) = shard.term_left_ms { (duration(left)) } }
            td.num { @if let Some(learning) = shard.learning_count { (count(learning)) } }
        }
    }
}

fn node(node: &NodeStatus) -> Markup {
    let up = match node.uptime_ms {
        Some(uptime) if node.alive => duration(uptime),
        _ => "does not answer".to_owned(),
    };
    html! {
        tr {
            th scope="row" { (Text(&node.node)) }
            td.num { (up) }
            td.num { @if let Some(rate) = node.refreshes_per_second { (number(rate)) } }
            td { (Text(&node.grpc)) }
        }
    }
}
