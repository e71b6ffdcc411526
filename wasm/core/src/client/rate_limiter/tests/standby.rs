//! Limiters that draw, and whose calls fail.

use super::*;
use crate::lease::DrawAnswer;

/// Answer of a coordinator that lets draw of a limit of ten a second, of which so many tokens are left.
fn draws(left: u64, standby: u64) -> Answer {
    Answer {
        capacity: Capacity::from_whole(10),
        burst: Some(Tokens::from_whole(10)),
        safe: None,
        draw: Some(DrawAnswer {
            left: Tokens::from_whole(left),
            standby: Capacity::from_whole(standby),
            ..DrawAnswer::default()
        }),
        ..answer(0)
    }
}

impl Process {
    /// One that draws, by `answer`, and whose next call fails; `safe` is its capacity without a lease.
    fn cut_off(safe: u64, answer: &Answer) -> Self {
        let mut process = Self::new();
        process.policy.safe = Capacity::from_whole(safe);
        process.attempt(1);
        let request = process.ask();
        assert!(process.answer(request.sequence, 1, answer));
        process.lose_a_call();
        process
    }

    fn lose_a_call(&mut self) {
        self.now = self.now.max(self.limiter.due().unwrap());
        let request = self.ask();
        self.fail(request.sequence);
    }

    /// Requests that pass of ten in each of the next seconds.
    fn passes_in(&mut self, secs: u64) -> usize {
        (0..secs * 10).map(|_| self.after(100).passes(1)).sum()
    }
}

#[test]
fn who_is_cut_off_has_its_standby_capacity_until_its_lease_ends() {
    let mut p = Process::cut_off(0, &draws(0, 2));
    assert_eq!(p.passes(1), 0, "nothing is earned yet");
    let passed = p.passes_in(5);
    assert!((9..=10).contains(&passed), "{passed} of two a second");
    while p.limiter.lease_expiry().is_some() || p.limiter.is_drawing() {
        p.after(100).passes(1);
    }
    assert_eq!(p.passes_in(5), 0, "there is no safe capacity");
}

#[test]
fn tokens_that_were_left_pass_on_credit_and_are_owed() {
    // A bucket of safe capacity holds three.
    let mut p = Process::cut_off(3, &draws(8, 0));
    assert_eq!(p.passes(10), 3);
    // A third of the nine that are left goes with a third of the capacity.
    let mut p = Process::cut_off(0, &draws(9, 3));
    p.limiter.lease.client.capacity = Some(Capacity::from_whole(9));
    assert_eq!(p.passes(10), 3);

    p.now = p.limiter.due().unwrap();
    let request = p.ask();
    assert_eq!(request.draw.unwrap().owed, Tokens::from_whole(3));
}

#[test]
fn what_is_owed_is_bounded_however_often_calls_fail() {
    let mut p = Process::cut_off(3, &draws(10, 0));
    let mut passed = p.passes(10);
    let from = p.now;
    for _ in 0..20 {
        p.lose_a_call();
        passed += p.passes(10);
    }
    let secs = p.now.saturating_since(from).as_secs() as usize + 1;
    assert!(passed <= 3 + 3 * secs, "{passed} in {secs} s");
    assert!(p.limiter.owed() <= Tokens::from_whole(3));
}

#[test]
fn a_coordinator_that_learns_takes_no_standby_capacity_away() {
    let mut p = Process::cut_off(0, &draws(0, 2));
    let expiry = p.limiter.lease.client.lease.map(|lease| lease.expiry);
    p.now = p.limiter.due().unwrap();
    let request = p.ask();
    let learns = Answer {
        lease: None,
        draw: None,
        ..draws(0, 2)
    };
    assert!(p.answer(request.sequence, 2, &learns));
    let lease = p.limiter.lease.client.lease;
    assert_eq!(lease.map(|lease| lease.expiry), expiry);
    let passed = p.passes_in(3);
    assert!((5..=6).contains(&passed), "{passed} of two a second");
    let request = p.ask();
    assert!(p.answer(request.sequence, 2, &draws(5, 2)));
    assert!(
        matches!(p.attempt(1), DrawResult::Pending { .. }),
        "it draws again"
    );
}

#[test]
fn an_optimistic_client_has_all_that_it_wants() {
    let mut p = Process::cut_off(0, &draws(0, 1));
    p.policy.no_lease = Mode::Optimistic;
    p.count(100);
    p.after(1000).count(0);
    assert_eq!(p.limiter.flow(p.now, &p.policy).0, Rate::from_whole(10));
}

#[test]
fn costs_that_become_known_while_cut_off_are_paid_by_draws() {
    let mut p = Process::cut_off(0, &draws(0, 2));
    p.limiter.pay(p.now, &p.policy, 0, Tokens::from_whole(4));
    p.now = p.limiter.due().unwrap();
    let request = p.ask();
    assert!(p.answer(request.sequence, 1, &draws(9, 2)));
    let owed = p.limiter.owed();
    assert!(owed > Tokens::from_whole(2), "{owed:?}");
    assert_eq!(p.limiter.bucket.balance(p.now), 0);
    p.after(1);
    assert_eq!(p.ask().draw.unwrap().owed, owed);
}

#[test]
fn credit_of_the_fleets_tokens_is_no_long_debt_when_the_lease_ends() {
    let mut p = Process::cut_off(1, &draws(10, 5));
    assert_eq!(p.passes(10), 5, "half of what was left");
    while p.limiter.is_drawing() {
        p.after(100).passes(0);
        p.limiter.pay(p.now, &p.policy, 1, Tokens::ZERO);
    }
    let owed = p.limiter.bucket.balance(p.now);
    assert!(owed >= 0, "{owed} at one a second");
}

#[test]
fn late_costs_may_be_forgiven_and_credit_is_not() {
    let mut p = Process::cut_off(3, &draws(9, 0));
    p.policy.max_debt = Duration::from_millis(100);
    assert_eq!(p.passes(10), 3);
    p.now = p.limiter.due().unwrap();
    let draw = p.ask().draw.unwrap();
    let credit = Tokens::from_whole(3);
    assert_eq!((draw.owed, draw.debt_max), (credit, credit));
    let longest = Tokens::ONE;
    assert_eq!(p.limiter.longest_debt(&p.policy), longest);
}
