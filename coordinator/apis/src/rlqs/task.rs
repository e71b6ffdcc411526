//! The task of one stream.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_config::{Config, RlqsDomain};
use tollgate_core::units::Instant;
use tollgate_leases::nudges::{NudgeWatch, Watcher};
use tollgate_leases::router::CallContext;
use tollgate_net::clock::unix_time;
use tollgate_net::connections::ConnectionEnd;
use tollgate_proto::envoy::service::rate_limit_quota::v3 as wire;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::ScopeAnswer;
use tonic::{Code, Request, Status, Streaming};

use super::metrics::StreamEnd;
use super::sessions::{NAME, Session, StreamOrigin};
use super::stream::{LeaseBatch, StreamState};
use super::{Service, messages};
use crate::outbound::{Order, Outbound};

/// Pause between two rounds of requests, so that those that come together go together.
const GATHER_TIME: Duration = Duration::from_millis(5);

/// Interval at which timers are looked at while there is no place for what they would bring.
const PLACE_WAIT: Duration = Duration::from_millis(100);

/// Time for the masters of other nodes.
const CALL_TIMEOUT: Duration = Duration::from_millis(750);

/// Calls for leases at a time.
const CALLS_MAX: usize = 8;

type Reports = Streaming<wire::RateLimitQuotaUsageReports>;
type Messages = Outbound<wire::RateLimitQuotaResponse>;

/// Proxy at the other end of a stream.
#[derive(Clone, Debug)]
pub(super) struct StreamPeer {
    address: IpAddr,
    /// Name that it gives itself.
    name: Option<String>,
}

/// Carries what one stream brings and needs.
#[derive(Debug)]
pub(super) struct StreamTask {
    service: Service,
    peer: StreamPeer,
    connection: Option<ConnectionEnd>,
    messages: Messages,
}

/// A stream whose first report has come.
#[derive(Debug)]
struct OpenStream {
    service: Service,
    name: String,
    domain: RlqsDomain,
    session: Session,
    state: StreamState,
    /// Buckets that are counted in the metric.
    counted: u64,
    calls: JoinSet<AnsweredCall>,
    config: watch::Receiver<Arc<Config>>,
}

/// Answers to one call for leases.
#[derive(Debug)]
struct AnsweredCall {
    requests: Vec<(Arc<str>, u64)>,
    answers: Vec<ScopeAnswer>,
}

// === impl StreamPeer ===

impl StreamPeer {
    /// Reads where `request` comes from.
    ///
    /// # Errors
    /// If the name that the proxy gives itself is no text.
    pub(super) fn read<T>(request: &Request<T>) -> Result<Self, Status> {
        let address = request.remote_addr().map(|address| address.ip());
        let name = request.metadata().get(NAME).map(|name| name.to_str());
        let name = name.transpose();
        let name = name.map_err(|_| Status::invalid_argument(format!("{NAME}: is no text")))?;
        Ok(Self {
            address: address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            name: name.map(str::to_owned),
        })
    }
}

// === impl StreamTask ===

impl StreamTask {
    /// The task for `peer`, which sends to `messages`.
    pub(super) fn new(
        service: Service,
        peer: StreamPeer,
        connection: Option<ConnectionEnd>,
        messages: Messages,
    ) -> Self {
        Self {
            service,
            peer,
            connection,
            messages,
        }
    }

    /// Serves the stream whose first report is `first` until either side ends it.
    pub(super) async fn run(self, first: wire::RateLimitQuotaUsageReports, reports: Reports) {
        let metrics = self.service.metrics.clone();
        metrics.streams.inc();
        let ended = tokio::select! {
            ended = serve(self.service, self.peer, first, reports, &self.messages) => ended,
            () = closing(self.connection.as_ref()) => Err(stopping()),
            () = self.messages.closed() => Ok(()),
        };
        metrics.streams.dec();
        if let Err((reason, status)) = ended {
            tracing::debug!(%status, "rlqs: stream ended");
            metrics.count_end(reason);
            self.messages.end(status).await;
        }
    }
}

// === impl OpenStream ===

impl OpenStream {
    /// Opens the stream of `peer` whose first report is `first`.
    fn open(
        service: Service,
        peer: StreamPeer,
        first: wire::RateLimitQuotaUsageReports,
    ) -> Result<Self, Status> {
        let name = first.domain.clone();
        if name.is_empty() {
            return Err(Status::invalid_argument(
                "domain: is empty, which it may not be in the first message",
            ));
        }
        let mut config = service.config.clone();
        let domain = config.borrow_and_update().rlqs.get(&name).cloned();
        let domain = domain.ok_or_else(|| {
            let name = name.escape_debug();
            Status::not_found(format!("domain: {name} is none of rlqs.domains"))
        })?;
        let now = service.clock.now();
        service.sessions.forget_over(now);
        let mut state = StreamState::new(domain.clone(), service.memory.clone());
        service.metrics.reports.inc();
        let ignored = state.handle_report(now, messages::usages(first)?);
        service.metrics.count_ignored(&ignored);
        let origin = StreamOrigin {
            address: peer.address,
            domain: name.clone(),
            name: peer.name,
        };
        let had = state.resumes().then(|| state.fingerprint());
        let session = service
            .sessions
            .begin(now, unix_time(), origin, had)
            .map_err(|rule| Status::invalid_argument(format!("{NAME}: {rule}")))?;
        state.is_known = session.is_known;
        Ok(Self {
            state,
            service,
            name,
            domain,
            session,
            counted: 0,
            calls: JoinSet::new(),
            config,
        })
    }

    /// Carries until either side ends the stream.
    async fn run(
        &mut self,
        mut reports: Reports,
        messages: &Messages,
    ) -> Result<(), (StreamEnd, Status)> {
        let watch = Watcher::Client(self.session.client.clone());
        // Without nudges it asks after each refresh interval.
        let watch = self.service.router.nudges.open(watch).ok();
        let mut timer = self.service.clock.timer();
        let mut refreshed_at = self.service.clock.now();
        loop {
            let now = self.service.clock.now();
            let next_round = refreshed_at.saturating_add(GATHER_TIME);
            if now >= next_round && self.ask() {
                refreshed_at = now;
            }
            let timeout = self.poll_timeout(now).map(|at| at.max(next_round));
            tokio::select! {
                report = reports.message() => match report {
                    Ok(Some(report)) => self.report(report)?,
                    // It goes on with its assignments, and so do the leases.
                    Ok(None) => return Ok(()),
                    Err(status) => return unreadable(&status),
                },
                Some(answered) = self.calls.join_next() => self.apply(answered.ok()),
                () = nudged(watch.as_ref()) => self.take_nudges(watch.as_ref()),
                order = messages.ordered(), if self.state.has_actions(now) => match order {
                    Some(order) => self.act(order),
                    None => return Ok(()),
                },
                changed = self.config.changed() => match changed {
                    Ok(()) if self.is_reconfigured() => return Err(reconfigured()),
                    Ok(()) => {}
                    Err(_) => return Err(stopping()),
                },
                () = timer.until(timeout) => {}
            }
            self.count();
        }
    }

    /// When something is to be done without an event; later if that has to wait for a place anyhow.
    fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let waits = self.calls.len() >= CALLS_MAX || self.state.has_actions(now);
        let earliest = if waits {
            now.saturating_add(PLACE_WAIT)
        } else {
            now
        };
        self.state.poll_timeout().map(|at| at.max(earliest))
    }

    /// Takes a report of the proxy.
    fn report(
        &mut self,
        report: wire::RateLimitQuotaUsageReports,
    ) -> Result<(), (StreamEnd, Status)> {
        self.service.metrics.reports.inc();
        // Envoy names it in each message, others only in the first.
        if !report.domain.is_empty() && report.domain != self.name {
            let text = "domain: is another than in the first message";
            return Err((StreamEnd::Invalid, Status::invalid_argument(text)));
        }
        let usages = messages::usages(report).map_err(|status| (StreamEnd::Invalid, status))?;
        let ignored = self.state.handle_report(self.service.clock.now(), usages);
        self.service.metrics.count_ignored(&ignored);
        Ok(())
    }

    /// Makes the calls that are due. True if there were any.
    fn ask(&mut self) -> bool {
        let mut any = false;
        while self.calls.len() < CALLS_MAX {
            let Some(batch) = self.state.poll_batch(self.service.clock.now()) else {
                break;
            };
            any = true;
            self.call(batch);
        }
        any
    }

    fn call(&mut self, batch: LeaseBatch) {
        let context = CallContext {
            forwarded: None,
            from_child: false,
            timeout: CALL_TIMEOUT,
        };
        let (router, client) = (self.service.router.clone(), self.session.client.clone());
        let requests = batch.scopes.iter().flat_map(|scope| {
            let sequence = scope.asks.first().map(|(_, ask)| ask.sequence);
            sequence.map(|sequence| (scope.scope.clone(), sequence))
        });
        let requests = requests.collect();
        self.calls.spawn(async move {
            if !batch.releases.is_empty() {
                let release = Release {
                    client: client.clone(),
                    resources: batch.releases,
                };
                // A lease whose release is lost expires.
                let _ = router.release(release, context).await;
            }
            let scopes = batch.scopes;
            let answers = if scopes.is_empty() {
                Vec::new()
            } else {
                let refreshed = router.refresh(Refresh { client, scopes }, context).await;
                refreshed.unwrap_or_default()
            };
            AnsweredCall { requests, answers }
        });
    }

    /// Applies the answers to a call; a call that is lost is made again after its timeout.
    fn apply(&mut self, call: Option<AnsweredCall>) {
        let Some(AnsweredCall { requests, answers }) = call else {
            return;
        };
        let now = self.service.clock.now();
        let failed = self.state.handle_answers(now, &requests, &answers);
        self.service.metrics.unanswered.inc_by(failed as u64);
    }

    fn take_nudges(&mut self, watch: Option<&NudgeWatch>) {
        while let Some(nudged) = watch.and_then(NudgeWatch::take) {
            let now = self.service.clock.now();
            self.state.handle_nudge(now, &nudged.resources);
        }
    }

    /// Sends the next actions, if there are any.
    fn act(&mut self, order: Order<'_, wire::RateLimitQuotaResponse>) {
        let actions = self.state.poll_actions(self.service.clock.now());
        if !actions.is_empty() {
            self.service.metrics.count_actions(&actions);
            order.send(messages::response(&actions));
        }
    }

    fn is_reconfigured(&mut self) -> bool {
        let config = self.config.borrow_and_update();
        config.rlqs.get(&self.name) != Some(&self.domain)
    }

    /// Keeps the metric of buckets.
    fn count(&mut self) {
        let (before, buckets) = (self.counted, self.state.len() as u64);
        self.counted = buckets;
        let gauge = &self.service.metrics.buckets;
        gauge.inc_by(buckets.saturating_sub(before));
        gauge.dec_by(before.saturating_sub(buckets));
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.service.metrics.buckets.dec_by(self.counted);
        let (had, until) = (self.state.fingerprint(), self.state.assigned_until());
        self.service.sessions.end(self.session.clone(), had, until);
    }
}

// === free functions ===

/// Returns the first of `reports`.
///
/// # Errors
/// If there is none, with the reason unless the proxy has left.
pub(super) async fn first_report(
    reports: &mut Reports,
    connection: Option<&ConnectionEnd>,
) -> Result<wire::RateLimitQuotaUsageReports, (Option<StreamEnd>, Status)> {
    let first = tokio::select! {
        first = reports.message() => first,
        () = closing(connection) => {
            let (reason, status) = stopping();
            return Err((Some(reason), status));
        }
    };
    let ended = match first {
        Ok(Some(first)) => return Ok(first),
        Ok(None) => Ok(()),
        Err(status) => unreadable(&status),
    };
    Err(match ended {
        Err((reason, status)) => (Some(reason), status),
        Ok(()) => (None, Status::cancelled("the proxy left without a report")),
    })
}

/// Serves a stream from its first report on.
async fn serve(
    service: Service,
    peer: StreamPeer,
    first: wire::RateLimitQuotaUsageReports,
    reports: Reports,
    messages: &Messages,
) -> Result<(), (StreamEnd, Status)> {
    let opened = OpenStream::open(service, peer, first);
    let mut stream = opened.map_err(|status| (StreamEnd::Invalid, status))?;
    stream.count();
    stream.run(reports, messages).await
}

/// Resolves when nudges have come together; never without `watch`.
async fn nudged(watch: Option<&NudgeWatch>) {
    let is_filled = match watch {
        Some(watch) => watch.filled().await.is_ok(),
        None => false,
    };
    if !is_filled {
        return std::future::pending().await;
    }
    sleep(GATHER_TIME).await;
}

/// The end of a stream whose next message is none.
fn unreadable(status: &Status) -> Result<(), (StreamEnd, Status)> {
    match status.code() {
        // Of bytes that are no message, or too many.
        Code::Internal | Code::OutOfRange => {
            let status = Status::invalid_argument(status.message());
            Err((StreamEnd::Invalid, status))
        }
        // Of a message for which there is no memory.
        Code::ResourceExhausted => Err((StreamEnd::NoMemory, status.clone())),
        // The proxy has gone, and goes on with its assignments.
        _ => Ok(()),
    }
}

fn reconfigured() -> (StreamEnd, Status) {
    let text = "the configuration of the domain has changed: report again";
    (StreamEnd::Reconfigured, Status::aborted(text))
}

fn stopping() -> (StreamEnd, Status) {
    let text = "the coordinator closes this connection: report over another one";
    (StreamEnd::Closing, Status::unavailable(text))
}

async fn closing(connection: Option<&ConnectionEnd>) {
    match connection {
        Some(connection) => connection.closing().await,
        None => std::future::pending().await,
    }
}
