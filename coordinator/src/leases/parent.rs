//! Borrows from the parent what the books say is to be borrowed.
//!
//! What to ask for and what an answer means is decided in the core; here it is carried to the parent
//! and back. The books are asked what there is to say, and answer when there is something: so
//! nothing happens while nothing is due, and what becomes due while a call is under way goes
//! together into the next one.
//!
//! At the end nothing is given back: Envoys go on using what they have been lent until that expires,
//! and the parent has to count it as long.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ClientRun, IdError, Run};
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::{Refreshed, ScopeAnswer};
use tollgate_proto::v1;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::clock::unix_time;
use crate::config::ParentConfig;
use crate::leases::driver::{Driver, DriverHandle, ParentReply, WeakDriverHandle};
use crate::net::channels::{ChannelError, Channels, cause};
use crate::net::tls::{Credentials, Newest};
use crate::wire::LeaseServiceClient;

mod ancestors;
mod metrics;
mod status;

pub use self::ancestors::{AncestorPath, LEVELS_MAX, LoopError};
use self::metrics::CallResult;
pub use self::metrics::ParentMetrics;
use self::status::CallRecord;
pub use self::status::ParentStatus;

/// The most calls that give something back and are under context: what nobody answers is not to keep the
/// parent from being asked.
const RELEASES_MAX: usize = 8;

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The way to a parent.
#[derive(Clone, Debug)]
pub struct Parent {
    addresses: Arc<[String]>,
    channels: Channels,
    timeout: Duration,
    ancestors: AncestorPath,
    metrics: ParentMetrics,
    record: CallRecord,
}

/// Borrows for one driver, until that ends.
#[derive(Debug)]
pub struct ParentLink {
    parent: Parent,
    client: ClientRun,
    driver: WeakDriverHandle,
    /// Which address is asked.
    current: usize,
    /// Whether the last call failed, which is logged once.
    failing: bool,
    /// What is being given back.
    releases: JoinSet<()>,
}

/// Why a parent cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ParentError {
    /// Its address or its certificates are of no use.
    #[error("parent: {0}")]
    Channel(#[from] ChannelError),
    /// The name is no client's.
    #[error("parent.name: {0}")]
    Name(#[from] IdError),
}

/// Why a call to the parent was in vain.
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
    /// The way to the parent of `config`; connections are opened when they are needed, with
    /// `credentials` where it speaks TLS.
    ///
    /// # Errors
    /// If an address or the name cannot be used.
    pub fn new(
        config: &ParentConfig,
        credentials: Option<Newest<Credentials>>,
        ancestors: AncestorPath,
        metrics: ParentMetrics,
    ) -> Result<Self, ParentError> {
        // The name and any shard are a client's id.
        client(ancestors.name(), u16::MAX)?;
        let channels = Channels::new(CONNECT_TIMEOUT, credentials);
        for address in &config.addresses {
            channels.channel(address)?;
        }
        Ok(Self {
            addresses: config.addresses.as_slice().into(),
            channels,
            timeout: config.timeout,
            ancestors,
            metrics,
            record: CallRecord::new(config.addresses.first().map_or("", String::as_str)),
        })
    }

    /// How it was seen last.
    pub fn seen(&self) -> ParentStatus {
        self.record.look()
    }

    /// The names of it and of those above it, the nearest first; empty until it has answered.
    pub fn above(&self) -> Arc<[String]> {
        self.ancestors.above()
    }

    /// Lets `driver`, which `handle` reaches and which has the books of `shard`, lend what it
    /// borrows; the link is to run beside it.
    ///
    /// # Errors
    /// If the name of this coordinator is no client's, which [`Parent::new`] has found out.
    pub fn link(
        &self,
        driver: Driver,
        handle: &DriverHandle,
        shard: Option<ShardId>,
    ) -> Result<(Driver, ParentLink), IdError> {
        // The term tells the parent which run this is, but for one of an older build: for that there
        // were fewer requests in an earlier run than microseconds have passed.
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
}

// === impl ParentLink ===

impl ParentLink {
    /// Carries to the parent what there is to say, until the driver ends.
    pub async fn run(mut self) {
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
            let heard = self.heard(refresh).await;
            if self.driver.heard(heard).await.is_none() {
                return;
            }
        }
    }

    async fn heard(&mut self, refresh: Refresh) -> ParentReply {
        let asked = refresh.scopes.iter().flat_map(|scope| {
            let sequence =
                |(unit, ask): &(_, tollgate_core::lease::LeaseRequest)| (*unit, ask.sequence);
            let units = scope.asks.iter().map(sequence);
            units.map(|(unit, sequence)| (scope.scope.clone(), unit, sequence))
        });
        let mut heard = ParentReply {
            asked: asked.collect(),
            ..ParentReply::default()
        };
        match self.refresh(&refresh).await {
            Ok((level, answers)) => {
                let good = answers.iter().filter(|scope| scope.outcome.is_ok());
                let errors = refresh.scopes.len().saturating_sub(good.count());
                self.parent.metrics.count(CallResult::Answered);
                self.parent.record.answered(self.address());
                self.parent.metrics.count_scope_errors(errors);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(parent = self.address(), "parent: answers again");
                }
                (heard.level, heard.answers) = (level, answers);
            }
            Err(error) => self.fail(&error),
        }
        heard
    }

    /// Asks at the current address; how many are above, and the answers that can be read.
    async fn refresh(&self, refresh: &Refresh) -> Result<(u32, Vec<ScopeAnswer>), ParentCallError> {
        let mut call = Request::new(v1::RefreshRequest::from(refresh));
        call.set_timeout(self.parent.timeout);
        self.parent.ancestors.name_child(call.metadata_mut());
        // The call's own time limit ends with the answer's headers.
        let limit = self.parent.timeout;
        let mut stub = self.stub()?;
        let answer = timeout(limit, stub.refresh(call)).await;
        let answer = answer.map_err(|_| ParentCallError::Late(limit))??;
        let level = self.parent.ancestors.read_parent_path(answer.metadata())?;
        let refreshed = Refreshed::try_from(answer.into_inner())?;
        let readable = refreshed.scopes.into_iter().filter_map(Result::ok);
        Ok((level, readable.collect()))
    }

    /// Gives back, beside what is asked for meanwhile: the parent takes no release for one of what
    /// was asked for after it. What does not arrive expires.
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

    /// Turns to the next address.
    fn fail(&mut self, error: &ParentCallError) {
        let result = match error {
            ParentCallError::Loop(_) => CallResult::Loop,
            ParentCallError::Status(_)
            | ParentCallError::Channel(_)
            | ParentCallError::Answer(_)
            | ParentCallError::Late(_) => CallResult::Failed,
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

/// The largest answer, in bytes: that to the largest call, with all units of each scope.
const ANSWER_LEN_MAX: usize = 4 << 20;

// === free functions ===

/// What the parent calls the master of `shard` of the coordinator `name`.
fn client(name: &str, shard: u16) -> Result<ClientId, IdError> {
    ClientId::new(&format!("{name}/{shard}"))
}
