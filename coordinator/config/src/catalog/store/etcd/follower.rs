//! Follows the writes of all coordinators, over lost connections and compactions.

use etcd_client::WatchStream;
use tokio::sync::{mpsc, watch};
use tollgate_cluster::etcd::EtcdError;

use super::reader::{self, EtcdUpdate, Reader};
use crate::catalog::store::{LogPosition, StoreUpdate};

/// Follows the keys of one cluster from a position on.
pub(super) struct Follower {
    reader: Reader,
    at: LogPosition,
    updates: mpsc::Sender<EtcdUpdate>,
    /// The reason while the connection is lost.
    lost: watch::Sender<Option<String>>,
}

/// Reason for which a watch ended.
enum FollowEnd {
    /// The store is gone.
    StoreGone,
    /// The next changes have been compacted away.
    Compacted,
    /// Another call failed at this endpoint, so calls go to another one.
    Moved,
    /// The connection is lost, or etcd ended the watch.
    Lost(String),
}

// === impl Follower ===

impl Follower {
    /// Follows from `at` on.
    pub(super) fn new(
        reader: Reader,
        at: LogPosition,
        updates: mpsc::Sender<EtcdUpdate>,
        lost: watch::Sender<Option<String>>,
    ) -> Self {
        Self {
            reader,
            at,
            updates,
            lost,
        }
    }

    /// Follows until the store is gone.
    pub(super) async fn run(mut self) {
        let mut waits = reader::waits();
        loop {
            let cause = match self.follow().await {
                FollowEnd::StoreGone => return,
                FollowEnd::Moved => continue,
                FollowEnd::Compacted => match self.reload().await {
                    Ok(()) => continue,
                    Err(error) => error.to_string(),
                },
                FollowEnd::Lost(cause) => cause,
            };
            if self.lost.send_replace(Some(cause.clone())).is_none() {
                waits = reader::waits();
                tracing::warn!(
                    cause,
                    "store: lost the configuration in etcd; the last known one stays in force, and \
                     writes fail"
                );
            }
            let wait = waits.next().unwrap_or_default();
            tokio::select! {
                () = self.updates.closed() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn follow(&mut self) -> FollowEnd {
        let mut turns = self.reader.turns();
        let watched = tokio::select! {
            () = self.updates.closed() => return FollowEnd::StoreGone,
            watched = self.reader.watch(self.at) => watched,
        };
        let mut stream = match watched {
            Ok(stream) => stream,
            Err(error) => return FollowEnd::Lost(error.to_string()),
        };
        let updates = self.updates.clone();
        loop {
            tokio::select! {
                () = updates.closed() => return FollowEnd::StoreGone,
                Ok(()) = turns.changed() => return FollowEnd::Moved,
                ended = self.next(&mut stream) => if let Err(ended) = ended {
                    return ended;
                }
            }
        }
    }

    /// Waits for the next answer and sends its updates to the store.
    async fn next(&mut self, stream: &mut WatchStream) -> Result<(), FollowEnd> {
        let answer = stream
            .message()
            .await
            .map_err(|error| FollowEnd::Lost(error.to_string()))?;
        let answer = answer.ok_or_else(|| FollowEnd::Lost("etcd ended the watch".to_owned()))?;
        if answer.compact_revision() > 0 {
            return Err(FollowEnd::Compacted);
        }
        if answer.canceled() {
            return Err(FollowEnd::Lost(answer.cancel_reason().to_owned()));
        }
        if self.lost.send_replace(None).is_some() {
            tracing::info!("store: follows etcd again");
        }
        for update in self.reader.updates(&answer) {
            let handed = self.send(update).await;
            handed.map_err(|_| FollowEnd::StoreGone)?;
        }
        Ok(())
    }

    /// Reads everything anew.
    async fn reload(&mut self) -> Result<(), EtcdError> {
        let (stored, guard) = self.reader.load().await?;
        let update = EtcdUpdate {
            update: StoreUpdate::All(stored),
            guard: Some(guard),
        };
        tracing::info!(
            "store: read the whole configuration in etcd again, because its changes were compacted"
        );
        // If the store is gone, the next wait notices.
        let _ = self.send(update).await;
        Ok(())
    }

    async fn send(&mut self, update: EtcdUpdate) -> Result<(), mpsc::error::SendError<EtcdUpdate>> {
        self.at = match &update.update {
            StoreUpdate::All(stored) => stored.position,
            StoreUpdate::Changes(_, position) => *position,
        };
        self.updates.send(update).await
    }
}
