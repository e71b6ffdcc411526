//! Listening sockets of a coordinator.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tollgate_config::{Config, Listen};
use tollgate_net::connections::{
    Acceptor, CallMemory, ConnectionTable, ListenerLimits, ListenerTls,
};
use tollgate_net::tls::{Listener, ServerFiles};

use super::ServerError;
use super::metrics::Metrics;

/// Open sockets, not yet served.
#[derive(Debug)]
pub struct Listeners {
    grpc: TcpListener,
    http: TcpListener,
}

/// Acceptors of connections on the listening sockets.
#[derive(Debug)]
pub(super) struct Acceptors {
    pub(super) grpc: Acceptor,
    pub(super) http: Acceptor,
}

// === impl Listeners ===

impl Listeners {
    /// Listens on both addresses.
    ///
    /// # Errors
    /// If one of them cannot be listened on.
    pub async fn bind(listen: Listen) -> Result<Self, ServerError> {
        Ok(Self {
            grpc: bind(listen.grpc).await?,
            http: bind(listen.http).await?,
        })
    }

    /// The addresses, with the ports that the system chose where the configuration says 0.
    ///
    /// # Errors
    /// If the system does not know them.
    pub fn addresses(&self) -> io::Result<Listen> {
        Ok(Listen {
            grpc: self.grpc.local_addr()?,
            http: self.http.local_addr()?,
        })
    }

    /// Prepares both with the TLS and the bounds of `config`.
    pub(super) fn prepare(
        self,
        config: &Config,
        metrics: &Metrics,
    ) -> Result<Acceptors, ServerError> {
        let times = config.connections;
        let memory = CallMemory::new(times.max_call_bytes);
        let acceptor = |socket, listener, max, files: &Option<ServerFiles>| {
            let limits = ListenerLimits {
                listener,
                max,
                times,
            };
            let table = ConnectionTable::new(limits, memory.clone(), metrics.connections.clone());
            let tls = files.as_ref().map(|files| tls(listener, files, metrics));
            let tls = tls.transpose()?;
            Ok::<_, ServerError>(Acceptor::new(socket, table, tls))
        };
        Ok(Acceptors {
            grpc: acceptor(self.grpc, Listener::Grpc, times.max_grpc, &config.tls.grpc)?,
            http: acceptor(self.http, Listener::Http, times.max_http, &config.tls.http)?,
        })
    }
}

// === free functions ===

/// Returns the TLS of `listener` with `files`, which are watched from now on.
fn tls(
    listener: Listener,
    files: &ServerFiles,
    metrics: &Metrics,
) -> Result<ListenerTls, ServerError> {
    let owner = listener.into();
    let identity = files.start(listener, &metrics.tls);
    Ok(ListenerTls {
        listener,
        identity: identity.map_err(|cause| ServerError::Tls { owner, cause })?,
        metrics: metrics.tls.clone(),
    })
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|cause| ServerError::Bind { address, cause })
}
