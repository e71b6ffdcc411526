//! TLS handshakes. Their deadline is that of the connection table; a full listener closes the
//! oldest of them first.

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::tls::{HandshakeFault, Listener, Newest, PeerNames, TlsMetrics};

/// TLS of a listener.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// The listener, for metrics.
    pub listener: Listener,
    /// The certificate that it shows.
    pub identity: Newest<ServerConfig>,
    /// Metrics of errors.
    pub metrics: TlsMetrics,
}

// === impl ListenerTls ===

impl ListenerTls {
    /// Makes a TLS stream of `stream`, if the client's handshake is good, and reads the names in the
    /// certificate that the client has shown.
    pub(super) async fn handshake(
        &self,
        stream: TcpStream,
    ) -> Option<(TlsStream<TcpStream>, PeerNames)> {
        let config = self.identity.borrow().clone();
        let accept = TlsAcceptor::from(config).accept(stream);
        let result = accept.await.inspect_err(|error| {
            tracing::debug!(listener = self.listener.name(), %error, "tls: handshake failed");
            self.count(HandshakeFault::Failed);
        });
        let stream = result.ok()?;
        let shown = stream.get_ref().1.peer_certificates();
        let names = shown.and_then(<[_]>::first).map(PeerNames::of);
        Some((stream, names.unwrap_or_default()))
    }

    /// Counts a handshake that failed.
    pub(super) fn count(&self, fault: HandshakeFault) {
        self.metrics.count_handshake(self.listener, fault);
    }
}
