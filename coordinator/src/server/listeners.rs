//! The sockets of a coordinator, and the doors that they become.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::ServerError;
use crate::config::{self, Listen};
use crate::connections::{Acceptor, Incoming, Tls};
use crate::metrics::Metrics;
use crate::tls::{Door, Files, Identity};

/// Connections of Envoys at a time: far more than one coordinator serves, and below the usual limit
/// of file descriptors for a service.
const GRPC_CONNECTIONS_MAX: usize = 8192;

/// Connections of people and Prometheus at a time.
const HTTP_CONNECTIONS_MAX: usize = 512;

/// Open sockets, not yet served.
#[derive(Debug)]
pub struct Listeners {
    grpc: TcpListener,
    http: TcpListener,
}

/// The doors, open.
#[derive(Debug)]
pub(super) struct Doors {
    pub(super) grpc: Incoming,
    pub(super) http: Incoming,
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

    /// Accepts on both, with TLS where `tls` says so.
    pub(super) fn start(self, tls: &config::Tls, metrics: &Metrics) -> Result<Doors, ServerError> {
        let (grpc, http) = (tls.grpc.clone(), tls.http.clone());
        let (grpc, http) = (
            door(Door::Grpc, grpc, metrics)?,
            door(Door::Http, http, metrics)?,
        );
        Ok(Doors {
            grpc: Acceptor::new(self.grpc, GRPC_CONNECTIONS_MAX)
                .with_tls(grpc)
                .start(),
            http: Acceptor::new(self.http, HTTP_CONNECTIONS_MAX)
                .with_tls(http)
                .start(),
        })
    }
}

// === free functions ===

/// How `door` speaks TLS, if there are `files` for it; they are looked at from now on.
fn door(door: Door, files: Option<Files>, metrics: &Metrics) -> Result<Option<Tls>, ServerError> {
    let Some(files) = files else { return Ok(None) };
    let identity = Identity::start(door, files, metrics.tls().clone());
    let identity = identity.map_err(|cause| ServerError::Tls {
        holder: door.into(),
        cause,
    })?;
    Ok(Some(Tls {
        door,
        identity,
        metrics: metrics.tls().clone(),
    }))
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|cause| ServerError::Bind { address, cause })
}
