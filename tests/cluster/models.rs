//! Clients without an Envoy: the filter's own lease holder, and a clock that they share.
//!
//! What Envoys admit is known within bursts and moments. What these clients may use is known
//! exactly and at every instant, so that a millionth too much is seen.
//!
//! Once they have had what there is, they die now and then and start again under their ids, as a
//! client may that is not an Envoy. What a dead one has sent is still on its way: some of it comes late,
//! and its first request always does. The sequences of the next run may be lower than those, because
//! they are times of another clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn};
use tokio::time::{self, interval, sleep};
use tollgate_coordinator::wire::LeaseServiceClient;
use tollgate_core::client::{LeaseMessage, Policy, RateLimiter};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ClientRun, Epoch, LeaseRequest, Run, Unit};
use tollgate_core::units::{Capacity, Instant, Tokens};
use tollgate_proto::request::{Refresh, ScopeRefresh};
use tollgate_proto::response::{Refreshed, ScopeAnswer};
use tollgate_proto::v1;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::random::Random;

const SCOPE: &str = "tenant/model";
/// How many there are.
const MODELS: usize = 4;
/// How often they look after their books, as the filter's workers do.
const TICK: Duration = Duration::from_millis(10);
/// Attempts of each at each tick: as many as the whole capacity a second.
const ATTEMPTS: u64 = 2;
/// Of how many ticks in one somebody starts again.
const TICKS_OF_RESTART: u64 = 80;
/// How many requests of a hundred are sent once more, later.
const STRAYS_PERCENT: u64 = 15;
/// How much later, at most.
const STRAYS_LATEST_MS: u64 = 3_000;
/// How far the clocks of two runs are apart, at most.
const CLOCKS_APART_MS: u64 = 20_000;

/// Running clients.
pub(crate) struct Models {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<Report>>,
}

/// What they saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// Calls that were answered.
    pub(crate) answers: u64,
    /// Calls that were not.
    pub(crate) failures: u64,
    /// How often somebody started again.
    pub(crate) restarts: u64,
    /// Requests that reached a coordinator after their run had died.
    pub(crate) of_dead_runs: u64,
    /// Terms of masters.
    pub(crate) terms: usize,
    /// The most that all had at an instant.
    pub(crate) most: f64,
}

struct World {
    started: time::Instant,
    capacity: Capacity,
    policy: Policy,
    random: Random,
    models: Vec<Model>,
    report: Report,
    /// When the first answer of each term was there.
    terms: BTreeMap<(Option<ShardId>, Epoch), time::Instant>,
    answers: mpsc::UnboundedSender<Answered>,
}

struct Model {
    id: ClientId,
    incarnation: NonZeroU64,
    /// How far its clock is ahead of the world's.
    ahead: Duration,
    limiter: RateLimiter,
    doors: Vec<LeaseServiceClient<Channel>>,
    /// The first request of this run, from before it had anything.
    first: Option<v1::RefreshRequest>,
}

/// Which run of which model.
type Of = (usize, NonZeroU64);

/// How a call ended.
struct Answered {
    of: Of,
    sequence: u64,
    sent_at: time::Instant,
    /// Whether a coordinator has said anything of it, if only no.
    heard: bool,
    answer: Option<ScopeAnswer>,
}

// === impl Models ===

impl Models {
    /// Starts clients that ask the coordinators at `doors`, of which `seed` chooses, and that may use
    /// `capacity` together.
    pub(crate) fn start(doors: &[SocketAddr], capacity: f64, seed: u64) -> Result<Self> {
        let (answers, answered) = mpsc::unbounded_channel();
        let started = time::Instant::now();
        let policy = Policy::default();
        let mut models = Vec::new();
        for index in 0..MODELS {
            let door = |to: &SocketAddr| {
                let channel = Endpoint::try_from(format!("http://{to}"))?.connect_lazy();
                anyhow::Ok(LeaseServiceClient::new(channel))
            };
            models.push(Model {
                id: ClientId::new(&format!("model-{index}/x"))?,
                incarnation: NonZeroU64::MIN,
                ahead: Duration::ZERO,
                limiter: RateLimiter::new(Instant::ZERO, &policy),
                doors: doors.iter().map(door).collect::<Result<_>>()?,
                first: None,
            });
        }
        let world = World {
            started,
            capacity: Capacity::try_from_f64(capacity)?,
            policy,
            random: Random::new(seed),
            models,
            report: Report::default(),
            terms: BTreeMap::new(),
            answers,
        };
        let (stop, stopped) = oneshot::channel();
        let running = spawn(world.run(answered, stopped));
        Ok(Self { stop, running })
    }

    /// Stops them.
    ///
    /// # Errors
    /// With what they saw that no law allows.
    pub(crate) async fn stop(self) -> Result<Report> {
        // Whoever has seen such a thing has stopped already.
        let _ = self.stop.send(());
        self.running.await?
    }
}

// === impl World ===

impl World {
    async fn run(
        mut self,
        mut answered: mpsc::UnboundedReceiver<Answered>,
        mut stopped: oneshot::Receiver<()>,
    ) -> Result<Report> {
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
        for index in 0..self.models.len() {
            let now = self.now();
            let Some(model) = self.models.get_mut(index) else {
                continue;
            };
            let now = model.clock(now);
            for _ in 0..ATTEMPTS {
                model.limiter.count(now, 1);
                // Whether it passes is for others to test; here it says that somebody is there.
                let _ = model.limiter.draw(now, &self.policy, Tokens::ONE, 1);
            }
            if let LeaseMessage::Refresh(ask) = model.limiter.ask(now, &self.policy) {
                let door = self.random.between(0, model.doors.len() as u64 - 1) as usize;
                let (client, of) = (model.doors[door].clone(), (index, model.incarnation));
                let sequence = ask.sequence;
                let request = model.request(ask);
                model.first.get_or_insert_with(|| request.clone());
                let stray = (client.clone(), request.clone());
                spawn(call(of, client, request, sequence, self.answers.clone()));
                if self.random.chance(STRAYS_PERCENT) {
                    self.send_late(of, stray);
                }
            }
        }
    }

    /// Sends a request that something on its way has kept, perhaps for a run that is dead by then. The
    /// answer is for nobody: a sequence of 0 is none that was asked with.
    fn send_late(
        &mut self,
        of: Of,
        (client, request): (LeaseServiceClient<Channel>, v1::RefreshRequest),
    ) {
        let late = Duration::from_millis(self.random.between(20, STRAYS_LATEST_MS));
        let answers = self.answers.clone();
        spawn(async move {
            sleep(late).await;
            call(of, client, request, 0, answers).await;
        });
    }

    /// Somebody dies, and starts again under its id.
    fn restart(&mut self) {
        let now = self.now();
        let index = self.random.between(0, self.models.len() as u64 - 1) as usize;
        let ahead = Duration::from_millis(self.random.between(0, CLOCKS_APART_MS));
        let door = self
            .random
            .between(0, self.models[index].doors.len() as u64 - 1) as usize;
        let model = &mut self.models[index];
        let dead = (index, model.incarnation);
        let stray = model
            .first
            .take()
            .map(|first| (model.doors[door].clone(), first));
        model.incarnation = model.incarnation.saturating_add(1);
        model.ahead = ahead;
        model.limiter = RateLimiter::new(model.clock(now), &self.policy);
        self.report.restarts += 1;
        if let Some(stray) = stray {
            self.send_late(dead, stray);
        }
    }

    /// Applies an answer, as the filter does.
    fn take(&mut self, answered: Answered) -> Result<()> {
        let Answered {
            of: (index, incarnation),
            sequence,
            sent_at,
            heard,
            answer,
        } = answered;
        let model = &mut self.models[index];
        let now = model.clock(Instant::ZERO.saturating_add(self.started.elapsed()));
        let lives = model.incarnation == incarnation;
        self.report.of_dead_runs += u64::from(heard && !lives);
        let Some(answer) = answer else {
            self.report.failures += 1;
            if lives {
                let seed = self.random.next();
                model.limiter.handle_failure(now, sequence, seed);
            }
            return Ok(());
        };
        self.report.answers += 1;
        let origin = answer.origin;
        let units = answer.outcome.into_iter().flatten();
        for unit in units.filter(|unit| lives && unit.unit == Unit::Requests) {
            let limiter = &mut model.limiter;
            let _ = limiter.handle_answer(now, &self.policy, sequence, origin, &unit.answer);
        }
        let of_shard =
            |((shard, _), _): &(&(Option<ShardId>, Epoch), &time::Instant)| *shard == origin.shard;
        for ((_, epoch), first_at) in self.terms.iter().filter(of_shard) {
            ensure!(
                *epoch <= origin.epoch || *first_at >= sent_at,
                "law 5: the master of term {} answered a call that was sent after the one of term {} had answered",
                origin.epoch.0,
                epoch.0
            );
        }
        let term = (origin.shard, origin.epoch);
        self.terms.entry(term).or_insert_with(time::Instant::now);
        Ok(())
    }

    /// Law 1, in what is used.
    fn within_capacity(&mut self) -> Result<()> {
        let now = self.now();
        let has = |model: &Model| u128::from(model.limiter.has(model.clock(now)).as_micros());
        let sum: u128 = self.models.iter().map(has).sum();
        let capacity = self.capacity.as_micros();
        ensure!(
            sum <= u128::from(capacity),
            "law 1: {sum} of {capacity} millionths are in use"
        );
        self.report.most = self.report.most.max(sum as f64 / 1e6);
        Ok(())
    }
}

// === impl Model ===

impl Model {
    /// The time that its clock shows when the world's shows `now`.
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

/// One call, as long as a client waits for it.
async fn call(
    of: Of,
    mut client: LeaseServiceClient<Channel>,
    request: v1::RefreshRequest,
    sequence: u64,
    answers: mpsc::UnboundedSender<Answered>,
) {
    let mut request = Request::new(request);
    request.set_timeout(Policy::default().call_timeout);
    let sent_at = time::Instant::now();
    let answer = client.refresh(request).await.ok();
    let answer = answer.and_then(|answer| Refreshed::try_from(answer.into_inner()).ok());
    let answer = answer.and_then(|refreshed| refreshed.scopes.into_iter().next()?.ok());
    let _ = answers.send(Answered {
        of,
        sequence,
        sent_at,
        heard: answer.is_some(),
        answer: answer.filter(|answer| answer.outcome.is_ok()),
    });
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anyhow::anyhow;
    use tollgate_tests::coordinator::Coordinator;

    use super::*;
    use crate::scene::{Scene, play, s};

    const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 200}\n";

    /// What clients say that ask `coordinators`, which know nothing of each other, for a while, and
    /// may use `capacity`.
    async fn said(scene: &Scene, coordinators: usize, capacity: f64) -> Result<Report> {
        let mut running = Vec::new();
        for index in 0..coordinators {
            let dir = scene.dir().join(index.to_string());
            fs::create_dir_all(&dir)?;
            running.push(Coordinator::start(&dir, LIMITS).await?);
        }
        let doors: Vec<_> = running.iter().map(Coordinator::grpc).collect();
        let models = Models::start(&doors, capacity, 1)?;
        sleep(s(3.0)).await;
        models.stop().await
    }

    /// Restarts come at random, and the requests of dead runs up to seconds after them.
    #[test]
    fn clients_start_again_and_requests_of_dead_runs_come_late() {
        play(
            "clients_start_again_and_requests_of_dead_runs_come_late",
            async |scene| {
                for _ in 0..10 {
                    let report = said(scene, 1, 200.0).await?;
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
        play("too_much_and_two_masters_are_seen", async |scene| {
            let report = said(scene, 1, 200.0).await?;
            ensure!(report.most > 190.0 && report.terms == 1, "{report:?}");
            let error = said(scene, 1, 150.0).await.unwrap_err().to_string();
            ensure!(error.starts_with("law 1"), "{error}");
            let error = said(scene, 2, 400.0).await.unwrap_err().to_string();
            ensure!(error.starts_with("law 5"), "{error}");
            Ok(())
        });
    }
}
