//! Coordinators over gRPC.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_core::lease::{ClientRun, ResourceId};
use tollgate_core::message::{Refresh, Refreshed, Release};
use tollgate_proto::nudge::{Nudged, Watch};
use tollgate_proto::v1;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::settings::Settings;
use crate::settings_error::SettingsError;
use crate::transport::Transport;
use crate::wire::LeaseServiceClient;

/// Time limit of connecting, and again of its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// After how much silence the other side is asked whether it lives, and how long it has to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(2));

/// The nodes of a cluster of coordinators, one of which is in use.
#[derive(Debug)]
pub(crate) struct Coordinators {
    channels: Vec<Channel>,
    /// Counts up; the node in use is its remainder.
    current: AtomicUsize,
}

// === impl Coordinators ===

impl Coordinators {
    /// Returns the nodes in `settings`, to which no connection is made yet.
    ///
    /// # Errors
    /// If an address cannot be used.
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let urls = settings.coordinators.iter();
        let channels = urls.map(|url| channel(url, settings));
        Ok(Self {
            channels: channels.collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
        })
    }

    fn at(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    fn client(&self, at: usize) -> Option<LeaseServiceClient<Channel>> {
        let channel = self.channels.get(at.checked_rem(self.channels.len())?)?;
        Some(LeaseServiceClient::new(channel.clone()))
    }

    /// Goes on to the next node, unless another call has done so already.
    fn leave(&self, at: usize) {
        let next = at.wrapping_add(1);
        // Of calls that fail at the same time, one moves on.
        let _ = self
            .current
            .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn ask(&self, at: usize, refresh: &Refresh) -> Result<Refreshed, String> {
        let mut client = self.client(at).ok_or("there is no coordinator")?;
        let answer = client.refresh(v1::RefreshRequest::from(refresh)).await;
        let answer = answer.map_err(|status| in_words(&status))?.into_inner();
        Refreshed::try_from(answer).map_err(|error| error.to_string())
    }

    async fn follow(
        &self,
        client: ClientRun,
        nudges: &mpsc::Sender<Vec<ResourceId>>,
    ) -> Result<(), Status> {
        let mut coordinator = self
            .client(self.at())
            .ok_or_else(|| Status::unavailable("there is no coordinator"))?;
        let request = v1::WatchRequest::from(&Watch::Client(client));
        let mut stream = coordinator.watch(request).await?.into_inner();
        while let Some(message) = stream.message().await? {
            let nudged = Nudged::try_from(message);
            let nudged = nudged.map_err(|error| Status::internal(error.to_string()))?;
            if nudged.client.is_none() && nudges.send(nudged.resources).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl Transport for Coordinators {
    /// When the time limit ends the call, this is dropped; the node has been left by then.
    async fn refresh(&self, refresh: Refresh) -> Result<Refreshed, String> {
        let at = self.at();
        let mut left = LeaveOnDrop(Some((self, at)));
        let answer = self.ask(at, &refresh).await;
        if answer.is_ok() {
            left.0 = None;
        }
        answer
    }

    async fn release(&self, release: Release) {
        if let Some(mut client) = self.client(self.at()) {
            // A lease whose release gets lost expires.
            let _ = client.release(v1::ReleaseRequest::from(&release)).await;
        }
    }

    async fn watch(&self, client: ClientRun, nudges: mpsc::Sender<Vec<ResourceId>>) -> u32 {
        let ended = self.follow(client, &nudges).await;
        ended.map_or_else(|status| status.code() as u32, |()| Code::Ok as u32)
    }
}

/// Leaves a node unless its call succeeds.
struct LeaveOnDrop<'a>(Option<(&'a Coordinators, usize)>);

// === impl LeaveOnDrop ===

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some((coordinators, at)) = self.0 {
            coordinators.leave(at);
        }
    }
}

// === free functions ===

fn channel(url: &str, settings: &Settings) -> Result<Channel, SettingsError> {
    let wrong = |rule: String| SettingsError {
        field: "coordinator",
        value: format!("{url:?}"),
        rule,
    };
    let is_tls = url.starts_with("https://");
    if !is_tls && !url.starts_with("http://") {
        return Err(wrong("must begin with http:// or https://".to_owned()));
    }
    let endpoint =
        Endpoint::from_shared(url.to_owned()).map_err(|error| wrong(error.to_string()))?;
    let mut endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE.0)
        .keep_alive_timeout(KEEPALIVE.1)
        .keep_alive_while_idle(true);
    if is_tls {
        let tls = settings.tls.clone();
        let tls = tls.ok_or_else(|| wrong("needs `tls`, which says whom to trust".to_owned()))?;
        let with_tls = endpoint.tls_config(tls.timeout(CONNECT_TIMEOUT));
        endpoint = with_tls.map_err(|error| wrong(error.to_string()))?;
    }
    Ok(endpoint.connect_lazy())
}

/// The text of a failed call with its innermost cause, which says why a connection failed.
fn in_words(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        cause = error.source();
    }
    text
}
