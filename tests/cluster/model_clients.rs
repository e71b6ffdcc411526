//! Model clients: lease clients without an Envoy that share one clock.
//!
//! The rate that Envoys admit can only be measured within bursts and delays. The rate that model
//! clients may use is known exactly at every instant, so an excess of one millionth is found.
//!
//! Once they have used the whole capacity, they die at random and start again under the same id, as
//! clients other than Envoys may. Some requests of a dead run arrive late, its first request always.
//! The sequences of the next run may be lower than theirs, because its clock differs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn};
use tokio::time::{self, interval, sleep};
use tollgate_core::client::{LeaseMessage, Policy, RateLimiter};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ClientRun, Epoch, LeaseRequest, Run, Unit};
use tollgate_core::units::{Capacity, Instant, Tokens};
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::request::{Refresh, ScopeRefresh};
use tollgate_proto::response::{Refreshed, ScopeAnswer};
use tollgate_proto::v1;
use tollgate_sim::random::Random;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

const SCOPE: &str = "tenant/model";
/// Number of model clients.
const MODELS: usize = 4;
/// Interval of their ticks, as in the filter's workers.
const TICK: Duration = Duration::from_millis(10);
/// Attempts of each client per tick: together per second as many as the capacity of one.
const ATTEMPTS: u64 = 2;
/// A client restarts once in so many ticks, on average.
const TICKS_OF_RESTART: u64 = 80;
/// Percentage of requests that are sent a second time, late.
const STRAYS_PERCENT: u64 = 15;
/// The longest delay of such a request.
const STRAYS_LATEST_MS: u64 = 3_000;
/// The largest difference between the clocks of two runs.
const CLOCKS_APART_MS: u64 = 20_000;

/// The running model clients.
pub(crate) struct ModelClients {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<ModelReport>>,
}

/// Observations of all model clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelReport {
    /// Calls that were answered.
    pub(crate) answers: u64,
    /// Calls that were not.
    pub(crate) failures: u64,
    /// Restarts of clients.
    pub(crate) restarts: u64,
    /// Requests that were answered after their run had ended.
    pub(crate) of_dead_runs: u64,
    /// Number of masters' terms.
    pub(crate) terms: usize,
    /// The largest sum of all leases at any instant.
    pub(crate) most: f64,
}

/// The state of all model clients, owned by one task.
struct ModelFleet {
    started: time::Instant,
    capacity: Capacity,
    policy: Policy,
    random: Random,
    clients: Vec<ModelClient>,
    report: ModelReport,
    /// Arrival of the first answer of each term.
    terms: BTreeMap<(Option<ShardId>, Epoch), time::Instant>,
    answers: mpsc::UnboundedSender<CallResult>,
}

/// One model client.
struct ModelClient {
    id: ClientId,
    incarnation: NonZeroU64,
    /// Lead of its clock over the shared one.
    ahead: Duration,
    limiter: RateLimiter,
    channels: Vec<LeaseServiceClient<Channel>>,
    /// The first request of this run, sent before it had a lease.
    first: Option<v1::RefreshRequest>,
}

/// A run of a client: its index and incarnation.
type ModelRun = (usize, NonZeroU64);

/// The result of a call.
struct CallResult {
    of: ModelRun,
    sequence: u64,
    sent_at: time::Instant,
    /// Whether a coordinator answered, even if it refused.
    answered: bool,
    answer: Option<ScopeAnswer>,
}

// === impl ModelClients ===

impl ModelClients {
    /// Starts clients that call the coordinators at `addresses`, chosen at random from `seed`, and that
    /// may together use `capacity`.
    pub(crate) fn start(addresses: &[SocketAddr], capacity: f64, seed: u64) -> Result<Self> {
        let (answers, answered) = mpsc::unbounded_channel();
        let started = time::Instant::now();
        let policy = Policy::default();
        let mut clients = Vec::new();
        for index in 0..MODELS {
            let channel = |to: &SocketAddr| {
                let channel = Endpoint::try_from(format!("http://{to}"))?.connect_lazy();
                anyhow::Ok(LeaseServiceClient::new(channel))
            };
            clients.push(ModelClient {
                id: ClientId::new(&format!("model-{index}/x"))?,
                incarnation: NonZeroU64::MIN,
                ahead: Duration::ZERO,
                limiter: RateLimiter::new(Instant::ZERO, &policy),
                channels: addresses.iter().map(channel).collect::<Result<_>>()?,
                first: None,
            });
        }
        let world = ModelFleet {
            started,
            capacity: Capacity::try_from_f64(capacity)?,
            policy,
            random: Random::new(seed),
            clients,
            report: ModelReport::default(),
            terms: BTreeMap::new(),
            answers,
        };
        let (stop, stopped) = oneshot::channel();
        let running = spawn(world.run(answered, stopped));
        Ok(Self { stop, running })
    }

    /// Stops the clients.
    ///
    /// # Errors
    /// When a law was broken.
    pub(crate) async fn stop(self) -> Result<ModelReport> {
        // The fleet has stopped already if a law was broken.
        let _ = self.stop.send(());
        self.running.await?
    }
}

// === impl ModelFleet ===

impl ModelFleet {
    async fn run(
        mut self,
        mut answered: mpsc::UnboundedReceiver<CallResult>,
        mut stopped: oneshot::Receiver<()>,
    ) -> Result<ModelReport> {
        let mut ticks = interval(TICK);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(),
                Some(answered) = answered.recv() => self.take(answered)?,
                _ = &mut stopped => break,
            }
            self.within_capacity()?;
        }
        self.report.terms = self.terms.len();
        Ok(self.report)
    }

    fn now(&self) -> Instant {
        Instant::ZERO.saturating_add(self.started.elapsed())
    }

    fn tick(&mut self) {
        let had = self.report.most > 0.9 * self.capacity.as_f64();
        if had && self.random.between(1, TICKS_OF_RESTART) == 1 {
            self.restart();
        }
        for index in 0..self.clients.len() {
            let now = self.now();
            let Some(client) = self.clients.get_mut(index) else {
                continue;
            };
            let now = client.clock(now);
            for _ in 0..ATTEMPTS {
                client.limiter.count(now, 1);
                // Only the demand counts here; other tests check the decision.
                let _ = client.limiter.draw(now, &self.policy, Tokens::ONE, 1);
            }
            if let LeaseMessage::Refresh(ask) = client.limiter.ask(now, &self.policy) {
                let channel = self.random.between(0, client.channels.len() as u64 - 1) as usize;
                let (service, of) = (
                    client.channels[channel].clone(),
                    (index, client.incarnation),
                );
                let sequence = ask.sequence;
                let request = client.request(ask);
                client.first.get_or_insert_with(|| request.clone());
                let stray = (service.clone(), request.clone());
                spawn(call(of, service, request, sequence, self.answers.clone()));
                if self.random.chance(STRAYS_PERCENT) {
                    self.send_late(of, stray);
                }
            }
        }
    }

    /// Sends a request that the network has delayed, perhaps beyond the end of its run. Its answer is
    /// ignored: no client waits for the sequence 0.
    fn send_late(
        &mut self,
        of: ModelRun,
        (client, request): (LeaseServiceClient<Channel>, v1::RefreshRequest),
    ) {
        let late = Duration::from_millis(self.random.between(20, STRAYS_LATEST_MS));
        let answers = self.answers.clone();
        spawn(async move {
            sleep(late).await;
            call(of, client, request, 0, answers).await;
        });
    }

    /// Ends the run of a random client, and starts it again under the same id.
    fn restart(&mut self) {
        let now = self.now();
        let index = self.random.between(0, self.clients.len() as u64 - 1) as usize;
        let ahead = Duration::from_millis(self.random.between(0, CLOCKS_APART_MS));
        let channel =
            self.random
                .between(0, self.clients[index].channels.len() as u64 - 1) as usize;
        let client = &mut self.clients[index];
        let dead = (index, client.incarnation);
        let stray = client
            .first
            .take()
            .map(|first| (client.channels[channel].clone(), first));
        client.incarnation = client.incarnation.saturating_add(1);
        client.ahead = ahead;
        client.limiter = RateLimiter::new(client.clock(now), &self.policy);
        self.report.restarts += 1;
        if let Some(stray) = stray {
            self.send_late(dead, stray);
        }
    }

    /// Applies an answer, as the filter does.
    fn take(&mut self, answered: CallResult) -> Result<()> {
        let CallResult {
            of: (index, incarnation),
            sequence,
            sent_at,
            answered,
            answer,
        } = answered;
        let client = &mut self.clients[index];
        let now = client.clock(Instant::ZERO.saturating_add(self.started.elapsed()));
        let lives = client.incarnation == incarnation;
        self.report.of_dead_runs += u64::from(answered && !lives);
        let Some(answer) = answer else {
            self.report.failures += 1;
            if lives {
                let seed = self.random.bits();
                client.limiter.handle_failure(now, sequence, seed);
            }
            return Ok(());
        };
        self.report.answers += 1;
        let origin = answer.origin;
        let units = answer.outcome.into_iter().flatten();
        for unit in units.filter(|unit| lives && unit.unit == Unit::Requests) {
            let limiter = &mut client.limiter;
            let _ = limiter.handle_answer(now, &self.policy, sequence, origin, &unit.answer);
        }
        let of_shard =
            |((shard, _), _): &(&(Option<ShardId>, Epoch), &time::Instant)| *shard == origin.shard;
        for ((_, epoch), first_at) in self.terms.iter().filter(of_shard) {
            ensure!(
                *epoch <= origin.epoch || *first_at >= sent_at,
                "law 5: the master of term {} answered a call sent after an answer of term {} had arrived",
                origin.epoch.0,
                epoch.0
            );
        }
        let term = (origin.shard, origin.epoch);
        self.terms.entry(term).or_insert_with(time::Instant::now);
        Ok(())
    }

    /// Checks law 1 at the clients: the sum of what they use is within the capacity.
    fn within_capacity(&mut self) -> Result<()> {
        let now = self.now();
        let has =
            |client: &ModelClient| u128::from(client.limiter.has(client.clock(now)).as_micros());
        let sum: u128 = self.clients.iter().map(has).sum();
        let capacity = self.capacity.as_micros();
        ensure!(
            sum <= u128::from(capacity),
            "law 1: {sum} millionths are in use, the capacity is {capacity}"
        );
        self.report.most = self.report.most.max(sum as f64 / 1e6);
        Ok(())
    }
}

// === impl ModelClient ===

impl ModelClient {
    /// Time of its own clock at the shared clock's `now`.
    fn clock(&self, now: Instant) -> Instant {
        now.saturating_add(self.ahead)
    }

    fn request(&self, ask: LeaseRequest) -> v1::RefreshRequest {
        let refresh = Refresh {
            client: ClientRun {
                id: self.id.clone(),
                run: Run::Incarnation(self.incarnation),
            },
            scopes: vec![ScopeRefresh {
                scope: Arc::from(SCOPE),
                asks: vec![(Unit::Requests, ask)],
            }],
        };
        v1::RefreshRequest::from(&refresh)
    }
}

// === free functions ===

/// Makes one call, with a client's timeout.
async fn call(
    of: ModelRun,
    mut client: LeaseServiceClient<Channel>,
    request: v1::RefreshRequest,
    sequence: u64,
    answers: mpsc::UnboundedSender<CallResult>,
) {
    let mut request = Request::new(request);
    request.set_timeout(Policy::default().call_timeout);
    let sent_at = time::Instant::now();
    let answer = client.refresh(request).await.ok();
    let answer = answer.and_then(|answer| Refreshed::try_from(answer.into_inner()).ok());
    let answer = answer.and_then(|refreshed| refreshed.scopes.into_iter().next()?.ok());
    let _ = answers.send(CallResult {
        of,
        sequence,
        sent_at,
        answered: answer.is_some(),
        answer: answer.filter(|answer| answer.outcome.is_ok()),
    });
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anyhow::anyhow;
    use tokio::time::timeout;
    use tollgate_tests::coordinator::Coordinator;

    use super::*;
    use crate::test_context::{TestContext, run_test, s};

    const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 200}\n";

    /// Runs clients for a while against so many independent `coordinators`, with `capacity` as the most
    /// that they may use.
    async fn observed(
        test: &TestContext,
        coordinators: usize,
        capacity: f64,
    ) -> Result<ModelReport> {
        let mut running = Vec::new();
        for index in 0..coordinators {
            let dir = test.dir().join(index.to_string());
            fs::create_dir_all(&dir)?;
            running.push(Coordinator::start(&dir, LIMITS).await?);
        }
        let addresses: Vec<_> = running.iter().map(Coordinator::grpc).collect();
        let mut clients = ModelClients::start(&addresses, capacity, 1)?;
        // They stop by themselves when a law is broken.
        match timeout(s(3.0), &mut clients.running).await {
            Ok(report) => report?,
            Err(_) => clients.stop().await,
        }
    }

    /// Restarts come at random, and the requests of dead runs up to seconds after them.
    #[test]
    fn clients_start_again_and_requests_of_dead_runs_come_late() {
        run_test(
            "clients_start_again_and_requests_of_dead_runs_come_late",
            async |test| {
                for _ in 0..10 {
                    let report = observed(test, 1, 200.0).await?;
                    if report.restarts > 0 && report.of_dead_runs > 0 {
                        return Ok(());
                    }
                }
                Err(anyhow!("ten runs without a late request of a dead run"))
            },
        );
    }

    #[test]
    fn too_much_and_two_masters_are_seen() {
        run_test("too_much_and_two_masters_are_seen", async |test| {
            let report = observed(test, 1, 200.0).await?;
            ensure!(report.most > 190.0 && report.terms == 1, "{report:?}");
            let error = observed(test, 1, 150.0).await.unwrap_err().to_string();
            ensure!(error.starts_with("law 1"), "{error}");
            let error = observed(test, 2, 400.0).await.unwrap_err().to_string();
            ensure!(error.starts_with("law 5"), "{error}");
            Ok(())
        });
    }
}
