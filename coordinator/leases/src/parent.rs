//! Borrows from the parent for the drivers of this node.
//!
//! The core decides what to request and how to apply an answer; this module carries requests and
//! answers. The driver returns a batch when one is due, so nothing happens while nothing is due,
//! and all that becomes due during a call goes into the next one.
//!
//! At the end nothing is released: Envoys use their leases until these expire, and the parent has
//! to count them as long.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate_config::ParentConfig;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ClientRun, IdError, Run};
use tollgate_net::channels::{ChannelError, Channels, cause};
use tollgate_net::clock::unix_time;
use tollgate_net::tls::{Credentials, Newest};
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::nudge::Watch;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::{Refreshed, ScopeAnswer};
use tollgate_proto::v1;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::driver::{Driver, DriverHandle, ParentReply, WeakDriverHandle};
use crate::nudges::NudgeSource;
use crate::parent_metrics::{CallResult, ParentMetrics};

mod ancestors;
mod status;

pub use self::ancestors::{AncestorPath, LEVELS_MAX, LoopError};
use self::status::CallRecord;
pub use self::status::ParentCallStatus;

/// Release calls in flight. A parent that does not answer them must not keep others from being
/// sent.
const RELEASES_MAX: usize = 8;

/// Pause after each message of nudges: a parent that names without end keeps no driver busy. Meanwhile
/// it gathers what it has to name.
const NUDGE_PAUSE: Duration = Duration::from_millis(10);

/// Time for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Connection settings and state of the parent; clones share the state.
#[derive(Clone, Debug)]
pub struct Parent {
    addresses: Arc<[String]>,
    channels: Channels,
    /// Connections for watches, one for each driver: on the others they could take up all streams.
    watch_channels: Channels,
    timeout: Duration,
    ancestors: AncestorPath,
    metrics: ParentMetrics,
    record: CallRecord,
}

/// Carries requests to the parent for one driver, until the driver ends.
#[derive(Debug)]
pub struct ParentLink {
    parent: Parent,
    client: ClientRun,
    driver: WeakDriverHandle,
    /// Index of the address in use.
    current: usize,
    /// Whether the last call failed. Only the first failure is logged.
    failing: bool,
    /// Release calls in flight.
    releases: JoinSet<()>,
}

/// Reason for which a parent cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ParentError {
    /// An address or a certificate is unusable.
    #[error("parent: {0}")]
    Channel(#[from] ChannelError),
    /// The name is not a valid client id.
    #[error("parent.name: {0}")]
    Name(#[from] IdError),
}

/// Reason for which a call to the parent failed.
#[derive(Debug, thiserror::Error)]
enum ParentCallError {
    #[error("{}: {}", .0.code(), cause(.0))]
    Status(#[from] Status),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("the answer cannot be read: {0}")]
    Answer(#[from] tollgate_proto::FieldError),
    #[error(transparent)]
    Loop(#[from] LoopError),
    #[error("no complete answer within {0:?}")]
    Late(Duration),
}

// === impl Parent ===

impl Parent {
    /// Creates the parent of `config`. Connections are opened when they are needed, with
    /// `credentials` where the parent speaks TLS.
    ///
    /// # Errors
    /// If an address or the name cannot be used.
    pub fn new(
        config: &ParentConfig,
        credentials: Option<Newest<Credentials>>,
        ancestors: AncestorPath,
        metrics: ParentMetrics,
    ) -> Result<Self, ParentError> {
        // The name and any shard must form a client id.
        client(ancestors.name(), u16::MAX)?;
        let channels = Channels::new(CONNECT_TIMEOUT, credentials.clone());
        for address in &config.addresses {
            channels.channel(address)?;
        }
        Ok(Self {
            addresses: config.addresses.as_slice().into(),
            channels,
            watch_channels: Channels::new(CONNECT_TIMEOUT, credentials),
            timeout: config.timeout,
            ancestors,
            metrics,
            record: CallRecord::new(config.addresses.first().map_or("", String::as_str)),
        })
    }

    /// State of the calls, for people to read.
    pub fn seen(&self) -> ParentCallStatus {
        self.record.look()
    }

    /// Names of the parent and its ancestors, the nearest first; empty until it has answered.
    pub fn above(&self) -> Arc<[String]> {
        self.ancestors.above()
    }

    /// Puts `driver`, which `handle` reaches and which serves `shard`, below this parent. The
    /// returned link must run beside it.
    ///
    /// # Errors
    /// If this coordinator's name is not a valid client id, which [`Parent::new`] has checked.
    pub fn link(
        &self,
        driver: Driver,
        handle: &DriverHandle,
        shard: Option<ShardId>,
    ) -> Result<(Driver, ParentLink), IdError> {
        // Newer parents tell runs apart by the term. Older ones need growing sequences: no run made
        // more requests than microseconds have passed.
        let sequence = u64::try_from(unix_time().as_micros()).unwrap_or(u64::MAX);
        let link = ParentLink {
            client: ClientRun {
                id: client(self.ancestors.name(), shard.map_or(0, |shard| shard.0))?,
                run: Run::Term(handle.origin().epoch),
            },
            parent: self.clone(),
            driver: handle.downgrade(),
            current: 0,
            failing: false,
            releases: JoinSet::new(),
        };
        Ok((driver.below(sequence, self.timeout), link))
    }

    /// Tells `driver` what the parent names to its `client`, until the driver ends. Each new attempt
    /// is at the next address: any node of the parent knows of all nudges.
    async fn carry_nudges(self, client: ClientRun, driver: WeakDriverHandle) {
        let watch = Watch::Client(client);
        let mut source = NudgeSource::new(&watch, self.watch_channels, self.addresses);
        while driver.nudged(source.next().await.resources).await.is_some() {
            sleep(NUDGE_PAUSE).await;
        }
    }
}

// === impl ParentLink ===

impl ParentLink {
    /// Carries requests and nudges until the driver ends.
    pub async fn run(mut self) {
        let nudges = self
            .parent
            .clone()
            .carry_nudges(self.client.clone(), self.driver.clone());
        tokio::select! {
            () = self.carry_requests() => {}
            () = nudges => {}
        }
    }

    async fn carry_requests(&mut self) {
        while let Some(batch) = self.driver.batch().await {
            if !batch.releases.is_empty() {
                let release = Release {
                    client: self.client.clone(),
                    resources: batch.releases,
                };
                self.release(&release).await;
            }
            if batch.scopes.is_empty() {
                continue;
            }
            let refresh = Refresh {
                client: self.client.clone(),
                scopes: batch.scopes,
            };
            let reply = self.ask(refresh).await;
            if self.driver.handle_reply(reply).await.is_none() {
                return;
            }
        }
    }

    async fn ask(&mut self, refresh: Refresh) -> ParentReply {
        let requests = refresh.scopes.iter().flat_map(|scope| {
            let sequence =
                |(unit, ask): &(_, tollgate_core::lease::LeaseRequest)| (*unit, ask.sequence);
            let units = scope.asks.iter().map(sequence);
            units.map(|(unit, sequence)| (scope.scope.clone(), unit, sequence))
        });
        let mut reply = ParentReply {
            requests: requests.collect(),
            ..ParentReply::default()
        };
        match self.refresh(&refresh).await {
            Ok((level, answers)) => {
                let good = answers.iter().filter(|scope| scope.outcome.is_ok());
                let errors = refresh.scopes.len().saturating_sub(good.count());
                self.parent.metrics.count(CallResult::Answered);
                self.parent.record.answered(self.address());
                self.parent.metrics.scope_errors.inc_by(errors as u64);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(parent = self.address(), "parent: answers again");
                }
                (reply.level, reply.answers) = (level, answers);
            }
            Err(error) => self.fail(&error),
        }
        reply
    }

    /// Sends `refresh` to the current address; returns the number of ancestors and the readable
    /// answers.
    async fn refresh(&self, refresh: &Refresh) -> Result<(u32, Vec<ScopeAnswer>), ParentCallError> {
        let mut call = Request::new(v1::RefreshRequest::from(refresh));
        call.set_timeout(self.parent.timeout);
        self.parent.ancestors.name_child(call.metadata_mut());
        // The call's own timeout ends with the answer's headers.
        let limit = self.parent.timeout;
        let mut stub = self.stub()?;
        let answer = timeout(limit, stub.refresh(call)).await;
        let answer = answer.map_err(|_| ParentCallError::Late(limit))??;
        let level = self.parent.ancestors.read_parent_path(answer.metadata())?;
        let refreshed = Refreshed::try_from(answer.into_inner())?;
        let readable = refreshed.scopes.into_iter().filter_map(Result::ok);
        Ok((level, readable.collect()))
    }

    /// Sends `release` beside the refresh calls: the parent ignores a release of what was requested
    /// after it. A release that does not arrive ends with the lease's expiry.
    async fn release(&mut self, release: &Release) {
        let Ok(mut stub) = self.stub() else { return };
        while self.releases.try_join_next().is_some() {}
        if self.releases.len() >= RELEASES_MAX {
            self.releases.join_next().await;
        }
        let limit = self.parent.timeout;
        let mut call = Request::new(v1::ReleaseRequest::from(release));
        call.set_timeout(limit);
        self.releases.spawn(async move {
            let released = timeout(limit, stub.release(call)).await;
            if !matches!(released, Ok(Ok(_))) {
                tracing::debug!(?released, "parent: release failed");
            }
        });
    }

    /// Counts and logs a failed call, and turns to the next address.
    fn fail(&mut self, error: &ParentCallError) {
        let result = match error {
            ParentCallError::Loop(_) => CallResult::Loop,
            _ => CallResult::Failed,
        };
        self.parent.metrics.count(result);
        let parent = self.address().to_owned();
        self.parent.record.failed(&parent, error);
        if result == CallResult::Loop {
            tracing::error!(parent, %error, "parent: answer refused");
        } else if !self.failing {
            tracing::warn!(parent, %error, "parent: no answer");
        }
        self.failing = true;
        let next = self.current.saturating_add(1);
        self.current = next.checked_rem(self.parent.addresses.len()).unwrap_or(0);
    }

    fn address(&self) -> &str {
        let address = self.parent.addresses.get(self.current);
        address.map_or("", String::as_str)
    }

    fn stub(&self) -> Result<LeaseServiceClient<Channel>, ChannelError> {
        let channel = self.parent.channels.channel(self.address())?;
        Ok(LeaseServiceClient::new(channel).max_decoding_message_size(ANSWER_LEN_MAX))
    }
}

/// Largest answer in bytes: one to the largest call, with all units of each scope.
const ANSWER_LEN_MAX: usize = 4 << 20;

// === free functions ===

/// Client id of `shard` of the coordinator `name`.
fn client(name: &str, shard: u16) -> Result<ClientId, IdError> {
    ClientId::new(&format!("{name}/{shard}"))
}
