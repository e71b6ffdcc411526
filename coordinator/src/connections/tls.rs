//! Handshakes: bounded in time and number, beside accepting.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;

use super::Connection;
use crate::tls::{Door, HandshakeFault, Identity, TlsMetrics};

/// Handshakes at a time. One costs about a millisecond of a core, so more than this would be late
/// anyway.
pub(super) const HANDSHAKES_MAX: usize = 256;

/// How long a handshake may take: a few round trips over the slowest network.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a door speaks TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Which door, for metrics.
    pub door: Door,
    /// What it shows.
    pub identity: Identity,
    /// Where errors are counted.
    pub metrics: TlsMetrics,
}

// === impl Tls ===

impl Tls {
    /// What makes a connection of `stream`, or none if that fails; none at all if `under_way`
    /// others are too many, so that `stream` is closed.
    pub(super) fn handshake(
        &self,
        stream: TcpStream,
        place: Option<OwnedSemaphorePermit>,
        under_way: usize,
    ) -> Option<impl Future<Output = Option<Connection>> + Send + use<>> {
        let Self { door, metrics, .. } = self.clone();
        if under_way >= HANDSHAKES_MAX {
            metrics.count_handshake(door, HandshakeFault::Busy);
            return None;
        }
        let accept = TlsAcceptor::from(self.identity.config()).accept(stream);
        Some(async move {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, accept).await {
                Ok(Ok(stream)) => return Some(Connection::tls(stream, place)),
                Ok(Err(error)) => {
                    tracing::debug!(door = door.name(), %error, "a TLS handshake failed");
                    metrics.count_handshake(door, HandshakeFault::Failed);
                }
                Err(_) => metrics.count_handshake(door, HandshakeFault::Timeout),
            }
            None
        })
    }
}
