//! Laws 1 and 6 for a coordinator and its clients, over a network that loses, delays and reorders.

use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::BTreeMap;

use tollgate_core::client::{DrawResult, LeaseMessage, Mode, Policy, RateLimiter, ScopeState};
use tollgate_core::lease::{
    Answer, ClientId, ClientRun, Epoch, LeaseRequest, Origin, ResourceId, Run, Unit,
};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::{Capacity, Instant, Tokens};

use super::random::Random;
use super::{Verdict, ensure};

const START: Instant = Instant::from_nanos(5_000_000_000);
const BOUNDS: Bounds = Bounds {
    max_resources: 10,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
};

/// Some processes, their coordinator and the messages between them.
struct Fleet {
    random: Random,
    now: Instant,
    node: LeaseServer,
    epoch: Epoch,
    limit: Limit,
    resource: ResourceId,
    policy: Policy,
    processes: Vec<Process>,
    mail: BTreeMap<(Instant, u64), Mail>,
    sent: u64,
    /// The incarnation of the process that started last.
    runs: NonZeroU64,
    /// How many messages of a hundred are lost, and how many ticks of a hundred end in a restart of
    /// the coordinator, or of a process.
    faults: (u64, u64),
    /// Ticks of a hundred at which a process has another use for the slot of the scope.
    pressure: u64,
    /// Micro-tokens in all, less the bursts that processes start with.
    admitted: i128,
    /// The least that `admitted` has ever been ahead of what the capacity earned; below zero.
    least_ahead: i128,
}

struct Process {
    /// Changes when it starts again; the id does not.
    run: ClientRun,
    /// How far its clock is ahead of the world's. That of the next run may be behind, and its
    /// sequences, which are times, below those of requests that are still on their way.
    ahead: Duration,
    limiter: RateLimiter,
    /// Attempts per second.
    demand: u64,
    /// Whether it ever had a lease, and so its first burst.
    leased: bool,
    /// Tokens that were in its bucket when it gave the slot of the scope away.
    forgone: Tokens,
}

#[derive(Clone, Debug)]
enum Mail {
    Refresh(usize, Run, LeaseRequest),
    Release(usize, Run, u64),
    Answer(usize, Run, u64, Epoch, Answer),
    Failure(usize, Run, u64),
}

// === impl Fleet ===

impl Fleet {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut limit = Limit::new(Capacity::from_whole(random.spread(10_000) + 20));
        limit.burst = Tokens::from_whole(random.spread(limit.burst.whole()) + 1);
        limit.lease = Duration::from_millis(random.below(3000) + 1001);
        limit.learning = limit.lease;
        limit.headroom = [Part::NONE, Part::HALF, Part::ALL][seed as usize % 3];
        // Without a lease nothing passes, so whatever passes was lent.
        let policy = Policy {
            no_lease: Mode::Pessimistic,
            call_timeout: Duration::from_millis(random.spread(4000) + 1),
            ..Policy::default()
        };
        let processes = (0..=random.below(6))
            .map(|i| Process::new(i, NonZeroU64::MIN, START, Duration::ZERO, &policy))
            .collect();
        Self {
            random,
            now: START,
            node: LeaseServer::new(START, Epoch(1), BOUNDS, Start::Fresh),
            epoch: Epoch(1),
            limit,
            resource: ResourceId::new("tenant/acme", Unit::Requests).expect("a good id"),
            policy,
            processes,
            mail: BTreeMap::new(),
            sent: 0,
            runs: NonZeroU64::MIN,
            faults: [(0, 0), (15, 2), (40, 5)][(seed / 3) as usize % 3],
            pressure: [0, 5, 30][(seed / 9) as usize % 3],
            admitted: 0,
            least_ahead: 0,
        }
    }

    /// Puts `mail` on its way; some of it never arrives, some of it twice.
    fn post(&mut self, mail: Mail) {
        let (lost, _) = self.faults;
        if self.random.chance(lost) {
            return;
        }
        if self.random.chance(lost) {
            self.post(mail.clone());
        }
        let most = [5_000_000, 5_000_000, 2_000_000_000][self.random.below(3) as usize];
        let delay = Duration::from_nanos(self.random.below(most));
        self.deliver_after(delay, mail);
    }

    fn deliver_after(&mut self, delay: Duration, mail: Mail) {
        self.sent += 1;
        self.mail
            .insert((self.now.saturating_add(delay), self.sent), mail);
    }

    /// Lets up to 300 ms pass, with everything that is due in it. Time never stands still: a scope that
    /// meets another slot within one nanosecond would repeat the sequence of its last request.
    fn step(&mut self) -> Verdict {
        let passes = Duration::from_nanos(self.random.spread(300_000_000) + 1);
        let until = self.now.saturating_add(passes);
        while let Some(entry) = self.mail.first_entry().filter(|e| e.key().0 <= until) {
            let ((at, _), mail) = entry.remove_entry();
            self.now = at;
            self.node.handle_timeout(at);
            self.deliver(mail);
            self.check()?;
        }
        self.now = until;
        self.node.handle_timeout(until);
        for i in 0..self.processes.len() {
            self.work(i);
            if self.pressure > 0 && self.random.chance(self.pressure) {
                self.give_slot_away(i);
            }
        }
        if self.random.chance(self.faults.1) {
            let i = self.random.below(self.processes.len() as u64);
            self.restart(i as usize);
        }
        if self.random.chance(self.faults.1) {
            self.epoch = Epoch(self.epoch.0 + 1);
            self.node = LeaseServer::new(self.now, self.epoch, BOUNDS, Start::Learning);
        }
        self.check()
    }

    /// A process dies, and starts again under its id, by another clock. What it sent stays on its way.
    fn restart(&mut self, i: usize) {
        self.runs = self.runs.saturating_add(1);
        let ahead = Duration::from_nanos(self.random.below(10_000_000_000));
        let demand = self.processes[i].demand;
        let next = Process::new(i as u64, self.runs, self.now, ahead, &self.policy);
        self.processes[i] = Process { demand, ..next };
    }

    /// A process gives the slot of the scope to another one, if it holds nothing, and meets it anew.
    fn give_slot_away(&mut self, i: usize) {
        let process = &mut self.processes[i];
        let now = process.clock(self.now);
        let mut state = ScopeState::new(now, &self.policy);
        core::mem::swap(&mut state.requests, &mut process.limiter);
        if state.worth(now).is_none() {
            process.limiter = state.requests;
            return;
        }
        if process.leased {
            process.leased = false;
            process.forgone = state.requests.level(now).left;
        }
        let run = process.run.run;
        for (_, sequence) in state.releases(now) {
            self.post(Mail::Release(i, run, sequence));
        }
    }

    /// One process's tick: requests come in, tokens are drawn, what is due is asked.
    fn work(&mut self, i: usize) {
        let policy = &self.policy;
        let now = self.processes[i].clock(self.now);
        let capacity = self.limit.capacity.as_micros() / 1_000_000;
        let process = &mut self.processes[i];
        if self.random.chance(10) {
            process.demand = self.random.below(3) * self.random.spread(capacity + 10);
        }
        let attempts = process.demand * self.random.below(200) / 1000;
        process.limiter.count(now, attempts);
        let mut left = attempts;
        while left > 0
            && let DrawResult::Tokens(tokens) = process.limiter.draw(now, policy, Tokens::ONE, 2)
        {
            self.admitted += i128::from(tokens.as_micros());
            left = left.saturating_sub(tokens.whole());
        }
        let run = process.run.run;
        match process.limiter.ask(now, policy) {
            LeaseMessage::Nothing => {}
            LeaseMessage::Refresh(request) => {
                let late = Mail::Failure(i, run, request.sequence);
                self.post(Mail::Refresh(i, run, request));
                self.deliver_after(self.policy.call_timeout, late);
            }
            LeaseMessage::Release { sequence } => self.post(Mail::Release(i, run, sequence)),
        }
    }

    fn deliver(&mut self, mail: Mail) {
        let (now, policy) = (self.now, &self.policy);
        match mail {
            Mail::Refresh(i, run, request) => {
                let id = self.processes[i].run.id.clone();
                let answer = self.node.handle_refresh(
                    now,
                    &ClientRun { id, run },
                    &self.resource,
                    &request,
                    &Terms::of(&self.limit),
                );
                if let Ok(answer) = answer {
                    self.post(Mail::Answer(i, run, request.sequence, self.epoch, answer));
                }
            }
            Mail::Release(i, run, sequence) => {
                let id = self.processes[i].run.id.clone();
                let client = ClientRun { id, run };
                self.node.handle_release(&client, &self.resource, sequence);
            }
            Mail::Answer(i, run, sequence, epoch, answer) => {
                let process = &mut self.processes[i];
                if process.run.run != run {
                    return;
                }
                let now = process.clock(now);
                let limiter = &mut process.limiter;
                limiter.handle_answer(now, policy, sequence, Origin::alone(epoch), &answer);
                if !process.leased && limiter.lease_expiry().is_some() {
                    process.leased = true;
                    let first = limiter.flow(now, policy).1;
                    let first = first.saturating_sub(process.forgone);
                    self.admitted -= i128::from(first.as_micros());
                }
            }
            Mail::Failure(i, run, sequence) => {
                let process = &mut self.processes[i];
                if process.run.run == run {
                    let now = process.clock(now);
                    process.limiter.handle_failure(now, sequence, sequence);
                }
            }
        }
    }

    fn check(&mut self) -> Verdict {
        self.check_admitted()?;
        self.check_books()
    }

    /// Law 6 for the fleet: in any window no more than all bursts, and what the capacity earns. The
    /// burst of a process's first lease is not earned.
    fn check_admitted(&mut self) -> Verdict {
        let capacity = i128::from(self.limit.capacity.as_micros());
        let nanos = i128::from(self.now.as_nanos() - START.as_nanos());
        let ahead = self.admitted - capacity * nanos / 1_000_000_000;
        ensure!(
            ahead <= 0,
            "{ahead} more admitted than the first bursts and what was earned since the start"
        );
        // A burst in proportion to the lease, but of one token at least, and a rounding each.
        let tokens = self.limit.burst.as_micros() + 1_000_001 * self.processes.len() as u64;
        let excess = ahead - self.least_ahead - i128::from(tokens);
        ensure!(
            excess <= 0,
            "{excess} too many in a window until {:?}",
            self.now
        );
        self.least_ahead = self.least_ahead.min(ahead);
        Ok(())
    }

    /// Law 1: in use, and in the lease table.
    fn check_books(&self) -> Verdict {
        let capacity = u128::from(self.limit.capacity.as_micros());
        let has = |process: &Process| u128::from(process.has(self.now).as_micros());
        let used: u128 = self.processes.iter().map(has).sum();
        ensure!(
            used <= capacity,
            "{used} of {capacity} in use at {:?}",
            self.now
        );
        let Some(resource) = self.node.resource(&self.resource) else {
            return Ok(());
        };
        let sum: u128 = resource
            .clients()
            .map(|c| u128::from(c.has.as_micros()))
            .sum();
        ensure!(
            sum == resource.sum_has(),
            "{sum} lent, sum_has {}",
            resource.sum_has()
        );
        ensure!(
            sum <= capacity,
            "{sum} of {capacity} lent at {:?}",
            self.now
        );
        if self.now >= resource.learning_until() {
            self.check_each()?;
        }
        Ok(())
    }

    /// No process has more than the lease table says, once it is complete.
    fn check_each(&self) -> Verdict {
        let known: BTreeMap<_, _> = self
            .node
            .resource(&self.resource)
            .into_iter()
            .flat_map(|resource| resource.clients().map(|c| ((c.id, c.run), c.has)))
            .collect();
        for process in &self.processes {
            let has = process.has(self.now);
            let ClientRun { id, run } = &process.run;
            let booked = known.get(&(id, *run)).copied().unwrap_or_default();
            ensure!(
                has <= booked,
                "{:?} has {has:?}, booked {booked:?}",
                process.run
            );
        }
        Ok(())
    }
}

// === impl Process ===

impl Process {
    fn new(i: u64, run: NonZeroU64, now: Instant, ahead: Duration, policy: &Policy) -> Self {
        Self {
            run: ClientRun {
                id: ClientId::new(&format!("node-{i}/1")).expect("a good id"),
                run: Run::Incarnation(run),
            },
            ahead,
            limiter: RateLimiter::new(now.saturating_add(ahead), policy),
            demand: 0,
            leased: false,
            forgone: Tokens::ZERO,
        }
    }

    /// The time that its clock shows when the world's shows `now`.
    fn clock(&self, now: Instant) -> Instant {
        now.saturating_add(self.ahead)
    }

    fn has(&self, now: Instant) -> Capacity {
        self.limiter.has(self.clock(now))
    }
}

// === laws ===

/// With losses, delays and restarts the fleet never holds more than the capacity and never admits
/// more than its first bursts and what it has earned.
pub(crate) fn never_uses_more_than_the_capacity(seed: u64) -> Verdict {
    let mut fleet = Fleet::new(seed);
    for _ in 0..300 {
        fleet.step()?;
    }
    Ok(())
}
