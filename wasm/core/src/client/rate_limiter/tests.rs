use super::*;
use crate::client::Mode;
use crate::cluster::ShardId;
use crate::lease::{Epoch, LeaseRequest, LeaseTerms};

mod bytes;
mod draws;
mod fallback;
mod quotas;
mod refunds;
mod returns;
mod standby;

const WORKERS: u32 = 2;

/// A holder on a clock that the test moves.
struct Process {
    limiter: RateLimiter,
    policy: Policy,
    now: Instant,
}

impl Process {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        let policy = Policy::default();
        Self {
            limiter: RateLimiter::new(now, &policy),
            policy,
            now,
        }
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.saturating_add(Duration::from_millis(ms));
        self
    }

    fn attempt(&mut self, attempts: u64) -> DrawResult {
        self.limiter.count(self.now, attempts);
        self.limiter
            .draw(self.now, &self.policy, Tokens::ONE, WORKERS)
    }

    fn count(&mut self, attempts: u64) -> bool {
        self.limiter.count(self.now, attempts)
    }

    fn fail(&mut self, sequence: u64) {
        self.limiter.handle_failure(self.now, sequence, 0);
    }

    fn message(&mut self) -> LeaseMessage {
        self.limiter.ask(self.now, &self.policy)
    }

    fn ask(&mut self) -> LeaseRequest {
        match self.message() {
            LeaseMessage::Refresh(request) => request,
            message => panic!("{message:?}"),
        }
    }

    fn answer(&mut self, sequence: u64, epoch: u64, answer: &Answer) -> bool {
        self.answer_from(Origin::alone(Epoch(epoch)), sequence, answer)
    }

    fn answer_from(&mut self, origin: Origin, sequence: u64, answer: &Answer) -> bool {
        self.limiter
            .handle_answer(self.now, &self.policy, sequence, origin, answer)
    }

    /// Attempts, asks and gets `gets` after 2 ms.
    fn leased(gets: u64) -> Self {
        let mut process = Self::new();
        process.attempt(1);
        let request = process.ask();
        assert!(process.after(2).answer(request.sequence, 1, &answer(gets)));
        process
    }

    /// Number of `tries` draws that pass now, one token each.
    fn passes(&mut self, tries: usize) -> usize {
        let need = Tokens::ONE;
        let mut left = 0;
        let mut passed = 0;
        for _ in 0..tries {
            if left == 0
                && let DrawResult::Tokens(t) =
                    self.limiter.draw(self.now, &self.policy, need, WORKERS)
            {
                left = t.whole();
            }
            if left > 0 {
                left -= 1;
                passed += 1;
            }
        }
        passed
    }
}

fn answer(gets: u64) -> Answer {
    Answer {
        lease: Some(LeaseTerms {
            capacity: Capacity::from_whole(gets),
            burst: Tokens::from_whole(gets / 5),
            duration: Duration::from_secs(10),
            fingerprint: 1,
        }),
        refresh_interval: Duration::from_secs(1),
        safe: Some(Capacity::from_whole(20)),
        capacity: Capacity::from_whole(1000),
        period: None,
        burst: None,
        draw: None,
    }
}

#[test]
fn the_first_attempt_asks_at_once_and_is_held_for_the_answer() {
    let mut p = Process::new();
    let until = p.now.saturating_add(p.policy.first_lease_wait);
    assert_eq!(p.attempt(1), DrawResult::Pending { until });
    assert_eq!(
        (p.limiter.due(), p.limiter.state(p.now)),
        (Some(p.now), LeaseState::Pending)
    );
    let request = p.ask();
    assert_eq!(
        (request.has, request.demand.wants()),
        (Capacity::ZERO, Capacity::from_whole(10))
    );
    assert_eq!(p.message(), LeaseMessage::Nothing, "one asks for all");

    let sent = p.now;
    assert!(p.after(2).answer(request.sequence, 1, &answer(500)));
    assert_eq!(p.limiter.state(p.now), LeaseState::Leased);
    let expiry = sent.saturating_add(Duration::from_secs(10));
    assert_eq!(
        p.limiter.lease_expiry(),
        Some(expiry),
        "counted from the sending"
    );
    assert_eq!(
        p.attempt(0),
        DrawResult::Tokens(Tokens::from_whole(2)),
        "5 ms of 500 per second"
    );
    assert_eq!(p.passes(1000), 98, "the rest of the burst");
}

#[test]
fn the_first_lease_fills_a_bucket_that_could_hold_nothing() {
    let mut p = Process::new();
    p.policy.no_lease = Mode::Pessimistic;
    p.limiter = RateLimiter::new(p.now, &p.policy);
    p.attempt(1);
    let request = p.ask();
    p.after(2).answer(request.sequence, 1, &answer(500));
    assert_eq!(p.passes(1000), 100, "the burst");
    p.after(20_000).count(1);
    assert_eq!(p.passes(1000), 0, "the lease has expired");
    let request = p.ask();
    p.after(2).answer(request.sequence, 1, &answer(500));
    assert_eq!(p.passes(1000), 0, "the second lease fills nothing");
}

#[test]
fn without_an_answer_the_safe_capacity_passes() {
    let mut p = Process::new();
    p.attempt(1);
    let request = p.ask();
    p.after(250);
    assert_eq!(
        p.passes(100),
        10,
        "a second's worth of the configured safe capacity"
    );
    p.after(1000);
    assert_eq!(p.passes(100), 10);
    p.fail(request.sequence);
    assert!(p.limiter.due() > Some(p.now), "backs off");
    assert_eq!(p.limiter.state(p.now), LeaseState::NoLease);
}

#[test]
fn a_failure_ends_the_wait_of_held_requests() {
    let mut p = Process::new();
    p.attempt(1);
    let request = p.ask();
    p.after(1).fail(request.sequence);
    assert_eq!(p.attempt(0), DrawResult::Tokens(Tokens::ONE));
}

/// As when a master dies, and of the coordinators that are left some cannot be reached either.
#[test]
fn who_has_a_lease_asks_for_it_until_it_ends() {
    let mut p = Process::leased(100);
    let end = p.limiter.lease_expiry().unwrap();
    let mut asks = 0;
    loop {
        p.count(1);
        let left = end.saturating_since(p.now);
        let due = p.limiter.due().unwrap();
        if due >= end {
            break;
        }
        if asks > 0 {
            let wait = due.saturating_since(p.now);
            assert!(
                wait <= (left / 4).max(Duration::from_millis(100)),
                "{wait:?} of {left:?}"
            );
        }
        p.now = due;
        let request = p.ask();
        p.fail(request.sequence);
        asks += 1;
    }
    assert!(end.saturating_since(p.now) <= Duration::from_millis(100));
    assert!(asks <= 30, "{asks}");
}

#[test]
fn the_mode_holds_for_a_lease_that_has_expired_and_for_one_that_never_came() {
    let attempts = |p: &mut Process, seconds| {
        let mut passed = 0;
        for _ in 0..seconds {
            p.after(1000).count(200);
            passed = p.passes(200);
        }
        passed
    };
    // The lease is over; the calls fail, which changes nothing, until a lease comes again.
    let mut p = Process::leased(100);
    p.policy.no_lease = Mode::Pessimistic;
    assert_eq!(attempts(&mut p, 15), 0);
    let request = p.ask();
    p.fail(request.sequence);
    assert_eq!(attempts(&mut p, 3), 0);
    let request = p.ask();
    assert!(p.answer(request.sequence, 1, &answer(100)));
    assert_eq!(attempts(&mut p, 3), 20, "the burst");

    // None ever came.
    let mut p = Process::new();
    p.attempt(1);
    let request = p.ask();
    p.after(1000).fail(request.sequence);
    assert_eq!(attempts(&mut p, 3), 10);

    // One has expired, nothing was wanted for a while, and then none came.
    let mut p = Process::leased(100);
    p.policy.no_lease = Mode::Pessimistic;
    assert_eq!(attempts(&mut p, 12), 0);
    let message = p.after(60_000).message();
    assert!(
        matches!(message, LeaseMessage::Release { .. }),
        "{message:?}"
    );
    p.policy.no_lease = Mode::Safe;
    p.after(1000).attempt(1);
    let request = p.ask();
    p.after(1000).fail(request.sequence);
    assert_eq!(attempts(&mut p, 3), 20, "the safe capacity that was sent");
}

#[test]
fn only_the_answer_to_the_latest_request_of_the_latest_master_counts() {
    let mut p = Process::leased(100);
    let first = p.after(1000).ask();
    let second = p.after(1000).ask();
    assert!(second.sequence > first.sequence);
    assert!(!p.answer(first.sequence, 1, &answer(900)), "not the latest");
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(100));
    assert!(
        !p.answer(second.sequence, 0, &answer(900)),
        "an earlier term"
    );
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(100));
    assert!(!p.answer(second.sequence, 1, &answer(900)), "given up");
    let third = p.after(1000).ask();
    assert!(p.answer(third.sequence, 2, &answer(900)));
    assert!(!p.answer(third.sequence, 2, &answer(500)), "twice");
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(900));
}

/// A rule of epochs must tell each of these answers: the terms of a shard grow, and those of
/// different shards, or with and without a cluster, cannot be compared.
#[test]
fn a_lower_term_is_out_of_date_only_within_its_shard() {
    let of = |shard: u16, epoch| Origin {
        shard: shard.checked_sub(1).map(ShardId),
        epoch: Epoch(epoch),
    };
    let rows = [
        (of(0, 9), of(0, 8), false),
        (of(0, 9), of(1, 2), true),
        (of(1, 9), of(0, 2), true),
        (of(1, 9), of(2, 2), true),
        (of(2, 9), of(2, 8), false),
        (of(2, 9), of(2, 9), true),
        (of(2, 9), of(2, 10), true),
    ];
    for (last, next, applied) in rows {
        let mut p = Process::new();
        p.attempt(1);
        let first = p.ask();
        assert!(p.answer_from(last, first.sequence, &answer(100)));
        let second = p.after(1000).ask();
        let is_applied = p.answer_from(next, second.sequence, &answer(200));
        assert_eq!(is_applied, applied, "{next:?} after {last:?}");
        let has = if applied { 200 } else { 100 };
        assert_eq!(p.limiter.has(p.now), Capacity::from_whole(has));
    }
}

#[test]
fn a_change_of_demand_asks_early_but_not_sooner_than_the_minimum() {
    let mut p = Process::leased(500);
    let earliest = p.now.saturating_add(Duration::from_millis(98));
    assert!(p.after(50).count(50), "from 10 a second to 510");
    assert_eq!(p.limiter.due(), Some(earliest));
    assert_eq!(p.message(), LeaseMessage::Nothing);
    p.after(50).count(49);
    let request = p.ask();
    assert!(
        request.demand.wants() > Capacity::from_whole(900),
        "{request:?}"
    );
    p.answer(request.sequence, 1, &answer(500));
    for _ in 0..8 {
        assert!(!p.after(100).count(98), "steady");
    }
}

#[test]
fn a_silent_client_keeps_its_lease_until_its_bucket_is_full_again() {
    // A burst of 3 s: earning it without a lease would come on top of what others are lent.
    let mut lasting = answer(100);
    lasting.lease = lasting.lease.map(|terms| LeaseTerms {
        burst: Tokens::from_whole(300),
        ..terms
    });
    let mut p = Process::new();
    p.attempt(300);
    let request = p.ask();
    p.after(2).answer(request.sequence, 1, &lasting);
    assert_eq!(p.passes(1000), 300);
    let mut silent_ms = 0;
    loop {
        let due = p.limiter.due().expect("awake");
        silent_ms += due.saturating_since(p.now).as_millis();
        p.now = due;
        match p.message() {
            LeaseMessage::Refresh(request) => {
                assert_eq!(request.has, Capacity::from_whole(100));
                p.answer(request.sequence, 1, &lasting);
            }
            LeaseMessage::Release { .. } => break,
            LeaseMessage::Nothing => panic!("due, and nothing to say"),
        }
    }
    assert_eq!(silent_ms, 3000, "as long as it takes to earn the burst");
    p.after(60_000);
    p.attempt(1);
    p.after(250);
    assert_eq!(p.passes(1000), 20, "nothing but the safe capacity after it");
}

#[test]
fn an_end_of_demand_releases_and_the_balance_stays() {
    let mut p = Process::leased(100);
    assert_eq!(p.passes(1000), 20);
    p.after(100).count(50);
    let request = p.ask();
    p.answer(request.sequence, 1, &answer(100));
    let balance = p.passes(1000);
    assert!(balance <= 20);
    let LeaseMessage::Release { sequence } = p.after(1100).message() else {
        panic!("no release")
    };
    assert!(sequence > request.sequence);
    assert_eq!(
        (p.limiter.state(p.now), p.limiter.due()),
        (LeaseState::Idle, None)
    );
    assert!(
        !p.answer(request.sequence, 1, &answer(100)),
        "an answer after the release"
    );
    p.after(60_000);
    assert!(p.limiter.is_reusable(p.now));
    assert!(
        matches!(p.attempt(1), DrawResult::Pending { .. }),
        "the next attempt starts anew"
    );
}

#[test]
fn a_capacity_of_zero_blocks_and_no_limit_does_not() {
    let mut p = Process::leased(0);
    assert_eq!(p.attempt(1), DrawResult::Denied { retry_at: None });
    let request = p.after(1000).ask();
    let mut unlimited = answer(0);
    unlimited.lease = unlimited.lease.map(|t| LeaseTerms {
        capacity: Capacity::UNLIMITED,
        ..t
    });
    p.answer(request.sequence, 1, &unlimited);
    assert_eq!(p.passes(100_000), 100_000);
    assert_eq!(p.limiter.has(p.now), Capacity::MAX, "a number for the wire");
}

#[test]
fn leases_that_go_up_and_down_mint_no_tokens() {
    let mut p = Process::leased(1000);
    assert_eq!(p.passes(1000), 200);
    let mut passed = 0;
    for round in 0..100 {
        p.after(10).count(1000);
        p.limiter.lease.client.due = Some(p.now);
        let request = p.ask();
        p.answer(
            request.sequence,
            1,
            &answer(if round % 2 == 0 { 50 } else { 1000 }),
        );
        passed += p.passes(1000);
    }
    // One second, half of it at 50 and half at 1000 per second.
    assert!((1..=525).contains(&passed), "{passed}");
}

#[test]
fn slabs_are_bounded() {
    // Rate; token cache: 5 ms of it, at most a quarter of the burst (a fifth of the rate) over 2 workers.
    for (gets, want) in [(10, 1), (500, 2), (1000, 5), (100_000, 500)] {
        let mut p = Process::leased(gets);
        assert_eq!(
            p.attempt(1),
            DrawResult::Tokens(Tokens::from_whole(want)),
            "{gets}"
        );
    }
    let mut p = Process::leased(100_000);
    let many = p.limiter.draw(p.now, &p.policy, Tokens::ONE, 64);
    assert_eq!(many, DrawResult::Tokens(Tokens::from_whole(20_000 / 256)));
}

#[test]
fn the_clock_may_stand_still_or_go_back() {
    let mut p = Process::leased(100);
    let before = p.now;
    let first = p.after(1000).ask();
    p.now = Instant::ZERO;
    p.count(5);
    p.limiter.draw(p.now, &p.policy, Tokens::ONE, WORKERS);
    p.now = before.saturating_add(Duration::from_millis(1000));
    p.limiter.lease.client.due = Some(p.now);
    p.limiter.lease.client.asked_at = None;
    assert!(p.ask().sequence > first.sequence);
}

#[test]
fn who_cannot_be_held_draws_at_the_safe_capacity_while_others_wait() {
    let mut p = Process::new();
    p.policy.first_lease_wait = Duration::from_secs(10);
    let DrawResult::Pending { until } = p.attempt(1) else {
        panic!("not held")
    };
    let mut at_once = 0;
    while let DrawResult::Tokens(tokens) =
        p.limiter
            .draw_at_once(p.now, &p.policy, Tokens::ONE, WORKERS)
    {
        at_once += tokens.whole();
    }
    assert_eq!(at_once, 10);
    assert_eq!(p.attempt(1), DrawResult::Pending { until });
    let request = p.ask();
    p.after(2).answer(request.sequence, 1, &answer(1000));
    assert_eq!(p.passes(1000), 190, "all of the burst but what is spent");
    let passed: usize = (0..100).map(|_| p.after(1).passes(10)).sum();
    assert!((99..=100).contains(&passed), "{passed}");
}
