use super::*;
use crate::client::Mode;
use crate::lease::{ClientId, ClientRun, Epoch, LeaseRequest, LeaseTerms, ResourceId, Unit};
use crate::lease_server::{Bounds, LeaseServer, Start, Terms};
use crate::limit::Limit;
use crate::units::Tokens;

/// A gauge on a clock that the test moves, and how many each of its workers has in flight.
struct Process {
    limiter: ConcurrencyLimiter,
    policy: Policy,
    now: Instant,
}

impl Process {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        Self {
            limiter: ConcurrencyLimiter::new(now),
            policy: Policy::default(),
            now,
        }
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.saturating_add(Duration::from_millis(ms));
        self
    }

    fn draw(&mut self, worker: u64, in_use: u32) -> PermitResult {
        let usage = usage(worker, in_use);
        self.limiter
            .draw(self.now, &self.policy, &usage, 2, AwaitAction::Hold)
    }

    fn say(&mut self, worker: u64, in_use: u32, admitted: u32, refused: u32) -> bool {
        let usage = WorkerUsage {
            admitted,
            refused,
            ..usage(worker, in_use)
        };
        self.limiter.report(self.now, &usage)
    }

    fn message(&mut self) -> LeaseMessage {
        self.limiter
            .ask_early(self.now, &self.policy, Duration::ZERO)
    }

    fn ask(&mut self) -> LeaseRequest {
        match self.message() {
            LeaseMessage::Refresh(request) => request,
            message => panic!("{message:?}"),
        }
    }

    fn answer(&mut self, sequence: u64, gets: Capacity) -> bool {
        let answer = Answer {
            lease: Some(LeaseTerms {
                capacity: gets,
                burst: Tokens::ONE,
                duration: Duration::from_secs(10),
                fingerprint: 1,
            }),
            refresh_interval: Duration::from_secs(1),
            safe: Some(Capacity::from_whole(3)),
            capacity: Capacity::from_whole(1000),
            period: None,
            burst: None,
            draw: None,
        };
        self.limiter
            .handle_answer(self.now, sequence, Origin::alone(Epoch(1)), &answer)
    }

    /// Has a lease of `gets`, and nothing in flight.
    fn leased(gets: u64) -> Self {
        let mut process = Self::new();
        process.draw(1, 0);
        let request = process.ask();
        assert!(process.answer(request.sequence, Capacity::from_whole(gets)));
        process.say(1, 0, 0, 0);
        process
    }

    /// PermitResult that draws of one worker give in all, one by one.
    fn drawn(&mut self, worker: u64) -> u32 {
        let mut held = 0;
        while let PermitResult::Held { held: now, .. } = self.draw(worker, held) {
            held = now;
        }
        held
    }
}

fn usage(worker: u64, in_use: u32) -> WorkerUsage {
    WorkerUsage {
        worker,
        in_use,
        peak: in_use,
        ..WorkerUsage::default()
    }
}

#[test]
fn the_first_request_asks_at_once_and_is_held_for_the_answer() {
    let mut p = Process::new();
    let until = p.now.saturating_add(p.policy.first_lease_wait);
    assert_eq!(p.draw(1, 0), PermitResult::Pending { until });
    let request = p.ask();
    assert_eq!(
        (request.has, request.demand.wants()),
        (Capacity::ZERO, Capacity::from_whole(1))
    );
    assert!(p.answer(request.sequence, Capacity::from_whole(2)));
    assert_eq!(p.limiter.state(p.now), LeaseState::Leased);
    assert_eq!(p.limiter.capacity(), Some(Capacity::from_whole(1000)));
    assert_eq!(p.draw(1, 0), PermitResult::Held { held: 1, spare: 0 });
}

#[test]
fn whom_nobody_can_hold_has_the_safe_capacity_while_cold() {
    let mut p = Process::new();
    let policy = p.policy.clone();
    let mut in_flight = 0;
    while let PermitResult::Held { held, spare } =
        p.limiter
            .draw(p.now, &policy, &usage(1, in_flight), 1, AwaitAction::Refuse)
    {
        assert!(held <= in_flight + spare.max(1), "{held} of {in_flight}");
        in_flight = held;
    }
    assert_eq!(in_flight, 10);
    p.after(250);
    // No answer, and it is the same.
    assert_eq!(p.draw(1, 10), PermitResult::Denied);
    assert_eq!(p.draw(1, 9), PermitResult::Held { held: 10, spare: 1 });
}

#[test]
fn workers_share_the_lease_to_the_last_permit() {
    for gets in [0, 1, 3, 7, 8, 64, 1000] {
        let mut p = Process::leased(gets);
        let first = p.draw(1, 0);
        let second = p.drawn(2);
        let held = match first {
            PermitResult::Held { held, .. } => held,
            _ => 0,
        };
        assert_eq!(u64::from(held + second), gets, "{gets}");
        assert_eq!(p.draw(1, held), PermitResult::Denied);
        // Permits that the first does not use, the second can have.
        p.say(1, 0, 0, 0);
        assert_eq!(u64::from(second + p.drawn(3)), gets, "{gets}");
    }
}

#[test]
fn spares_are_at_most_a_quarter_of_the_lease_over_the_workers() {
    for (gets, want) in [(1, 1), (7, 1), (8, 1), (64, 8), (100_000, 1000)] {
        let mut p = Process::leased(gets);
        let PermitResult::Held { held, spare } = p.draw(1, 0) else {
            panic!("{gets}")
        };
        assert_eq!(u64::from(held), want, "{gets}");
        assert!(u64::from(spare) <= gets / 8, "{gets}");
    }
}

#[test]
fn a_lease_that_shrinks_lets_what_runs_run_and_says_what_it_still_has() {
    let mut p = Process::leased(10);
    assert_eq!(p.drawn(1), 10);
    let request = p.after(1000).ask();
    p.answer(request.sequence, Capacity::from_whole(4));
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(10));
    assert_eq!(p.draw(1, 9), PermitResult::Denied);
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(9));
    assert_eq!(p.draw(1, 4), PermitResult::Denied);
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(4));
    assert_eq!(p.draw(1, 3), PermitResult::Held { held: 4, spare: 0 });
}

/// The lease server does not know which answer was lost, but that no lease is in use other than the one that is
/// claimed: what is claimed must end when the larger lease does.
#[test]
fn what_is_claimed_of_an_earlier_lease_ends_with_it() {
    let mut p = Process::leased(10);
    assert_eq!(p.drawn(1), 10);
    let ends = p.now.saturating_add(Duration::from_secs(10));
    for gets in [4, 3] {
        let request = p.after(1000).ask();
        let (has, remaining) = (request.has, request.remaining.unwrap());
        assert_eq!(has, Capacity::from_whole(10));
        assert_eq!(p.now.saturating_add(remaining), ends, "{gets}");
        p.answer(request.sequence, Capacity::from_whole(gets));
        assert_eq!(p.draw(1, 10), PermitResult::Denied);
    }
    // No answer any more.
    let last = Instant::from_nanos(ends.as_nanos() - 1);
    let had = (p.limiter.has(last), p.limiter.limit(last, &p.policy));
    assert_eq!(had, (Capacity::from_whole(10), 3));
    let has = (p.limiter.has(ends), p.limiter.state(ends));
    assert_eq!(has, (Capacity::ZERO, LeaseState::NoLease));
}

#[test]
fn a_lease_that_ends_before_the_next_answer_is_not_kept() {
    let mut p = Process::leased(10);
    assert_eq!(p.drawn(1), 10);
    for second in 1..=8 {
        let request = p.after(1000).ask();
        p.answer(request.sequence, Capacity::from_whole(4));
        let has = if second < 8 { 10 } else { 4 };
        assert_eq!(p.limiter.has(p.now), Capacity::from_whole(has), "{second}");
    }
    assert_eq!(p.draw(1, 9), PermitResult::Denied);
    assert_eq!(p.limiter.state(p.now), LeaseState::Leased);
}

#[test]
fn what_was_never_lent_is_not_claimed() {
    // In flight while there was no lease, or of a rule that only pretends.
    let mut p = Process::new();
    let policy = p.policy.clone();
    p.limiter
        .draw(p.now, &policy, &usage(1, 9), 1, AwaitAction::Refuse);
    p.say(1, 10, 10, 0);
    let request = p.ask();
    p.answer(request.sequence, Capacity::from_whole(4));
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(4));
    let request = p.after(1000).ask();
    p.answer(request.sequence, Capacity::from_whole(2));
    p.say(1, 20, 10, 0);
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(4), "of 20");
}

#[test]
fn what_goes_on_without_a_lease_is_not_claimed_and_does_not_stand_in_the_way_of_a_new_one() {
    let mut p = Process::leased(10);
    assert_eq!(p.drawn(1), 10);
    p.after(10_000).say(1, 10, 0, 5);
    let request = p.ask();
    assert_eq!(
        (request.has, request.demand.wants().as_f64()),
        (Capacity::ZERO, 15.0)
    );
    let bounds = Bounds {
        max_resources: 1,
        max_clients_per_resource: 1,
        max_leases: 1_000_000,
        max_durable: 100_000,
    };
    let mut node = LeaseServer::new(p.now, Epoch(2), bounds, Start::Fresh);
    let id = ResourceId::new("tenant/acme", Unit::Concurrency).unwrap();
    let limit = Limit::new(Capacity::from_whole(100));
    let client = ClientRun::only(ClientId::new("envoy/1").unwrap());
    let terms = Terms::of(&limit);
    let answer = node.handle_refresh(p.now, &client, &id, &request, &terms);
    let gets = answer.unwrap().lease.unwrap().capacity;
    assert!(gets >= request.demand.wants(), "{gets} of 100");
}

#[test]
fn the_permits_of_a_worker_that_died_come_back_and_those_of_the_living_stay() {
    let mut p = Process::leased(10);
    assert_eq!((p.drawn(1), p.draw(2, 0)), (10, PermitResult::Denied));
    p.limiter.sweep(p.now, &[2]);
    assert_eq!(p.limiter.held(), 10, "it may have begun a moment ago");
    p.after(2999);
    assert!(!p.limiter.has_silent(p.now, 2));
    p.after(1);
    assert!(p.limiter.has_silent(p.now, 2) && !p.limiter.has_silent(p.now, 1));
    p.limiter.sweep(p.now, &[1, 2]);
    assert_eq!(p.limiter.held(), 10, "long requests keep theirs");
    p.limiter.sweep(p.now, &[2]);
    assert_eq!(p.limiter.held(), 0);
    assert!(!p.limiter.has_silent(p.now, 2));
    // If it lives after all, its next word puts it right.
    p.say(1, 7, 0, 0);
    assert_eq!(p.limiter.held(), 7);
}

#[test]
fn wants_is_the_peak_and_what_was_refused_beside_it() {
    // In flight, admitted and refused in a window; what is wanted then.
    let rows = [
        ("nothing refused", 5, 100, 0, 5),
        ("long ones, all refused", 10, 0, 5, 15),
        ("twice the attempts", 10, 100, 100, 20),
        ("short ones at thrice the rate", 1, 100, 200, 3),
        ("hardly any refused", 10, 1000, 1, 11),
        ("nothing goes on", 0, 0, 8, 8),
    ];
    for (name, in_use, admitted, refused, want) in rows {
        let mut p = Process::new();
        p.draw(1, 0);
        p.limiter.shares.clear();
        p.say(1, in_use, admitted, refused);
        assert_eq!(p.limiter.wants(), want, "{name}");
    }
}

#[test]
fn what_is_spare_is_not_wanted() {
    let mut p = Process::leased(1000);
    let PermitResult::Held { held: 125, .. } = p.draw(1, 0) else {
        panic!("an eighth for one of two workers")
    };
    p.after(1000).draw(2, 0);
    p.after(1000).draw(2, 1);
    assert_eq!(p.limiter.held(), 125 + 126);
    assert_eq!(p.limiter.wants(), 3);
    // Its use meanwhile comes with its next report.
    p.say(1, 125, 124, 0);
    assert_eq!(p.limiter.wants(), 127);
}

#[test]
fn what_is_spare_is_not_wanted_after_quiet_windows_either() {
    let mut p = Process::leased(1000);
    p.draw(1, 0);
    p.after(2000).say(2, 0, 0, 0);
    assert_eq!((p.limiter.held(), p.limiter.wants()), (125, 1));
}

#[test]
fn more_is_asked_for_early_and_less_when_it_is_due() {
    let mut p = Process::leased(10);
    p.after(200);
    assert!(p.say(1, 10, 10, 10), "refused half");
    let request = p.ask();
    assert_eq!(request.demand.wants(), Capacity::from_whole(20));
    p.answer(request.sequence, Capacity::from_whole(20));
    p.after(300);
    assert!(!p.say(1, 2, 1, 0), "falls");
    let due = p.limiter.due().unwrap();
    assert_eq!(due.saturating_since(p.now), Duration::from_millis(700));
}

#[test]
fn a_lease_is_released_when_nothing_is_in_flight_any_more() {
    let mut p = Process::leased(10);
    p.drawn(1);
    p.say(1, 1, 0, 0);
    for _ in 0..100 {
        let request = p.after(1000).ask();
        assert!(request.demand.wants() >= Capacity::from_whole(1));
        p.answer(request.sequence, Capacity::from_whole(10));
    }
    assert!(!p.limiter.is_reusable(p.now));
    p.say(1, 0, 0, 0);
    let mut seconds = 0;
    while let LeaseMessage::Refresh(request) = p.after(1000).message() {
        p.answer(request.sequence, Capacity::from_whole(10));
        seconds += 1;
    }
    assert!(seconds <= 3, "{seconds}");
    assert_eq!(p.limiter.state(p.now), LeaseState::Idle);
    assert!(p.limiter.is_reusable(p.now));
}

#[test]
fn a_clock_that_stands_or_goes_back_does_no_harm() {
    let mut p = Process::leased(5);
    for _ in 0..100 {
        assert_eq!(p.drawn(1), 5);
        p.say(1, 0, 5, 1);
    }
    p.now = Instant::ZERO;
    assert_eq!(p.drawn(1), 5);
    p.limiter.sweep(p.now, &[]);
    assert_eq!(p.limiter.held(), 5, "nobody is lost while the clock stands");
}

#[test]
fn more_workers_than_can_be_are_refused() {
    let mut p = Process::leased(10_000_000);
    for worker in 0..SHARES_MAX as u64 {
        assert!(matches!(p.draw(worker, 0), PermitResult::Held { .. }));
    }
    assert_eq!(p.draw(u64::MAX, 0), PermitResult::Denied);
    assert_eq!(p.limiter.shares.len(), SHARES_MAX);
}

#[test]
fn no_limit_is_no_limit_and_zero_blocks() {
    let mut p = Process::new();
    p.draw(1, 0);
    let request = p.ask();
    p.answer(request.sequence, Capacity::UNLIMITED);
    let all = PermitResult::Held {
        held: 6000,
        spare: 1000,
    };
    assert_eq!(p.draw(1, 5000), all);
    assert_eq!(p.limiter.has(p.now), Capacity::MAX);
    assert_eq!(Process::leased(0).draw(1, 0), PermitResult::Denied);
}

#[test]
fn without_a_lease_no_more_are_in_flight_than_the_limit() {
    for (no_lease, want) in [
        (Mode::Safe, 2),
        (Mode::Optimistic, 2),
        (Mode::Pessimistic, 0),
    ] {
        let mut p = Process::new();
        p.policy.no_lease = no_lease;
        p.draw(1, 0);
        let request = p.ask();
        // The coordinator learns: the limit is known, and nothing is lent.
        let known = Answer {
            lease: None,
            refresh_interval: Duration::from_secs(1),
            safe: None,
            capacity: Capacity::from_whole(2),
            period: None,
            burst: None,
            draw: None,
        };
        let origin = Origin::alone(Epoch(1));
        assert!(
            p.limiter
                .handle_answer(p.now, request.sequence, origin, &known)
        );
        p.say(1, 0, 0, 50);
        assert_eq!(p.limiter.limit(p.now, &p.policy), want, "{no_lease:?}");
    }
}

mod draws;
