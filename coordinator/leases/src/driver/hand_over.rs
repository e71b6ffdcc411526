//! Hand-over of a lease table from one master to the next.
//!
//! Encoding and decoding take a while with many leases, so neither is done where clients are
//! answered: the old driver ends at once and gives its whole state away, and the new one lets
//! commands wait.

use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::{Bounds, LeaseServer, SnapshotError};
use tollgate_net::clock::Clock;
use tollgate_proto::snapshot as codec;

use super::command::Command;
use super::{Driver, DriverError, DriverHandle};

/// Reason for which a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
enum InheritError {
    #[error(transparent)]
    Read(#[from] codec::ReadError),
    #[error("the lease table cannot be taken over: {0}")]
    TakeOver(#[from] SnapshotError),
    #[error("reading the lease table was cancelled: {0}")]
    Task(#[from] tokio::task::JoinError),
}

// === impl Driver ===

impl Driver {
    /// Starts from `snapshot`, which [`DriverHandle::hand_over`] of the previous master returned.
    /// An unusable one is logged, and the driver starts without it.
    #[must_use]
    pub fn with_snapshot(self, snapshot: Vec<u8>) -> Self {
        Self {
            inherited: Some(snapshot),
            ..self
        }
    }

    /// Reads the previous master's snapshot, if there is one. Comes first of all: leases from a
    /// parent are not in it, and are requested anew for it.
    pub(super) async fn inherit(&mut self) {
        let Some(bytes) = self.inherited.take() else {
            return;
        };
        let (clock, epoch, bounds) = (self.clock, self.origin.epoch, self.server.bounds());
        let elsewhere = self.tally.count(0);
        let room = bounds.max_leases.saturating_sub(elsewhere);
        let len = bytes.len();
        let read = tokio::task::spawn_blocking(move || read(clock, epoch, (bounds, room), &bytes));
        let read = read.await.map_err(InheritError::from).flatten();
        match read {
            Ok((node, leases)) => {
                tracing::info!(
                    epoch = epoch.0,
                    leases,
                    bytes = len,
                    "hand-over: took over the lease table"
                );
                self.server = node;
            }
            Err(error) => tracing::warn!(
                epoch = epoch.0,
                bytes = len,
                %error,
                "hand-over: starting without the previous master's lease table"
            ),
        }
    }
}

// === impl DriverHandle ===

impl DriverHandle {
    /// Ends the driver and returns its lease table as bytes, for the next master's
    /// [`Driver::with_snapshot`].
    ///
    /// # Errors
    /// If the driver cannot be reached, or has handed over already.
    pub async fn hand_over(&self) -> Result<Vec<u8>, DriverError> {
        let frozen = self.call(Command::HandOver).await?;
        let written = tokio::task::spawn_blocking(move || {
            let (node, now) = *frozen;
            let snapshot = node.hand_over(now);
            (snapshot.lease_count(), codec::encode(&snapshot))
        });
        let (leases, bytes) = written.await.map_err(|_| DriverError::Stopped)?;
        let (epoch, len) = (self.origin.epoch.0, bytes.len());
        tracing::info!(
            epoch,
            leases,
            bytes = len,
            "hand-over: sent the lease table"
        );
        Ok(bytes)
    }
}

// === free functions ===

/// Decodes `bytes` to a lease table with room for `room` leases; returns it with its number of
/// leases.
fn read(
    clock: Clock,
    epoch: Epoch,
    (bounds, room): (Bounds, usize),
    bytes: &[u8],
) -> Result<(LeaseServer, usize), InheritError> {
    let snapshot = codec::decode(bytes)?;
    let (count, max) = (snapshot.lease_count(), room);
    if count > max {
        return Err(SnapshotError::TooManyLeases { count, max }.into());
    }
    let node = LeaseServer::take_over(clock.now(), epoch, bounds, &snapshot)?;
    Ok((node, count))
}

#[cfg(test)]
mod tests;
