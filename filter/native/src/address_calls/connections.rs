//! Connections to coordinators at an address, with the certificates of their files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_filter::{Address, Level, Pem, REREAD_SECONDS, Tls, now};
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::unavailable;
use crate::envoy;
use crate::lock::lock;

/// Time limit of connecting, and of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// After how much silence the other side is asked whether it lives, and how long it has to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(7), Duration::from_secs(2));

/// Connections by the names of addresses.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<BTreeMap<String, Reading>>);

/// A reading of an address's files. It goes on when the call that began it is over, and serves the next one.
#[derive(Clone, Debug)]
struct Reading {
    number: u64,
    connection: watch::Receiver<Option<Result<Channel, Status>>>,
}

// === impl Connections ===

impl Connections {
    /// Returns a connection to `address`, with the certificates of its files as they are, or were not
    /// long ago.
    pub(super) async fn connection(&self, address: &Address) -> Result<Channel, Status> {
        let mut connection = self.reading(address).connection;
        let read = connection.wait_for(Option::is_some).await;
        let read = read.map_err(|error| Status::internal(error.to_string()))?;
        let missing = || Status::internal("the certificates were not read");
        read.clone().ok_or_else(missing)?
    }

    /// Returns the latest reading, which may have begun just now. Each address has one at a time, however many
    /// calls wait for it.
    fn reading(&self, address: &Address) -> Reading {
        let (name, number) = (address.name(), number(address));
        let mut known = lock(&self.0);
        if let Some(reading) = known.get(&name).filter(|known| known.is_of_use(number)) {
            return reading.clone();
        }
        let (read, connection) = watch::channel(None);
        let address = address.clone();
        // Files may be on a slow disk, and the system's issuers are many.
        tokio::task::spawn_blocking(move || {
            let endpoint = endpoint(&address);
            // Nobody may want it any more.
            let _ = read.send(Some(endpoint.map(|endpoint| endpoint.connect_lazy())));
        });
        let reading = Reading { number, connection };
        known.insert(name, reading.clone());
        reading
    }
}

// === impl Reading ===

impl Reading {
    /// Returns whether it goes on, or has led to a connection in time for the reading `number`.
    fn is_of_use(&self, number: u64) -> bool {
        match &*self.connection.borrow() {
            None => self.connection.has_changed().is_ok(),
            Some(connection) => connection.is_ok() && self.number == number,
        }
    }
}

// === free functions ===

/// Returns how often the files of `address` have been read anew.
fn number(address: &Address) -> u64 {
    let of_tls = address.tls.as_ref().and_then(|tls| tls.reread_seconds);
    let seconds = Duration::from_nanos(now().as_nanos()).as_secs();
    let interval = of_tls.unwrap_or(REREAD_SECONDS);
    seconds.checked_div(interval).unwrap_or_default()
}

fn endpoint(address: &Address) -> Result<Endpoint, Status> {
    let scheme = if address.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", address.target));
    let endpoint = endpoint
        .map_err(unavailable)?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE.0)
        .keep_alive_timeout(KEEPALIVE.1)
        .keep_alive_while_idle(true);
    match &address.tls {
        None => Ok(endpoint),
        Some(tls) => endpoint.tls_config(with_files(tls)?).map_err(unavailable),
    }
}

fn with_files(tls: &Tls) -> Result<ClientTlsConfig, Status> {
    let mut config = ClientTlsConfig::new().timeout(CONNECT_TIMEOUT);
    config = match &tls.ca {
        None => config.with_native_roots(),
        Some(Pem::Text(pem)) => config.ca_certificate(Certificate::from_pem(pem)),
        Some(Pem::File(path)) => config.ca_certificate(Certificate::from_pem(read(path)?)),
    };
    if let Some(files) = &tls.files {
        config = config.identity(Identity::from_pem(read(&files.cert)?, read(&files.key)?));
    }
    Ok(match &tls.server_name {
        None => config,
        Some(name) => config.domain_name(name),
    })
}

fn read(path: &str) -> Result<Vec<u8>, Status> {
    std::fs::read(Path::new(path)).map_err(|error| {
        let message = format!("tollgate: {path} cannot be read: {error}");
        envoy::log(Level::Warn, &message);
        Status::unavailable(message)
    })
}
