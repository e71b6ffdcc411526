//! Law 4 while one client crashes and starts again all the time: what its dead runs had counts until it
//! ends, but they take nothing of the others' shares.

use core::num::NonZeroU64;
use core::time::Duration;

use tollgate_core::lease::{ClientId, ClientRun, Demand, Epoch, Origin, ResourceId, Run, Unit};
use tollgate_core::lease_client::LeaseClient;
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::{Capacity, Instant};

use super::random::Random;
use super::{Verdict, ensure};

const START: Instant = Instant::from_nanos(5_000_000_000);
const BOUNDS: Bounds = Bounds {
    max_resources: 1000,
    max_clients_per_resource: 1000,
    max_leases: 1_000_000,
    max_durable: 100_000,
};
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which clients crash.
const LASTS: Duration = Duration::from_secs(60);

/// A process that wants all that there is.
struct Process {
    run: ClientRun,
    lease: LeaseClient,
    sequence: u64,
    /// Capacity that it had, in micro-units times nanoseconds.
    had: u128,
}

struct Fleet {
    random: Random,
    now: Instant,
    node: LeaseServer,
    limit: Limit,
    resource: ResourceId,
    /// The last one crashes.
    processes: Vec<Process>,
    /// Time between two crashes.
    every: Duration,
    crash_at: Instant,
    /// Whether clients hear of changed shares.
    nudges: bool,
    /// Whether a process has the id of the one before, and whether all have the same node.
    names: (bool, bool),
    runs: u64,
    /// Capacity that dead runs had, in micro-units times nanoseconds.
    gone: u128,
}

// === impl Fleet ===

impl Fleet {
    fn new(seed: u64, every: Duration) -> Self {
        let mut random = Random::new(seed);
        let mut limit = Limit::new(Capacity::from_whole(random.spread(10_000) + 20));
        limit.headroom = [Part::NONE, Part::HALF][random.below(2) as usize];
        let mut fleet = Self {
            now: START,
            node: LeaseServer::new(START, Epoch(1), BOUNDS, Start::Fresh),
            limit,
            resource: ResourceId::new("tenant/acme", Unit::Requests).expect("a good id"),
            processes: Vec::new(),
            every,
            crash_at: Instant::from_nanos(u64::MAX),
            nudges: random.chance(50),
            names: (random.chance(30), random.chance(30)),
            runs: 0,
            gone: 0,
            random,
        };
        for i in 0..=fleet.random.below(4) {
            let process = fleet.start(&format!("envoy-{i}"));
            fleet.processes.push(process);
        }
        fleet
    }

    /// A process that starts at a node.
    fn start(&mut self, node: &str) -> Process {
        self.runs += 1;
        let last = if self.names.0 { 0 } else { self.runs };
        let id = if self.names.1 {
            format!("envoy/{last:x}{node}")
        } else {
            format!("{node}/{last:x}")
        };
        Process {
            run: ClientRun {
                id: ClientId::new(&id).expect("a good id"),
                run: Run::Incarnation(NonZeroU64::MIN.saturating_add(self.runs)),
            },
            lease: LeaseClient::new(Some(self.now)),
            sequence: 0,
            had: 0,
        }
    }

    fn run(&mut self, time: Duration) -> Verdict {
        let end = self.now.saturating_add(time);
        while self.now < end {
            let due = self.processes.iter().filter_map(|p| p.lease.due()).min();
            let next = due.unwrap_or(end).min(self.crash_at).min(end);
            self.pass(next.max(self.now));
            if self.now >= self.crash_at {
                self.crash();
            }
            self.refresh()?;
        }
        Ok(())
    }

    /// Counts what all have until `next`.
    fn pass(&mut self, next: Instant) {
        let nanos = next.saturating_since(self.now).as_nanos();
        for process in &mut self.processes {
            let lease = process.lease.valid_lease(self.now);
            let has = lease.map_or(0, |lease| u128::from(lease.capacity.as_micros()));
            process.had += has * nanos;
        }
        let resource = self.node.resource(&self.resource);
        for client in resource.into_iter().flat_map(|resource| resource.clients()) {
            let mut runs = self.processes.iter().map(|p| (&p.run.id, p.run.run));
            if runs.all(|run| run != (client.id, client.run)) {
                self.gone += u128::from(client.has.as_micros()) * nanos;
            }
        }
        self.now = next;
        self.node.handle_timeout(next);
    }

    /// The last process dies, and starts again at its node.
    fn crash(&mut self) {
        self.crash_at = self.now.saturating_add(self.every);
        let process = self.start("crashing");
        if let Some(last) = self.processes.last_mut() {
            *last = Process {
                had: last.had,
                ..process
            };
        }
    }

    /// All that are due ask.
    fn refresh(&mut self) -> Verdict {
        let now = self.now;
        for i in 0..self.processes.len() {
            let process = &mut self.processes[i];
            if !process.lease.is_due(now, Duration::ZERO) {
                continue;
            }
            process.sequence += 1;
            let demand = Demand::of(self.limit.capacity);
            let sequence = process.sequence;
            let request = process.lease.request(now, sequence, CALL_TIMEOUT, demand);
            let terms = Terms::of(&self.limit);
            let node = &mut self.node;
            let answer = node.handle_refresh(now, &process.run, &self.resource, &request, &terms);
            let mut answer = answer.map_err(|error| error.to_string())?;
            // A tick, and the way.
            answer.refresh_interval += Duration::from_millis(self.random.below(50));
            let origin = Origin::alone(Epoch(1));
            let applied = process.lease.handle_answer(now, sequence, origin, &answer);
            ensure!(applied == Ok(true), "{applied:?}");
        }
        while let Some(nudge) = self.node.poll_nudge() {
            let named = self.processes.iter_mut().find(|p| p.run.id == nudge.client);
            if let Some(process) = named.filter(|_| self.nudges) {
                process.lease.make_due(now);
            }
        }
        Ok(())
    }

    /// Parts that the honest clients and the last one had on average, of the shares that they had if nobody
    /// crashed.
    fn check(&self) -> Verdict {
        let capacity = u128::from(self.limit.capacity.as_micros());
        let whole = capacity * LASTS.as_nanos();
        let share = whole / self.processes.len() as u128;
        let (every, nudges, names) = (self.every, self.nudges, self.names);
        let honest = self.processes.len() - 1;
        for process in &self.processes[..honest] {
            let part = process.had * 1000 / share;
            ensure!(
                part >= 900,
                "an honest one of {honest} had {part} thousandths of its share, a crash each \
                 {every:?}, nudges: {nudges}, names: {names:?}"
            );
        }
        let living: u128 = self.processes.iter().map(|process| process.had).sum();
        let (left, gone) = (whole - self.gone, self.gone * 1000 / whole);
        let part = living * 1000 / left;
        ensure!(
            part >= 900,
            "the living had {part} thousandths of what the dead left, who had {gone}; a crash each \
             {every:?}, {honest} honest, nudges: {nudges}, names: {names:?}"
        );
        Ok(())
    }
}

// === laws ===

/// Honest clients that have been there for a while have nine tenths of their shares while another one
/// crashes each 0.3 s, each 2 s or at any other interval shorter than a lease, and together with that one
/// they use nine tenths of what its dead runs leave.
pub(crate) fn a_client_that_crashes_takes_nobodys_share(seed: u64) -> Verdict {
    let any = Random::new(seed).below(8000) + 200;
    let every = Duration::from_millis([300, 2000, any][seed as usize % 3]);
    let mut fleet = Fleet::new(seed, every);
    fleet.run(Duration::from_secs(15))?;
    for process in &mut fleet.processes {
        process.had = 0;
    }
    fleet.gone = 0;
    let process = fleet.start("crashing");
    fleet.processes.push(process);
    fleet.crash_at = fleet.now.saturating_add(every);
    fleet.run(LASTS)?;
    fleet.check()
}
