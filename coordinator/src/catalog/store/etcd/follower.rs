//! Follows what is written, over losses of the connection and over compactions.

use etcd_client::WatchStream;
use tokio::sync::{mpsc, watch};

use super::reader::{self, EtcdUpdate, Reader};
use crate::catalog::store::{LogPosition, StoreUpdate};
use crate::cluster::etcd::EtcdError;

/// Follows the keys of one cluster from a place on.
pub(super) struct Follower {
    reader: Reader,
    at: LogPosition,
    heard: mpsc::Sender<EtcdUpdate>,
    /// Why nothing is heard at the moment, if that is so.
    lost: watch::Sender<Option<String>>,
}

/// Why it no longer follows.
enum FollowEnd {
    /// Nobody listens any more.
    Unheard,
    /// What comes next has been compacted away.
    Compacted,
    /// Calls go to another endpoint from now on, because this one failed.
    Moved,
    /// The connection is lost, or etcd has said so.
    Lost(String),
}

// === impl Follower ===

impl Follower {
    /// Follows from `at` on.
    pub(super) fn new(
        reader: Reader,
        at: LogPosition,
        heard: mpsc::Sender<EtcdUpdate>,
        lost: watch::Sender<Option<String>>,
    ) -> Self {
        Self {
            reader,
            at,
            heard,
            lost,
        }
    }

    /// Follows until nobody listens.
    pub(super) async fn run(mut self) {
        let mut waits = reader::waits();
        loop {
            let cause = match self.follow().await {
                FollowEnd::Unheard => return,
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
                    "lost the configuration in etcd: what is known stays in force, and nothing \
                     can be written"
                );
            }
            let wait = waits.next().unwrap_or_default();
            tokio::select! {
                () = self.heard.closed() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn follow(&mut self) -> FollowEnd {
        let mut turns = self.reader.turns();
        let watched = tokio::select! {
            () = self.heard.closed() => return FollowEnd::Unheard,
            watched = self.reader.watch(self.at) => watched,
        };
        let mut stream = match watched {
            Ok(stream) => stream,
            Err(error) => return FollowEnd::Lost(error.to_string()),
        };
        let heard = self.heard.clone();
        loop {
            tokio::select! {
                () = heard.closed() => return FollowEnd::Unheard,
                Ok(()) = turns.changed() => return FollowEnd::Moved,
                ended = self.next(&mut stream) => if let Err(ended) = ended {
                    return ended;
                }
            }
        }
    }

    /// Waits for the next answer and hands on what it says.
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
        for heard in self.reader.heard(&answer) {
            let handed = self.hand_on(heard).await;
            handed.map_err(|_| FollowEnd::Unheard)?;
        }
        Ok(())
    }

    /// Reads everything anew.
    async fn reload(&mut self) -> Result<(), EtcdError> {
        let (stored, guard) = self.reader.load().await?;
        let heard = EtcdUpdate {
            update: StoreUpdate::All(stored),
            guard: Some(guard),
        };
        tracing::info!(
            "store: read the whole configuration in etcd again, because its changes were compacted"
        );
        // Who does not listen any more is seen by the next wait.
        let _ = self.hand_on(heard).await;
        Ok(())
    }

    async fn hand_on(
        &mut self,
        heard: EtcdUpdate,
    ) -> Result<(), mpsc::error::SendError<EtcdUpdate>> {
        self.at = match &heard.update {
            StoreUpdate::All(stored) => stored.place,
            StoreUpdate::Changes(_, place) => *place,
        };
        self.heard.send(heard).await
    }
}
