//! Laws 1, 3, 4, 5, 6 and 7 for a coordinator and its clients over a network that loses and delays.

use core::time::Duration;
use std::collections::BTreeMap;

use tollgate_core::client::{Draw, Holder, Mode, Policy, State, Todo};
use tollgate_core::lease::{Answer, Ask, ClientId, Epoch, LeaseTerms, ResourceId, Unit};
use tollgate_core::limit::{Headroom, Limit};
use tollgate_core::node::{Bounds, Node, Start};
use tollgate_core::units::{Capacity, Instant, Rate, Tokens};

use super::fair_share::{Client, check};
use super::random::Random;
use super::{Verdict, ensure};

const START: Instant = Instant::from_nanos(5_000_000_000);
const BOUNDS: Bounds = Bounds {
    max_resources: 10,
    max_clients_per_resource: 100,
};

/// Some processes, their coordinator and the messages between them.
struct Fleet {
    random: Random,
    now: Instant,
    node: Node,
    epoch: Epoch,
    limit: Limit,
    resource: ResourceId,
    policy: Policy,
    processes: Vec<Process>,
    mail: BTreeMap<(Instant, u64), Mail>,
    sent: u64,
    admitted: u128,
}

struct Process {
    id: ClientId,
    holder: Holder,
    /// Attempts per second.
    demand: u64,
}

#[derive(Debug)]
enum Mail {
    Refresh(usize, Ask),
    Release(usize, u64),
    Answer(usize, u64, Epoch, Answer),
    Failure(usize, u64),
}

// === impl Fleet ===

impl Fleet {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut limit = Limit::new(Capacity::from_micros(random.spread(1 << 40) + 1));
        limit.lease = Duration::from_millis(random.below(3000) + 1001);
        limit.learning = limit.lease;
        limit.headroom = [Headroom::NONE, Headroom::HALF, Headroom::ALL][seed as usize % 3];
        // Without a lease nothing passes, so whatever passes was lent.
        let policy = Policy {
            mode: Mode::Pessimistic,
            ..Policy::default()
        };
        let processes = (0..=random.below(6))
            .map(|i| Process {
                id: ClientId::new(&format!("node-{i}/1")).expect("a good id"),
                holder: Holder::new(START, &policy),
                demand: 0,
            })
            .collect();
        Self {
            random,
            now: START,
            node: Node::new(START, Epoch(1), BOUNDS, Start::Fresh),
            epoch: Epoch(1),
            limit,
            resource: ResourceId::new("tenant/acme", Unit::Requests).expect("a good id"),
            policy,
            processes,
            mail: BTreeMap::new(),
            sent: 0,
            admitted: 0,
        }
    }

    /// Puts `mail` on its way; some of it never arrives.
    fn post(&mut self, mail: Mail) {
        if self.random.chance(15) {
            return;
        }
        let delay = Duration::from_nanos(self.random.spread(2_000_000_000));
        self.deliver_after(delay, mail);
    }

    fn deliver_after(&mut self, delay: Duration, mail: Mail) {
        self.sent += 1;
        self.mail
            .insert((self.now.saturating_add(delay), self.sent), mail);
    }

    /// Lets up to 300 ms pass, with everything that is due in it.
    fn step(&mut self) -> Verdict {
        let until = self
            .now
            .saturating_add(Duration::from_nanos(self.random.spread(300_000_000)));
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
        }
        if self.random.chance(2) {
            self.epoch = Epoch(self.epoch.0 + 1);
            self.node = Node::new(self.now, self.epoch, BOUNDS, Start::Learning);
        }
        self.check()
    }

    /// One process's tick: requests come in, tokens are drawn, what is due is asked.
    fn work(&mut self, i: usize) {
        let (now, policy) = (self.now, &self.policy);
        let capacity = self.limit.capacity.as_micros() / 1_000_000;
        let process = &mut self.processes[i];
        if self.random.chance(10) {
            process.demand = self.random.below(3) * self.random.spread(capacity + 10);
        }
        let attempts = process.demand * self.random.below(200) / 1000;
        process.holder.count(now, attempts);
        for _ in 0..attempts.min(20) {
            if let Draw::Slab(tokens) = process.holder.draw(now, policy, Tokens::ONE, 2) {
                self.admitted += u128::from(tokens.as_micros());
            }
        }
        match process.holder.ask(now, policy) {
            Todo::Nothing => {}
            Todo::Refresh(ask) => {
                self.post(Mail::Refresh(i, ask));
                let late = Mail::Failure(i, ask.sequence);
                self.deliver_after(self.policy.call_timeout, late);
            }
            Todo::Release { sequence } => self.post(Mail::Release(i, sequence)),
        }
    }

    fn deliver(&mut self, mail: Mail) {
        let (now, policy) = (self.now, &self.policy);
        match mail {
            Mail::Refresh(i, ask) => {
                let id = &self.processes[i].id;
                let answer = self
                    .node
                    .handle_refresh(now, id, &self.resource, ask, &self.limit);
                if let Ok(answer) = answer {
                    self.post(Mail::Answer(i, ask.sequence, self.epoch, answer));
                }
            }
            Mail::Release(i, sequence) => {
                let id = &self.processes[i].id;
                self.node.handle_release(id, &self.resource, sequence);
            }
            Mail::Answer(i, sequence, epoch, answer) => {
                let holder = &mut self.processes[i].holder;
                holder.handle_answer(now, policy, sequence, epoch, &answer);
            }
            Mail::Failure(i, sequence) => {
                let holder = &mut self.processes[i].holder;
                holder.handle_failure(now, sequence, sequence);
            }
        }
    }

    /// Law 1, in the books and in use, and law 6 for the fleet as a whole.
    fn check(&self) -> Verdict {
        let capacity = u128::from(self.limit.capacity.as_micros());
        let has = |process: &Process| u128::from(process.holder.has(self.now).as_micros());
        let used: u128 = self.processes.iter().map(has).sum();
        ensure!(
            used <= capacity,
            "{used} of {capacity} in use at {:?}",
            self.now
        );
        let nanos = u128::from(self.now.as_nanos() - START.as_nanos());
        let (most, got) = (capacity * nanos / 1_000_000_000, self.admitted);
        ensure!(got <= most, "{got} admitted of {most} at {:?}", self.now);
        let Some(books) = self.node.resource(&self.resource) else {
            return Ok(());
        };
        let sum: u128 = books.clients().map(|c| u128::from(c.has.as_micros())).sum();
        ensure!(
            sum == books.sum_has(),
            "{sum} lent, sum_has {}",
            books.sum_has()
        );
        ensure!(
            sum <= capacity,
            "{sum} of {capacity} lent at {:?}",
            self.now
        );
        if self.now >= books.learning_until() {
            self.check_each()?;
        }
        Ok(())
    }

    /// No process has more than the books say, once they are complete.
    fn check_each(&self) -> Verdict {
        let known: BTreeMap<_, _> = self
            .node
            .resource(&self.resource)
            .into_iter()
            .flat_map(|books| books.clients().map(|client| (client.id, client.has)))
            .collect();
        for process in &self.processes {
            let has = process.holder.has(self.now);
            let booked = known.get(&process.id).copied().unwrap_or_default();
            ensure!(
                has <= booked,
                "{:?} has {has:?}, booked {booked:?}",
                process.id
            );
        }
        Ok(())
    }
}

// === laws ===

/// Whatever is lost, late or restarted, the fleet never holds more than the capacity and never
/// admits more than it has earned.
pub(crate) fn never_uses_more_than_the_capacity(seed: u64) -> Verdict {
    let mut fleet = Fleet::new(seed);
    for _ in 0..300 {
        fleet.step()?;
    }
    Ok(())
}

/// With stable demand everybody has its max-min share, and nothing is left over.
///
/// Four refreshes of every client suffice whatever their order, when what is wanted has changed: one tells
/// the books, one gives back, one acknowledges (until then the books must assume that the answer got lost),
/// one receives.
pub(crate) fn settles_at_the_max_min_shares(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let mut limit = Limit::new(Capacity::from_micros(random.spread(1 << 50) + 1));
    limit.headroom = Headroom::NONE;
    let resource = ResourceId::new("tenant/acme", Unit::Requests).expect("a good id");
    let mut node = Node::new(START, Epoch(1), BOUNDS, Start::Fresh);
    let mut has = vec![Capacity::ZERO; random.below(40) as usize + 1];
    let mut order: Vec<_> = (0..has.len()).collect();
    let mut ask_at = START;
    for change in 0..4 {
        let most = random.spread(3 * limit.capacity.as_micros()) + 1;
        let clients: Vec<Client> = has.iter().map(|_| (random.spread(most), 1)).collect();
        for _ in 0..4 {
            random.shuffle(&mut order);
            ask_at = ask_at.saturating_add(limit.min_refresh);
            for i in &order {
                let id = ClientId::new(&format!("node-{i}/1")).expect("a good id");
                let ask = Ask {
                    sequence: ask_at.as_nanos(),
                    has: has[*i],
                    wants: Capacity::from_micros(clients[*i].0),
                };
                let answer = node.handle_refresh(ask_at, &id, &resource, ask, &limit);
                let answer = answer.map_err(|error| error.to_string())?;
                has[*i] = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
            }
        }
        let gets: Vec<_> = has.iter().map(|has| has.as_micros()).collect();
        check(&clients, limit.capacity.as_micros(), &gets)
            .map_err(|how| format!("after change {change}: {how}"))?;
    }
    Ok(())
}

/// A lease counts until its expiry; from then on the mode decides, and it is neither everything nor
/// (unless the operator chose that) nothing.
pub(crate) fn falls_back_to_the_safe_capacity(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let policy = Policy {
        mode: [Mode::Safe, Mode::Optimistic, Mode::Pessimistic][seed as usize % 3],
        safe: Capacity::from_whole(random.spread(1000) + 1),
        ..Policy::default()
    };
    let sent_safe = random
        .chance(50)
        .then(|| Capacity::from_whole(random.spread(1000) + 1));
    let lends = [
        Capacity::UNLIMITED,
        Capacity::from_whole(random.spread(1 << 30)),
    ];
    let (mut holder, answer) = leased(&policy, lends[random.below(2) as usize], sent_safe)?;
    let expiry = holder.lease_expiry().ok_or("no lease")?;
    let lent = answer.lease.map(|lease| lease.capacity.as_rate());

    let before = Instant::from_nanos(expiry.as_nanos() - 1);
    ensure!(
        Some(holder.flow(before, &policy).0) == lent,
        "not lent until expiry"
    );
    let at = expiry.saturating_add(Duration::from_nanos(random.spread(1 << 40)));
    let rate = holder.flow(at, &policy).0;
    let safe = sent_safe.unwrap_or(policy.safe).as_rate();
    let right = match policy.mode {
        Mode::Safe => rate == safe,
        Mode::Optimistic => rate >= safe && !rate.is_unlimited(),
        Mode::Pessimistic => rate == Rate::ZERO,
    };
    ensure!(
        right,
        "{rate:?} passes in mode {:?}, safe {safe:?}",
        policy.mode
    );
    ensure!(holder.state(at) == State::NoLease, "{:?}", holder.state(at));

    // A second on, whatever was spent before: alive, and within the safe capacity.
    let mut passed = 0_u128;
    for at in [at, at.saturating_add(Duration::from_secs(2))] {
        passed = 0;
        for _ in 0..3000 {
            if let Draw::Slab(tokens) = holder.draw(at, &policy, Tokens::ONE, 1) {
                passed += u128::from(tokens.as_micros());
            }
        }
    }
    let rate = u128::from(holder.flow(at, &policy).0.as_micros());
    ensure!(passed <= 2 * rate, "{passed} passed in 2 s at {rate}");
    ensure!((passed > 0) == (rate > 0), "{passed} passed at {rate}");
    Ok(())
}

/// What a master of an earlier term answers is not applied.
pub(crate) fn ignores_an_earlier_master(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let policy = Policy::default();
    let (mut holder, answer) = leased(&policy, Capacity::from_whole(100), None)?;
    let now = holder.due().ok_or("nothing is due")?;
    holder.count(now, 1000);
    let Todo::Refresh(ask) = holder.ask(now, &policy) else {
        return Err("nothing was asked".into());
    };
    let stolen = Answer {
        lease: answer.lease.map(|lease| LeaseTerms {
            capacity: Capacity::from_whole(random.spread(1 << 30)),
            ..lease
        }),
        ..answer
    };
    let before = holder.flow(now, &policy);
    let earlier = Epoch(random.below(TERM.0));
    let applied = holder.handle_answer(now, &policy, ask.sequence, earlier, &stolen);
    ensure!(!applied, "applied an answer of {earlier:?} after {TERM:?}");
    let after = holder.flow(now, &policy);
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

/// The term whose master gave the lease of [`leased`].
const TERM: Epoch = Epoch(10);

/// A holder with a lease of `capacity` for ten seconds, and the answer that gave it.
fn leased(
    policy: &Policy,
    capacity: Capacity,
    safe: Option<Capacity>,
) -> Result<(Holder, Answer), String> {
    let mut holder = Holder::new(START, policy);
    holder.count(START, 100);
    holder.draw(START, policy, Tokens::ONE, 1);
    let Todo::Refresh(ask) = holder.ask(START, policy) else {
        return Err("the first attempt asked nothing".into());
    };
    let answer = Answer {
        lease: Some(LeaseTerms {
            capacity,
            burst: Tokens::from_whole(100),
            duration: Duration::from_secs(10),
        }),
        refresh_interval: Duration::from_secs(1),
        safe,
        capacity,
    };
    let applied = holder.handle_answer(START, policy, ask.sequence, TERM, &answer);
    ensure!(applied, "the first answer was dropped");
    Ok((holder, answer))
}
