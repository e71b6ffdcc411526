//! Clients without an Envoy: the filter's own lease holder, and a clock that they share.
//!
//! What Envoys admit is known within bursts and moments. What these clients may use is known
//! exactly and at every instant, so that a millionth too much is seen.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn};
use tokio::time::{self, interval};
use tollgate_coordinator::grpc::LeaseServiceClient;
use tollgate_core::client::{Holder, Policy, Todo};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{Ask, ClientId, Epoch, Unit};
use tollgate_core::units::{Capacity, Instant, Tokens};
use tollgate_proto::request::{Refresh, ScopeAsks};
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
    holder: Holder,
    doors: Vec<LeaseServiceClient<Channel>>,
}

/// How a call ended.
struct Answered {
    model: usize,
    sequence: u64,
    sent_at: time::Instant,
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
                holder: Holder::new(Instant::ZERO, &policy),
                doors: doors.iter().map(door).collect::<Result<_>>()?,
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
        for index in 0..self.models.len() {
            let now = self.now();
            let Some(model) = self.models.get_mut(index) else {
                continue;
            };
            for _ in 0..ATTEMPTS {
                model.holder.count(now, 1);
                // Whether it passes is for others to test; here it says that somebody is there.
                let _ = model.holder.draw(now, &self.policy, Tokens::ONE, 1);
            }
            if let Todo::Refresh(ask) = model.holder.ask(now, &self.policy) {
                let door = self.random.between(0, model.doors.len() as u64 - 1) as usize;
                let (client, id) = (model.doors[door].clone(), model.id.clone());
                spawn(call(index, client, id, ask, self.answers.clone()));
            }
        }
    }

    /// Applies an answer, as the filter does.
    fn take(&mut self, answered: Answered) -> Result<()> {
        let now = self.now();
        let Answered {
            model,
            sequence,
            sent_at,
            answer,
        } = answered;
        let holder = &mut self.models[model].holder;
        let Some(answer) = answer else {
            self.report.failures += 1;
            holder.handle_failure(now, sequence, self.random.next());
            return Ok(());
        };
        self.report.answers += 1;
        let origin = answer.origin;
        let units = answer.outcome.into_iter().flatten();
        for unit in units.filter(|unit| unit.unit == Unit::Requests) {
            let _ = holder.handle_answer(now, &self.policy, sequence, origin, &unit.answer);
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
        let has = |model: &Model| u128::from(model.holder.has(now).as_micros());
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

// === free functions ===

/// One call, as long as a client waits for it.
async fn call(
    model: usize,
    mut client: LeaseServiceClient<Channel>,
    id: ClientId,
    ask: Ask,
    answers: mpsc::UnboundedSender<Answered>,
) {
    let sequence = ask.sequence;
    let refresh = Refresh {
        client: id,
        scopes: vec![ScopeAsks {
            scope: Arc::from(SCOPE),
            asks: vec![(Unit::Requests, ask)],
        }],
    };
    let mut request = Request::new(v1::RefreshRequest::from(&refresh));
    request.set_timeout(Policy::default().call_timeout);
    let sent_at = time::Instant::now();
    let answer = client.refresh(request).await.ok();
    let answer = answer.and_then(|answer| Refreshed::try_from(answer.into_inner()).ok());
    let answer = answer.and_then(|refreshed| refreshed.scopes.into_iter().next()?.ok());
    let _ = answers.send(Answered {
        model,
        sequence,
        sent_at,
        answer: answer.filter(|answer| answer.outcome.is_ok()),
    });
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::sleep;
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
