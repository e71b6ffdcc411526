//! Handing the books over, and going on with those that the master before left.
//!
//! Both take a while with many leases, so neither is done where clients are answered: a driver that
//! hands over ends at once and gives its whole state away, and one that begins lets the events wait.

use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::{Bounds, LeaseServer, SnapshotError};
use tollgate_proto::snapshot;

use super::{Driver, DriverError, DriverEvent, DriverHandle};
use crate::clock::Clock;

/// Why the books of the master before are of no use.
#[derive(Debug, thiserror::Error)]
enum InheritError {
    #[error(transparent)]
    Read(#[from] snapshot::ReadError),
    #[error("the lease table cannot be taken over: {0}")]
    Books(#[from] SnapshotError),
    #[error("reading the lease table was cancelled: {0}")]
    Task(#[from] tokio::task::JoinError),
}

// === impl Driver ===

impl Driver {
    /// The same, which goes on with `books`: what [`DriverHandle::hand_over`] of the master before gave.
    /// If they are of no use, it starts as it would without them, and the log says why.
    #[must_use]
    pub fn with_books(self, books: Vec<u8>) -> Self {
        Self {
            inherited: Some(books),
            ..self
        }
    }

    /// Reads the books of the master before, if there are any. Comes first of all: what a node borrows
    /// of a parent is not in them, and is asked for anew when it has them.
    pub(super) async fn inherit(&mut self) {
        let Some(bytes) = self.inherited.take() else {
            return;
        };
        let (clock, epoch, bounds) = (self.clock, self.origin.epoch, self.node.bounds());
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
                self.node = node;
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
    /// Ends the driver and returns its books as bytes, for the next master's
    /// [`Driver::with_books`]. Nothing is answered from them any more.
    ///
    /// # Errors
    /// If the driver cannot be reached, as when it has handed over already.
    pub async fn hand_over(&self) -> Result<Vec<u8>, DriverError> {
        let frozen = self.call(DriverEvent::HandOver).await?;
        let written = tokio::task::spawn_blocking(move || {
            let (node, now) = *frozen;
            let books = node.hand_over(now);
            (books.lease_count(), snapshot::encode(&books))
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

/// The master that goes on with the books that `bytes` say, and how many leases they have; there is
/// room for as many.
fn read(
    clock: Clock,
    epoch: Epoch,
    (bounds, room): (Bounds, usize),
    bytes: &[u8],
) -> Result<(LeaseServer, usize), InheritError> {
    let books = snapshot::decode(bytes)?;
    let (count, max) = (books.lease_count(), room);
    if count > max {
        return Err(SnapshotError::TooManyLeases { count, max }.into());
    }
    let node = LeaseServer::take_over(clock.now(), epoch, bounds, &books)?;
    Ok((node, count))
}

#[cfg(test)]
mod tests;
