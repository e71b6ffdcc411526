//! Limiters that draw of the fleet's bucket.

use super::*;
use crate::lease::DrawAnswer;

/// Answer of a coordinator that has granted so many tokens of a limit of ten a second.
pub(super) fn granted(tokens: u64, next: Option<Duration>) -> Answer {
    Answer {
        capacity: Capacity::from_whole(10),
        burst: Some(Tokens::from_whole(10)),
        draw: Some(DrawAnswer {
            granted: Tokens::from_whole(tokens),
            left: Tokens::ZERO,
            next,
            ..DrawAnswer::default()
        }),
        ..answer(0)
    }
}

impl Process {
    /// Has drawn a token, and spent it.
    fn drawing() -> Self {
        let mut process = Self::new();
        process.attempt(1);
        let request = process.ask();
        assert!(process.answer(request.sequence, 1, &granted(1, None)));
        assert_eq!(process.attempt(0), DrawResult::Tokens(Tokens::ONE));
        process
    }

    /// Had a lease with tokens, and draws from now on.
    fn drawing_after_a_lease() -> Self {
        let mut process = Self::new();
        process.attempt(1);
        let request = process.ask();
        assert!(process.answer(request.sequence, 1, &leased(100, 40)));
        let request = process.ask_at_its_time();
        assert!(process.answer(request.sequence, 1, &granted(40, None)));
        process
    }

    /// The next request, when it is due.
    fn ask_at_its_time(&mut self) -> LeaseRequest {
        self.now = self.now.max(self.limiter.due().unwrap());
        self.ask()
    }

    fn pay(&mut self, tokens: u64) {
        let owed = Tokens::from_whole(tokens);
        self.limiter.pay(self.now, &self.policy, 0, owed);
    }
}

#[test]
fn what_is_owed_is_reported_at_once_and_the_fleet_pays_it() {
    let mut p = Process::drawing();
    p.pay(3);
    let request = p.after(1).ask();
    let draw = request.draw.unwrap();
    assert_eq!(
        (draw.needs, draw.owed),
        (Tokens::ZERO, Tokens::from_whole(3))
    );
    p.pay(2);
    let next = Some(Duration::from_millis(200));
    assert!(p.answer(request.sequence, 1, &granted(4, next)));
    assert_eq!(p.limiter.owed(), Tokens::from_whole(2), "since then");
    let request = p.ask();
    assert_eq!(request.draw.unwrap().owed, Tokens::from_whole(2));
    let next = Some(Duration::from_millis(400));
    assert!(p.answer(request.sequence, 1, &granted(6, next)));
    let retry_at = Some(p.now.saturating_add(Duration::from_millis(400)));
    assert_eq!(p.attempt(1), DrawResult::Denied { retry_at });
}

#[test]
fn what_an_answer_does_not_pay_is_forgiven() {
    let mut p = Process::drawing();
    p.pay(8);
    let request = p.after(1).ask();
    p.pay(1);
    let next = Some(Duration::from_secs(1));
    assert!(p.answer(request.sequence, 1, &granted(4, next)));
    assert_eq!(p.limiter.owed(), Tokens::ONE, "not yet reported");
}

#[test]
fn a_request_in_shadow_counts_as_one_that_was_held() {
    let mut p = Process::drawing();
    let (mut passed, mut drawn) = (0, 1);
    for request in 1..=50 {
        let policy = p.policy.clone();
        let now = p.after(50).now;
        p.limiter.count(now, 1);
        let draw = p.limiter.draw_on_credit(now, &policy, Tokens::ONE, 2);
        passed += u64::from(draw == DrawResult::Tokens(Tokens::ONE));
        // The fleet earns one for each second request.
        if let LeaseMessage::Refresh(asked) = p.message() {
            drawn += asked.draw.unwrap().owed.whole();
            let earned = 1 + request / 2;
            let lacks = (drawn + 1).saturating_sub(earned);
            let next = (lacks > 0).then(|| Duration::from_millis(100 * lacks));
            assert!(p.answer(asked.sequence, 1, &granted(drawn, next)));
        }
    }
    assert!((23..=26).contains(&passed), "{passed} of 25");
}

#[test]
fn tokens_that_are_left_pay_first_and_those_that_return_too() {
    let mut p = Process::drawing();
    p.attempt(3);
    let request = p.after(1).ask();
    assert!(p.answer(request.sequence, 1, &granted(4, None)));
    p.pay(4);
    p.limiter.give_back(p.now, &p.policy, Tokens::from_whole(2));
    assert_eq!(p.attempt(0), DrawResult::Tokens(Tokens::ONE));
    assert_eq!(p.limiter.level(p.now).left, Tokens::ZERO);
}

#[test]
fn the_fleets_bucket_is_to_lack_no_more_than_the_longest_debt() {
    let mut p = Process::drawing();
    p.pay(1_000_000);
    let draw = p.after(1).ask().draw.unwrap();
    let (burst, longest) = (Tokens::from_whole(10), Tokens::from_whole(10 * 10));
    assert_eq!(
        (draw.owed, draw.debt_max),
        (longest.saturating_add(burst), longest)
    );
}

#[test]
fn one_that_has_given_its_draws_up_begins_as_a_new_one() {
    let mut p = Process::drawing();
    while let Some(due) = p.limiter.due() {
        p.now = due;
        match p.message() {
            LeaseMessage::Refresh(request) => {
                p.answer(request.sequence, 1, &granted(1, None));
            }
            message => assert!(matches!(message, LeaseMessage::Release { .. })),
        }
    }
    assert_eq!(p.limiter.state(p.now), LeaseState::Idle);
    assert!(!p.limiter.is_drawing());
    let full = p.limiter.bucket.burst();
    assert!(full > Tokens::ZERO);
    assert_eq!(p.limiter.level(p.now).left, full, "without a lease");
    p.attempt(1);
    let request = p.ask();
    assert!(p.answer(request.sequence, 1, &answer(100)));
    assert!(p.passes(100) >= 20, "a limit that is leased now");
}

#[test]
fn the_time_of_the_next_token_outlasts_a_refresh_that_needs_none() {
    let mut p = Process::drawing();
    p.attempt(1);
    let request = p.after(1).ask();
    let later = Some(Duration::from_secs(6));
    assert!(p.answer(request.sequence, 1, &granted(1, later)));
    let retry_at = Some(p.now.saturating_add(Duration::from_secs(6)));
    p.now = p.limiter.due().unwrap();
    let request = p.ask();
    assert_eq!(request.draw.unwrap().needs, Tokens::ZERO);
    assert!(p.answer(request.sequence, 1, &granted(1, None)));
    assert_eq!(p.attempt(1), DrawResult::Denied { retry_at });
}

#[test]
fn tokens_of_a_lease_stay_when_it_draws_from_now_on() {
    let mut p = Process::leased(100);
    assert_eq!(p.passes(15), 15);
    let request = p.after(1).ask_at_its_time();
    let left = p.limiter.bucket.balance(p.now);
    assert!(p.answer(request.sequence, 1, &granted(0, None)));
    assert_eq!(p.limiter.draws.balance(), left);
    let request = p.ask_at_its_time();
    let draw = request.draw.unwrap();
    let held = draw.holds.as_micros();
    assert_eq!(held + draw.returns.as_micros(), left.unsigned_abs());

    assert!(p.answer(request.sequence, 1, &answer(100)));
    let balance = p.limiter.bucket.balance(p.now);
    assert_eq!(balance.unsigned_abs(), held, "and when it is leased again");
    assert_eq!(p.limiter.draws.balance(), 0);
}

#[test]
fn a_debt_stays_when_it_draws_from_now_on() {
    let mut p = Process::leased(100);
    let request = p.ask_at_its_time();
    p.passes(1000);
    p.pay(7);
    let owed = p.limiter.bucket.balance(p.now);
    assert!(owed < 0, "{owed}");
    assert!(p.answer(request.sequence, 1, &granted(0, None)));
    assert_eq!(p.limiter.draws.balance(), owed);
}

#[test]
fn safe_capacity_is_no_token_of_the_fleet() {
    let mut p = Process::new();
    p.attempt(1);
    let request = p.ask();
    p.after(260);
    assert!(p.passes(1) > 0, "of the safe capacity");
    assert!(p.answer(request.sequence, 1, &granted(0, None)));
    assert_eq!(p.limiter.draws.balance(), 0);
    assert_eq!(p.limiter.bucket.balance(p.now), 0);
}

#[test]
fn tokens_that_requests_have_waited_for_are_not_those_of_the_next() {
    let mut p = Process::drawing();
    p.attempt(1);
    let request = p.after(1).ask();
    assert!(
        matches!(p.attempt(1), DrawResult::Pending { .. }),
        "another one"
    );
    assert!(p.answer(request.sequence, 1, &granted(2, None)));
    let draw = p.after(1).ask().draw.unwrap();
    assert_eq!(
        (draw.holds, draw.needs),
        (Tokens::ONE, Tokens::from_whole(2))
    );
}

#[test]
fn what_is_owed_is_owed_whoever_is_to_be_paid() {
    let mut p = Process::drawing();
    p.pay(3);
    p.now = p.now.saturating_add(Duration::from_secs(11));
    p.attempt(1);
    assert!(!p.limiter.is_drawing(), "its lease has ended");
    assert!(p.limiter.bucket.balance(p.now) < 10_000_000);
    let before = p.limiter.bucket.balance(p.now);
    p.limiter.pay(p.now, &p.policy, 0, Tokens::from_whole(20));
    let owed = p.limiter.bucket.balance(p.now);
    assert!(owed < 0 && owed < before, "{owed}");
    p.now = p.limiter.due().unwrap().max(p.now);
    let request = p.ask();
    assert!(p.answer(request.sequence, 1, &granted(1, None)));
    assert_eq!(p.limiter.draws.balance(), owed, "of the fleet's tokens now");
}

#[test]
fn no_more_is_given_back_than_the_burst() {
    let mut p = Process::drawing();
    p.limiter
        .give_back(p.now, &p.policy, Tokens::from_whole(1000));
    assert_eq!(p.limiter.draws.balance(), 10_000_000);
}

#[test]
fn a_request_that_needs_less_than_one_that_was_refused_may_draw() {
    let mut p = Process::drawing();
    let two = Tokens::from_whole(2);
    p.limiter.draw(p.now, &p.policy, two, WORKERS);
    let request = p.after(1).ask();
    assert_eq!(request.draw.unwrap().first, two);
    let later = Some(Duration::from_secs(60));
    let one_left = DrawAnswer {
        left: Tokens::ONE,
        ..granted(1, later).draw.unwrap()
    };
    let answer = Answer {
        draw: Some(one_left),
        ..granted(1, later)
    };
    assert!(p.answer(request.sequence, 1, &answer));
    let again = p.limiter.draw(p.now, &p.policy, two, WORKERS);
    assert!(matches!(again, DrawResult::Denied { .. }), "{again:?}");
    assert!(matches!(p.attempt(1), DrawResult::Pending { .. }));
}

#[test]
fn a_client_with_requests_that_wait_does_not_release_its_lease() {
    let mut p = Process::drawing();
    // Its attempts are over, as far as the mean tells, and there is something left to report.
    let mut wants = Capacity::MAX;
    while wants > Capacity::from_micros(1) {
        p.limiter.count_refused(1);
        let request = p.ask_at_its_time();
        wants = request.demand.wants();
        assert!(p.answer(request.sequence, 1, &granted(1, None)));
    }
    p.after(500);
    assert!(matches!(p.attempt(1), DrawResult::Pending { .. }));
    let request = p.ask();
    assert_eq!(request.draw.unwrap().needs, Tokens::ONE);
    assert!(request.demand.wants() > Capacity::ZERO);
}

/// Answer with a lease, and with so many tokens that were granted until now.
fn leased(capacity: u64, tokens: u64) -> Answer {
    Answer {
        draw: granted(tokens, None).draw,
        ..answer(capacity)
    }
}

#[test]
fn a_lease_begins_with_the_tokens_that_come_with_it() {
    let mut p = Process::new();
    p.attempt(1);
    let request = p.ask();
    assert!(p.answer(request.sequence, 1, &leased(100, 3)));
    assert!(!p.limiter.is_drawing());
    assert_eq!(p.passes(10), 3);
}

#[test]
fn a_lease_that_grows_brings_tokens() {
    let mut p = Process::new();
    p.attempt(1);
    let request = p.ask();
    assert!(p.answer(request.sequence, 1, &leased(50, 10)));
    assert_eq!(p.passes(20), 10);
    let request = p.ask_at_its_time();
    let before = p.limiter.level(p.now).left;
    assert_eq!(request.draw.unwrap().drawn, Tokens::from_whole(10));
    assert!(p.answer(request.sequence, 1, &leased(100, 14)));
    let brought = p.limiter.level(p.now).left.saturating_sub(before);
    assert_eq!(brought, Tokens::from_whole(4));
    let request = p.ask_at_its_time();
    let before = p.limiter.level(p.now).left;
    assert!(p.answer(request.sequence, 1, &leased(100, 14)));
    assert_eq!(p.limiter.level(p.now).left, before, "the same tokens");
}

#[test]
fn tokens_that_were_drawn_are_in_the_bucket_of_the_lease_that_follows() {
    let mut p = Process::drawing();
    p.attempt(1);
    let request = p.after(1).ask();
    assert!(p.answer(request.sequence, 1, &granted(4, None)));
    assert_eq!(p.attempt(0), DrawResult::Tokens(Tokens::ONE));
    let request = p.ask_at_its_time();
    assert!(p.answer(request.sequence, 1, &leased(100, 7)));
    assert_eq!(p.passes(10), 5, "two of the draw, and three with the lease");
}

#[test]
fn a_request_whose_answer_is_late_passes_where_there_are_many_tokens() {
    let of = |rate: u64, left: u64, tokens: u64| Answer {
        capacity: Capacity::from_whole(rate),
        burst: Some(Tokens::from_whole(rate)),
        draw: Some(DrawAnswer {
            granted: Tokens::from_whole(tokens),
            left: Tokens::from_whole(left),
            next: None,
            ..DrawAnswer::default()
        }),
        ..answer(0)
    };
    for (rate, left, passes) in [(640, 600, 10), (640, 240, 0), (10, 10, 0)] {
        let mut p = Process::new();
        p.attempt(1);
        let request = p.ask();
        assert!(p.answer(request.sequence, 1, &of(rate, left, 1)));
        assert_eq!(p.attempt(0), DrawResult::Tokens(Tokens::ONE));
        assert!(
            matches!(p.attempt(1), DrawResult::Pending { .. }),
            "it waits first"
        );
        let policy = p.policy.clone();
        let late = |p: &mut Process| {
            let draw = p.limiter.draw_at_once(p.now, &policy, Tokens::ONE, 1);
            draw == DrawResult::Tokens(Tokens::ONE)
        };
        let passed = (0..100).filter(|_| late(&mut p)).count();
        assert_eq!(passed, passes, "of {left} of {rate}");
    }
}

#[test]
fn tokens_of_a_lease_that_will_not_be_needed_are_given_back() {
    let mut p = Process::new();
    p.attempt(1);
    let request = p.ask();
    assert!(p.answer(request.sequence, 1, &leased(100, 40)));
    let request = p.ask_at_its_time();
    assert!(
        p.answer(request.sequence, 1, &granted(40, None)),
        "it draws"
    );
    let draw = p.ask_at_its_time().draw.unwrap();
    assert!(draw.holds <= Tokens::from_whole(4), "{draw:?}");
    assert!(draw.returns >= Tokens::from_whole(15), "{draw:?}");
    assert_eq!(p.passes(50) as u64, draw.holds.whole());
}

#[test]
fn a_client_that_is_cut_off_keeps_what_it_has() {
    let mut p = Process::drawing_after_a_lease();
    let lost = p.ask_at_its_time();
    p.fail(lost.sequence);
    let draw = p.ask_at_its_time().draw.unwrap();
    assert_eq!(draw.returns, Tokens::ZERO);
}

#[test]
fn a_client_says_since_when_it_has_spent_none() {
    let mut p = Process::drawing();
    assert_eq!(
        p.after(300).ask_at_its_time().draw.unwrap().spent_for,
        Duration::from_secs(1)
    );
    let mut p = Process::drawing();
    p.after(300).pay(3);
    let request = p.after(1).ask();
    assert_eq!(
        request.draw.unwrap().spent_for,
        Duration::from_millis(1),
        "owed"
    );
    let new = RateLimiter::new(p.now, &p.policy);
    p.limiter = new;
    p.attempt(1);
    assert_eq!(
        p.ask().draw.unwrap().spent_for,
        Duration::ZERO,
        "it has forgotten"
    );
}
