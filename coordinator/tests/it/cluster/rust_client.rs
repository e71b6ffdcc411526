//! The Rust client at several nodes.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;
use tollgate_client::Settings;
use tollgate_core::cluster::ShardId;
use tollgate_tests::wait;

use super::nodes::Cluster;
use super::tenants;
use crate::rust_client::{LoadedClient, NEVER};

const LEASE: Duration = Duration::from_secs(2);
const LIMITS: &str = "limits: [{match: tenant/*, requests: \
    {rate: 100, headroom: 0, lease: 2s, refresh: 200ms}}]";

#[tokio::test]
async fn a_client_goes_on_at_another_node() {
    let mut cluster = Cluster::of_three(LIMITS).await;
    // The node that stops is the master of other tenants.
    let is_elsewhere = |tenant: &String| cluster.shard_of(tenant) != ShardId(0);
    let tenant = tenants().into_iter().find(is_elsewhere).unwrap();
    let url = |node: usize| format!("http://{}", cluster.nodes[node].peer.grpc);
    // Nobody is at the first address.
    let settings = Settings::new("http://127.0.0.1:1").or(url(0)).or(url(1));
    let client = LoadedClient::start(settings, &tenant);
    client.until(100).await;
    cluster.nodes.remove(0).stop().await;
    let stopped = Instant::now();
    let renewed = wait::until("a lease of the other node", NEVER, async || {
        ensure!(stopped.elapsed() > 2 * LEASE, "the lease before may last");
        let level = client.level();
        ensure!(level.is_leased, "{level:?}");
        Ok(())
    });
    renewed.await.unwrap();
    client.until(100).await;
}
