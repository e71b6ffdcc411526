//! Tokens that requests turned out not to cost.

use super::draws::granted;
use super::quotas::of_quota;
use super::*;

fn tokens(whole: u64) -> Tokens {
    Tokens::from_whole(whole)
}

impl Process {
    /// Takes `whole` tokens back that were taken now.
    fn refund(&mut self, whole: u64) {
        self.limiter
            .refund(self.now, &self.policy, self.now, tokens(whole));
    }

    fn told(&mut self) -> (u64, Duration) {
        self.now = self.now.max(self.limiter.due().unwrap());
        let draw = self.ask().draw.unwrap();
        (draw.refunds.whole(), draw.refunded_for)
    }
}

/// Has drawn and spent ten tokens.
fn spent(answer: &Answer) -> Process {
    let mut process = Process::new();
    process.attempt(10);
    let request = process.ask();
    assert!(process.answer(request.sequence, 1, answer));
    assert_eq!(process.passes(10), 10);
    process
}

#[test]
fn what_comes_back_goes_to_the_fleet_with_the_time_since_it_was_taken() {
    let mut p = spent(&granted(10, None));
    let first = p.now;
    p.after(300).refund(2);
    let (policy, now) = (p.policy.clone(), p.now);
    p.limiter.refund(now, &policy, first, tokens(3));
    assert_eq!(p.passes(1), 0, "not by itself");
    let (refunds, age) = p.told();
    let age_max = p.now.saturating_since(first) + p.policy.call_timeout;
    assert_eq!((refunds, age), (5, age_max));
}

#[test]
fn it_pays_what_is_owed_and_no_more_than_a_burst_is_told() {
    let mut p = spent(&granted(10, None));
    let owed = tokens(4);
    p.limiter.pay(p.now, &p.policy.clone(), 0, owed);
    p.refund(6);
    assert_eq!((p.limiter.owed(), p.told().0), (Tokens::ZERO, 2));
    p.refund(50);
    assert_eq!(p.limiter.draws.refunds, tokens(10));
}

#[test]
fn of_a_quota_nothing_is_paid_with_it_for_what_is_owed_may_be_of_another_window() {
    let mut p = spent(&of_quota(10, 400));
    p.limiter.pay(p.now, &p.policy.clone(), 0, tokens(4));
    p.refund(6);
    assert_eq!((p.limiter.owed(), p.told().0), (tokens(4), 6));
}

#[test]
fn of_a_lease_it_comes_back_to_its_own_bucket_up_to_the_burst() {
    let mut p = Process::leased(100);
    assert_eq!(p.passes(50), 20);
    p.refund(15);
    assert_eq!(p.passes(50), 15);
    p.refund(1000);
    assert_eq!(p.passes(50), 20);
}

#[test]
fn while_requests_go_on_it_is_not_released() {
    let mut p = spent(&granted(10, None));
    let released_after = |p: &mut Process, awaits: bool| {
        for secs in 0..120 {
            if awaits && secs < 60 {
                p.limiter.await_refunds(p.now);
            }
            if p.limiter.due().is_some_and(|due| due <= p.now) {
                match p.message() {
                    LeaseMessage::Refresh(request) => {
                        p.answer(request.sequence, 1, &granted(10, None));
                    }
                    LeaseMessage::Release { .. } => return secs,
                    LeaseMessage::Nothing => {}
                }
            }
            p.after(1000);
        }
        120
    };
    let awaiting = released_after(&mut p, true);
    assert!((70..80).contains(&awaiting), "{awaiting} s");
    let mut p = spent(&granted(10, None));
    let idle = released_after(&mut p, false);
    assert!(idle < 15, "{idle} s");
}

#[test]
fn of_a_quota_as_much_may_come_back_as_its_amount() {
    let mut p = spent(&of_quota(10, 400));
    p.refund(450);
    p.refund(450);
    assert_eq!(p.limiter.draws.refunds, tokens(500));
}

#[test]
fn one_that_only_awaits_ends_keeps_no_token_from_others() {
    let mut p = spent(&granted(11, None));
    for _ in 0..30 {
        p.limiter.await_refunds(p.now);
        if let LeaseMessage::Refresh(request) = p.message() {
            p.answer(request.sequence, 1, &granted(11, None));
        }
        p.after(500);
    }
    assert_eq!(p.limiter.draws.left, Tokens::ZERO);
}

#[test]
fn cut_off_a_request_is_told_what_its_bucket_holds() {
    let mut p = spent(&Answer {
        safe: Some(Capacity::from_whole(2)),
        ..granted(10, None)
    });
    p.now = p.now.max(p.limiter.due().unwrap());
    let request = p.ask();
    p.fail(request.sequence);
    let policy = p.policy.clone();
    for need in [5, 9, 50] {
        let result = p.limiter.draw(p.now, &policy, tokens(need), WORKERS);
        assert!(
            matches!(result, DrawResult::ExceedsBurst { .. }),
            "{need}: {result:?}"
        );
    }
}
