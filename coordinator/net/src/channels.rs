//! gRPC connections to other coordinators, one for each address, made when they are first needed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::tls::{Credentials, Newest};

/// The most connections. A cluster has at most as many masters as shards; the rest is room for
/// addresses that nodes have had before.
const CHANNELS_MAX: usize = 128;

/// After how much silence the other side is asked whether it lives, and how long it has to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(2));

/// Connections to other coordinators; clones share them.
#[derive(Clone, Debug)]
pub struct Channels {
    /// Time limit of connecting, and again of its TLS handshake.
    connect_timeout: Duration,
    /// Credentials for TLS; without them only plain text is spoken.
    credentials: Option<Newest<Credentials>>,
    /// Held for a look-up only, never while anything is awaited.
    made: Arc<Mutex<ChannelCache>>,
}

/// The connections, by URL.
#[derive(Debug, Default)]
struct ChannelCache {
    /// With these; with others they are made anew.
    credentials: Option<Arc<Credentials>>,
    channels: BTreeMap<String, Channel>,
}

/// Reason for which there can be no connection.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// No credentials for TLS.
    #[error("{0} speaks TLS, and this node has no `cluster.tls` that says whom to trust")]
    NoTls(String),
    /// Not an address.
    #[error("{0}")]
    Transport(#[from] tonic::transport::Error),
}

// === impl Channels ===

impl Channels {
    /// Connections that take as long as `connect_timeout` to be there, and that speak TLS with
    /// `credentials`.
    pub fn new(connect_timeout: Duration, credentials: Option<Newest<Credentials>>) -> Self {
        Self {
            connect_timeout,
            credentials,
            made: Arc::default(),
        }
    }

    /// The connection to `url`, which begins with `http://` or `https://`.
    ///
    /// # Errors
    /// If that is no address, or one with TLS and there are no credentials.
    pub fn channel(&self, url: &str) -> Result<Channel, ChannelError> {
        let credentials = self
            .credentials
            .as_ref()
            .map(|newest| newest.borrow().clone());
        let mut open = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = match (&open.credentials, &credentials) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        // Calls under way keep theirs; those that are needed are made again.
        if !is_same || open.channels.len() >= CHANNELS_MAX {
            open.channels.clear();
            open.credentials.clone_from(&credentials);
        }
        if let Some(channel) = open.channels.get(url) {
            return Ok(channel.clone());
        }
        let channel = self.connect(url, credentials.as_deref())?;
        open.channels.insert(url.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Credentials of the connections, kept up to date. What lasts as long as a connection is to end
    /// when they change.
    pub fn credentials(&self) -> Option<Newest<Credentials>> {
        self.credentials.clone()
    }

    fn connect(
        &self,
        url: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Channel, ChannelError> {
        let mut endpoint = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1)
            .keep_alive_while_idle(true);
        if url.starts_with("https:") {
            let credentials = credentials.ok_or_else(|| ChannelError::NoTls(url.to_owned()))?;
            let tls = credentials.tonic().timeout(self.connect_timeout);
            endpoint = endpoint.tls_config(tls)?;
        }
        Ok(endpoint.connect_lazy())
    }
}

// === free functions ===

/// Text of a failed call with all its causes: only the last of several errors says that a
/// certificate was not accepted.
pub fn cause(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let inner = error.to_string();
        if !text.contains(&inner) {
            // Into a string nothing fails.
            let _ = write!(text, ": {inner}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_one_connection_for_each_address_and_a_bound() {
        let channels = Channels::new(Duration::from_secs(1), None);
        let count = || channels.made.lock().unwrap().channels.len();
        for _ in 0..3 {
            channels.channel("http://127.0.0.1:1").unwrap();
        }
        assert_eq!(count(), 1);
        for port in 1..=1000 {
            channels
                .channel(&format!("http://127.0.0.1:{port}"))
                .unwrap();
            assert!(count() <= CHANNELS_MAX);
        }
        assert!(channels.channel("http://no address").is_err());
        let refused = channels.channel("https://127.0.0.1:1").unwrap_err();
        assert!(refused.to_string().contains("`cluster.tls`"), "{refused}");
    }
}
