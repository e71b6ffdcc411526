//! Connections to coordinators at an address, with the certificates of their files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use tollgate_filter::{Address, Level, Pem, REREAD_SECONDS, Tls, now};
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::unavailable;
use crate::envoy;
use crate::process::lock;

/// Time limit of connecting, and of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// After how much silence the other side is asked whether it lives, and how long it has to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(7), Duration::from_secs(2));

/// Connections by the names of addresses, each with the number of the reading of its files.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<BTreeMap<String, (u64, Channel)>>);

// === impl Connections ===

impl Connections {
    /// Returns a connection to `address`, with the certificates of its files as they are, or were not
    /// long ago.
    pub(super) async fn connection(&self, address: &Address) -> Result<Channel, Status> {
        let (name, reading) = (address.name(), reading(address));
        if let Some(known) = self.known(&name, reading) {
            return Ok(known);
        }
        // Files may be on a slow disk, and the system's issuers are many.
        let address = address.clone();
        let endpoint = tokio::task::spawn_blocking(move || endpoint(&address)).await;
        let endpoint = endpoint.map_err(|error| Status::internal(error.to_string()))??;
        // Calls that come together read the files each, and share the connection of the first.
        if let Some(known) = self.known(&name, reading) {
            return Ok(known);
        }
        let channel = endpoint.connect_lazy();
        lock(&self.0).insert(name, (reading, channel.clone()));
        Ok(channel)
    }

    fn known(&self, name: &str, reading: u64) -> Option<Channel> {
        let known = lock(&self.0);
        let (_, channel) = known.get(name).filter(|(of, _)| *of == reading)?;
        Some(channel.clone())
    }
}

// === free functions ===

/// Returns how often the files of `address` have been read anew.
fn reading(address: &Address) -> u64 {
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
