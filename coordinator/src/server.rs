//! Puts the doors and the driver together, and takes them apart in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tollgate_core::lease::Epoch;
use tollgate_core::node::Start;

use crate::clock::Clock;
use crate::config::{self, Config, Listen};
use crate::connections::{Acceptor, Incoming, Tls};
use crate::doorman::{self, CapacityServer};
use crate::driver::{Driver, Handle};
use crate::grpc::{LeaseServiceServer, Service};
use crate::keeper::{self, Keeper};
use crate::metrics::Metrics;
use crate::reload::Reload;
use crate::store::{MemoryStore, RedbStore, Store, StoreError};
use crate::tls::{Door, Files, Renewal, TlsError};
use crate::{rest, trace};

/// Connections of Envoys at a time: far more than one coordinator serves, and below the usual limit
/// of file descriptors for a service.
const GRPC_CONNECTIONS_MAX: usize = 8192;

/// Connections of people and Prometheus at a time.
const HTTP_CONNECTIONS_MAX: usize = 512;

/// Calls at a time on one connection. An Envoy has a few; the rest waits in HTTP/2.
const CALLS_PER_CONNECTION: usize = 64;

/// How long a call may take before its client hears that it failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// After how much silence a connection is asked whether it lives, and how long it has to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// The most bytes of headers in a call; the service reads none of its own.
const HEADERS_LEN_MAX: u32 = 16 << 10;

/// How long calls have to end after the shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Open sockets, not yet served.
#[derive(Debug)]
pub struct Listeners {
    grpc: TcpListener,
    http: TcpListener,
}

/// The doors, open.
#[derive(Debug)]
struct Doors {
    grpc: Incoming,
    http: Incoming,
}

/// A coordinator that has everything it needs to serve.
#[derive(Debug)]
pub struct Server {
    doors: Doors,
    config: Config,
    clock: Clock,
    metrics: Metrics,
    keeper: Keeper,
    catalog: keeper::Handle,
    driver: Driver,
    books: Handle,
    reloads: (mpsc::Sender<()>, mpsc::Receiver<()>),
}

/// What is served at the gRPC door.
struct Services {
    lease: LeaseServiceServer<Service>,
    doorman: CapacityServer<doorman::Service>,
}

/// Why the coordinator ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// A door cannot speak TLS.
    #[error("tls.{}: {cause}", door.name())]
    Tls {
        /// The door.
        door: Door,
        /// What is wrong with its files.
        cause: TlsError,
    },
    /// What was written through the API cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The gRPC server failed.
    #[error("the gRPC server failed: {0}")]
    Grpc(#[from] tonic::transport::Error),
    /// The HTTP server failed.
    #[error("the HTTP server failed: {0}")]
    Http(io::Error),
    /// A part ended that never should.
    #[error("the {0} ended by itself")]
    Ended(&'static str),
    /// A part panicked.
    #[error("a task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
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
}

impl Listeners {
    /// Accepts on both, with TLS where `tls` says so.
    fn start(self, tls: &config::Tls, metrics: &Metrics) -> Result<Doors, ServerError> {
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

// === impl Server ===

impl Server {
    /// A coordinator that serves `config` on `listeners`, once it runs.
    ///
    /// # Errors
    /// If its store, or the files of a door that is to speak TLS, cannot be used.
    pub async fn new(
        listeners: Listeners,
        config: Config,
        epoch: Epoch,
        start: Start,
    ) -> Result<Self, ServerError> {
        let clock = Clock::start();
        let metrics = Metrics::new(epoch, config.catalog.limits.count());
        if config.admin.tokens.is_empty() {
            tracing::warn!("no admin.tokens: whoever reaches the HTTP port may read and write");
        }
        let doors = listeners.start(&config.tls, &metrics)?;
        let file = config.catalog.clone();
        let store = open_store(&config)?;
        let (keeper, catalog) = Keeper::new(store, file, clock, metrics.clone()).await?;
        let (bounds, newest) = (config.bounds, catalog.watch());
        let (driver, books) = Driver::new(bounds, newest, epoch, start, clock, metrics.clone());
        Ok(Self {
            doors,
            config,
            clock,
            metrics,
            keeper,
            catalog,
            driver,
            books,
            reloads: mpsc::channel(1),
        })
    }

    /// Send to this to have the configuration file looked at now. A place that is taken says that
    /// it will be.
    pub fn reloads(&self) -> mpsc::Sender<()> {
        self.reloads.0.clone()
    }

    /// Serves until `shutdown` resolves; then stops accepting, lets calls end within five seconds,
    /// and returns.
    ///
    /// # Errors
    /// If a part fails or ends before `shutdown`.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let (stop, stopped) = watch::channel(());
        let (config, newest) = watch::channel(Arc::new(self.config));
        let mut parts = JoinSet::new();
        parts.spawn(async move {
            self.driver.run().await;
            Ok("driver")
        });
        parts.spawn(async move {
            self.keeper.run().await;
            Ok("keeper")
        });
        let services = Services {
            lease: Service::new(self.books.clone(), self.clock, self.metrics.clone()),
            doorman: doorman::Service::new(
                self.books.clone(),
                self.clock,
                self.metrics.clone(),
                newest.clone(),
            ),
        };
        parts.spawn(serve_grpc(self.doors.grpc, services, stopped.clone()));
        let router = rest::router(rest::Parts {
            driver: self.books,
            metrics: self.metrics.clone(),
            clock: self.clock,
            keeper: self.catalog.clone(),
            config: newest,
        });
        parts.spawn(serve_http(self.doors.http, router, stopped.clone()));
        let (_asks, asked) = self.reloads;
        if let Some(reload) = Reload::new(config, self.catalog.clone(), self.metrics) {
            parts.spawn(follow(reload, asked, stopped));
        }
        tokio::select! {
            () = shutdown => {}
            Some(ended) = parts.join_next() => {
                return Err(ServerError::Ended(ended??));
            }
        }
        tracing::info!("shutting down");
        // The parts end when nobody is left who could ask them for something.
        drop((stop, self.catalog));
        let all = async {
            while let Some(ended) = parts.join_next().await {
                ended??;
            }
            Ok(())
        };
        tokio::time::timeout(SHUTDOWN_GRACE, all)
            .await
            .unwrap_or_else(|_| {
                tracing::warn!("some calls did not end in time");
                Ok(())
            })
    }
}

// === free functions ===

/// How `door` speaks TLS, if there are `files` for it; they are looked at from now on.
fn door(door: Door, files: Option<Files>, metrics: &Metrics) -> Result<Option<Tls>, ServerError> {
    let Some(files) = files else { return Ok(None) };
    let started = Renewal::start(door, files, metrics.tls().clone());
    let (renewal, identity) = started.map_err(|cause| ServerError::Tls { door, cause })?;
    tokio::spawn(renewal.run());
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

/// Serves `config` on `listeners` until `shutdown` resolves; see [`Server`].
///
/// # Errors
/// If a part cannot start, fails, or ends before `shutdown`.
pub async fn serve(
    listeners: Listeners,
    config: Config,
    epoch: Epoch,
    start: Start,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let server = Server::new(listeners, config, epoch, start).await?;
    server.run(shutdown).await
}

fn open_store(config: &Config) -> Result<Box<dyn Store>, StoreError> {
    Ok(match config.store_path() {
        None => Box::new(MemoryStore::default()),
        Some((path, true)) => Box::new(RedbStore::create(path)?),
        Some((path, false)) => Box::new(RedbStore::open_or_later(path)?),
    })
}

async fn serve_grpc(
    connections: Incoming,
    services: Services,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    tonic::transport::Server::builder()
        .concurrency_limit_per_connection(CALLS_PER_CONNECTION)
        .max_concurrent_streams(CALLS_PER_CONNECTION as u32)
        .timeout(CALL_TIMEOUT)
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .http2_max_header_list_size(HEADERS_LEN_MAX)
        .trace_fn(|call| trace::grpc(call.uri().path()))
        .add_service(services.lease)
        .add_service(services.doorman)
        .serve_with_incoming_shutdown(connections, until(stopped))
        .await?;
    Ok("gRPC server")
}

async fn serve_http(
    connections: Incoming,
    router: axum::Router,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    axum::serve(connections, router)
        .with_graceful_shutdown(until(stopped))
        .await
        .map_err(ServerError::Http)?;
    Ok("HTTP server")
}

/// Follows the configuration file until the shutdown.
async fn follow(
    reload: Reload,
    asked: mpsc::Receiver<()>,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    tokio::select! {
        () = reload.run(asked) => {}
        () = until(stopped) => {}
    }
    Ok("reload")
}

/// Resolves when the other end is dropped.
async fn until(mut stopped: watch::Receiver<()>) {
    while stopped.changed().await.is_ok() {}
}
