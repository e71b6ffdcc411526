//! Nodes of the cluster, and the masters of its shards.

use std::fmt::{self, Write as _};

use super::text::{Escaped, duration, number};
use crate::api::rest::status::ClusterStatus;

/// Two tables: the shards, and the nodes.
pub(super) fn cluster(out: &mut String, cluster: &ClusterStatus) -> fmt::Result {
    writeln!(
        out,
        "<h2>Cluster</h2>\n<p>as node {} sees it</p>\n\
         <table>\n<thead><tr><th>shard<th>master<th>epoch<th>term ends in<th>learning\n<tbody>",
        Escaped(&cluster.node),
    )?;
    for shard in &cluster.shards {
        let or_nothing = |text: Option<String>| text.unwrap_or_default();
        writeln!(
            out,
            "<tr><th>{}<td>{}<td>{}<td>{}<td>{}",
            shard.shard,
            Escaped(shard.master.as_deref().unwrap_or("none now")),
            or_nothing(shard.epoch.map(|epoch| epoch.to_string())),
            or_nothing(shard.term_left_ms.map(duration)),
            or_nothing(shard.learning_count.map(|count| number(count as f64))),
        )?;
    }
    out.push_str(
        "</table>\n<table>\n<thead><tr><th>node<th>up<th>refreshes per second<th>reached at\n<tbody>\n",
    );
    for node in &cluster.nodes {
        let up = match node.uptime_ms {
            Some(uptime) if node.alive => duration(uptime),
            _ => "does not answer".to_owned(),
        };
        let rate = node.refreshes_per_second.map(number).unwrap_or_default();
        writeln!(
            out,
            "<tr><th>{}<td>{up}<td>{rate}<td>{}",
            Escaped(&node.node),
            Escaped(&node.grpc),
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}
