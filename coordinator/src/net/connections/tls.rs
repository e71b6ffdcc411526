//! TLS handshakes. Their deadline is that of the connection table; a full listener closes the
//! oldest of them first.

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::net::tls::{Door, HandshakeFault, Identity, TlsMetrics};

/// How a listener speaks TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Which listener, for metrics.
    pub door: Door,
    /// The certificate that it shows.
    pub identity: Identity,
    /// Where errors are counted.
    pub metrics: TlsMetrics,
}

// === impl Tls ===

impl Tls {
    /// Makes a TLS stream of `stream`, if the client's handshake is good.
    pub(super) async fn handshake(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let accept = TlsAcceptor::from(self.identity.config()).accept(stream);
        let result = accept.await.inspect_err(|error| {
            tracing::debug!(door = self.door.name(), %error, "tls: handshake failed");
            self.count(HandshakeFault::Failed);
        });
        result.ok()
    }

    /// Counts a handshake that came to nothing.
    pub(super) fn count(&self, fault: HandshakeFault) {
        self.metrics.count_handshake(self.door, fault);
    }
}
