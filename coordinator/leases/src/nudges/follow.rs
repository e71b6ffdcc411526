//! Watches of this node at the other masters of its cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tollgate_cluster::election::{Masters, Peer};
use tollgate_net::channels::Channels;
use tollgate_proto::nudge::Watch;

use super::{NudgeSource, Nudges};

/// Keeps a watch at each master other than `me` while clients watch here, and hands to them the
/// nudges that come.
pub async fn follow_masters(
    nudges: Nudges,
    me: Peer,
    mut masters: watch::Receiver<Arc<Masters>>,
    channels: Channels,
) {
    let mut has_clients = nudges.has_clients();
    let mut tasks = JoinSet::new();
    let mut followed = BTreeMap::new();
    loop {
        let others = if *has_clients.borrow_and_update() {
            others(&masters.borrow_and_update(), &me)
        } else {
            BTreeSet::new()
        };
        followed.retain(|url, task: &mut AbortHandle| {
            let stays = others.contains(url);
            if !stays {
                task.abort();
            }
            stays
        });
        for url in others {
            followed.entry(url).or_insert_with_key(|url| {
                let (nudges, channels) = (nudges.clone(), channels.clone());
                tasks.spawn(follow(nudges, channels, url.clone(), me.node.clone()))
            });
        }
        tokio::select! {
            // The sender is in `nudges`.
            _ = has_clients.changed() => {}
            changed = masters.changed() => if changed.is_err() {
                // The election has ended, and with it the node.
                return std::future::pending().await;
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Hands the nudges of the master at `url` to the clients that watch here, at the node `me`.
async fn follow(nudges: Nudges, channels: Channels, url: String, me: String) {
    let source = NudgeSource::new(&Watch::Rest, channels, Arc::new([url]));
    let mut source = source.of_node(&me);
    loop {
        nudges.deliver(&source.next().await);
    }
}

/// URLs of the nodes other than `me` that are master of a shard.
fn others(masters: &Masters, me: &Peer) -> BTreeSet<String> {
    let peers = masters.iter().filter_map(|(_, master)| Some(&master?.peer));
    let others = peers.filter(|peer| ***peer != *me);
    others.map(|peer| peer.grpc_url()).collect()
}
