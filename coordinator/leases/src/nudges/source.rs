//! Nudges of another coordinator, over a watch that is opened again when it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tollgate_net::channels::{ChannelError, Channels, cause};
use tollgate_net::tls::{Credentials, Newest};
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::nudge::{Nudged, Watch};
use tollgate_proto::v1;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Request, Status, Streaming};

use super::NODE;

/// Pauses before a watch is opened again: they double up to the longest. One that lasted as long as
/// the longest was good.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Pause after a coordinator has said that it has no watches: until it may have been upgraded.
const OLD_PAUSE: Duration = Duration::from_secs(60);

/// Time in which a watch has to be open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Nudges of another coordinator.
#[derive(Debug)]
pub(crate) struct NudgeSource {
    watch: v1::WatchRequest,
    /// Name of this node, if it watches as one.
    node: Option<AsciiMetadataValue>,
    channels: Channels,
    /// URLs of coordinators that know of the same nudges.
    addresses: Arc<[String]>,
    /// Number of attempts to open a stream.
    attempts: usize,
    /// Credentials that the stream was opened with, or later ones.
    credentials: Option<Newest<Credentials>>,
    stream: Option<Streaming<v1::WatchResponse>>,
    opened_at: Instant,
    pause: Duration,
}

/// Reason for which a watch ended, or could not be opened.
#[derive(Debug, thiserror::Error)]
enum WatchEnd {
    #[error("{}: {}", .0.code(), cause(.0))]
    Status(#[from] Status),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("no stream within {0:?}")]
    Late(Duration),
    #[error("the coordinator ended the stream")]
    Ended,
}

// === impl NudgeSource ===

impl NudgeSource {
    /// Nudges for `watch`, of the coordinators at `addresses`: of the next one after each failure.
    pub(crate) fn new(watch: &Watch, channels: Channels, addresses: Arc<[String]>) -> Self {
        let mut credentials = channels.credentials();
        see(&mut credentials);
        Self {
            watch: watch.into(),
            node: None,
            channels,
            addresses,
            attempts: 0,
            credentials,
            stream: None,
            opened_at: Instant::now(),
            pause: PAUSES.0,
        }
    }

    /// The same for a watch of this node, whose name is `node`.
    pub(super) fn of_node(mut self, node: &str) -> Self {
        self.node = node.parse().ok();
        self
    }

    /// Returns the next message, however long that takes.
    pub(crate) async fn next(&mut self) -> Nudged {
        loop {
            let renewal = renewal(self.credentials.clone());
            let received = tokio::select! {
                received = self.receive() => received,
                // Or an issuer that is not trusted any more would be heard for ever.
                () = renewal => {
                    see(&mut self.credentials);
                    self.stream = None;
                    continue;
                }
            };
            match received {
                Ok(message) => match Nudged::try_from(message) {
                    Ok(nudged) => return nudged,
                    Err(error) => tracing::debug!(%error, "nudges: message not read"),
                },
                Err(end) => self.pause_after(&end).await,
            }
        }
    }

    /// Receives a message, over a new stream if there is none.
    async fn receive(&mut self) -> Result<v1::WatchResponse, WatchEnd> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let next = self.attempts.checked_rem(self.addresses.len());
                let address = next.and_then(|next| self.addresses.get(next));
                self.attempts = self.attempts.wrapping_add(1);
                let channel = self.channels.channel(address.map_or("", String::as_str))?;
                let mut stub = LeaseServiceClient::new(channel);
                let mut request = Request::new(self.watch.clone());
                if let Some(node) = &self.node {
                    request.metadata_mut().insert(NODE, node.clone());
                }
                let opened = timeout(OPEN_TIMEOUT, stub.watch(request)).await;
                let opened = opened.map_err(|_| WatchEnd::Late(OPEN_TIMEOUT))??;
                self.opened_at = Instant::now();
                self.stream.insert(opened.into_inner())
            }
        };
        stream.message().await?.ok_or(WatchEnd::Ended)
    }

    async fn pause_after(&mut self, end: &WatchEnd) {
        tracing::debug!(%end, "nudges: stream ended");
        if self.stream.take().is_some() && self.opened_at.elapsed() >= PAUSES.1 {
            self.pause = PAUSES.0;
        }
        if matches!(end, WatchEnd::Status(status) if status.code() == Code::Unimplemented) {
            sleep(OLD_PAUSE).await;
            return;
        }
        sleep(self.pause).await;
        self.pause = self.pause.saturating_mul(2).min(PAUSES.1);
    }
}

// === free functions ===

/// Resolves when `credentials` change.
async fn renewal(credentials: Option<Newest<Credentials>>) {
    if let Some(mut credentials) = credentials
        && credentials.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Takes the newest of `credentials` as known.
fn see(credentials: &mut Option<Newest<Credentials>>) {
    if let Some(credentials) = credentials {
        credentials.mark_unchanged();
    }
}

#[cfg(test)]
mod tests;
