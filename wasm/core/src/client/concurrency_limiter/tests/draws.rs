//! Permits of small limits, each of which is drawn.

use super::*;
use crate::lease::DrawAnswer;

impl Process {
    /// Answers that each permit is drawn, and that it gets so many; after `soon` it is to ask again.
    fn answer_draw(&mut self, sequence: u64, gets: u64, soon: Duration) {
        self.answer_share(sequence, (gets, gets), soon);
    }

    /// The same with a share of what it gets, up to which new requests may begin. `soon` below a second says
    /// that it lacks some of that.
    fn answer_share(&mut self, sequence: u64, (gets, share): (u64, u64), soon: Duration) {
        let draw = DrawAnswer {
            granted: Tokens::from_whole(share),
            left: Tokens::ZERO,
            next: (soon < Duration::from_secs(1)).then_some(soon),
            ..DrawAnswer::default()
        };
        self.answer_with(sequence, gets, draw, soon);
    }

    /// Answers with a lease of so many, and whether some are left for all that is known.
    fn answer_permits(&mut self, sequence: u64, gets: u64, left: Tokens) {
        let draw = DrawAnswer {
            granted: Tokens::from_whole(gets),
            left,
            next: None,
            ..DrawAnswer::default()
        };
        self.answer_with(sequence, gets, draw, Duration::from_secs(1));
    }

    fn answer_with(&mut self, sequence: u64, gets: u64, draw: DrawAnswer, soon: Duration) {
        let answer = Answer {
            lease: Some(LeaseTerms {
                capacity: Capacity::from_whole(gets),
                burst: Tokens::ONE,
                duration: Duration::from_secs(10),
                fingerprint: 1,
            }),
            refresh_interval: soon,
            safe: Some(Capacity::from_whole(3)),
            capacity: Capacity::from_whole(5),
            period: None,
            burst: None,
            draw: Some(draw),
        };
        let origin = Origin::alone(Epoch(1));
        assert!(
            self.limiter
                .handle_answer(self.now, sequence, origin, &answer)
        );
    }

    /// One worker has `held` in flight, and each permit is drawn.
    fn drawing(held: u32) -> Self {
        let mut process = Self::new();
        process.draw(1, 0);
        let request = process.ask();
        process.answer_draw(request.sequence, held.into(), Duration::from_secs(1));
        for in_use in 0..held {
            process.draw(1, in_use);
        }
        process.say(1, held, 1, 0);
        process.after(500);
        process
    }

    fn unheld(&mut self, in_use: u32, action: AwaitAction) -> PermitResult {
        let usage = usage(1, in_use);
        self.limiter.draw(self.now, &self.policy, &usage, 2, action)
    }

    /// The capacity that its next request claims, and the capacity that it wants.
    fn has_and_wants(&mut self) -> (Capacity, Capacity) {
        let request = self.ask();
        assert!(request.draw.is_some());
        (request.has, request.demand.wants())
    }
}

fn whole(has: u64, wants: u64) -> (Capacity, Capacity) {
    (Capacity::from_whole(has), Capacity::from_whole(wants))
}

#[test]
fn a_permit_that_is_lacking_is_asked_for_at_once() {
    let mut p = Process::drawing(2);
    let until = p.now.saturating_add(p.policy.first_lease_wait);
    assert_eq!(p.draw(1, 2), PermitResult::Pending { until });
    assert_eq!(p.draw(2, 0), PermitResult::Pending { until });
    assert!(p.limiter.is_awaited(p.now));
    assert_eq!(p.has_and_wants(), whole(2, 4));
}

#[test]
fn what_has_ended_is_given_back_soon_and_not_used_meanwhile() {
    let mut p = Process::drawing(2);
    p.say(1, 1, 0, 0);
    assert_eq!(p.has_and_wants(), whole(1, 1));
    // The coordinator may have lent it to another client.
    assert!(matches!(p.draw(1, 1), PermitResult::Pending { .. }));
}

#[test]
fn permits_stay_where_requests_begin_all_the_time() {
    let mut p = Process::drawing(3);
    p.say(1, 3, 1, 0);
    p.say(1, 1, 0, 0);
    assert_eq!(p.has_and_wants(), whole(3, 3));
    // And go when none does.
    p.answer_draw(p.limiter.lease.client.sequence, 3, Duration::from_secs(1));
    p.after(20).say(1, 1, 0, 0);
    assert_eq!(p.has_and_wants(), whole(1, 1));
}

#[test]
fn one_that_has_its_share_is_refused_at_once_and_does_not_ask_at_once_again() {
    let mut p = Process::drawing(1);
    p.draw(1, 1);
    let sequence = p.ask().sequence;
    p.answer_draw(sequence, 1, Duration::from_secs(1));
    assert_eq!(p.draw(1, 1), PermitResult::Denied);
    assert_eq!(p.message(), LeaseMessage::Nothing);
    p.after(20);
    assert!(matches!(p.draw(1, 1), PermitResult::Pending { .. }));
}

#[test]
fn one_that_lacks_its_share_is_held_until_others_give_back() {
    let mut p = Process::drawing(1);
    p.draw(1, 1);
    let sequence = p.ask().sequence;
    p.answer_draw(sequence, 1, Duration::from_millis(100));
    assert!(matches!(p.draw(1, 1), PermitResult::Pending { .. }));
    assert_eq!(p.message(), LeaseMessage::Nothing);
    p.after(100);
    assert_eq!(p.has_and_wants(), whole(1, 2));
}

#[test]
fn one_without_anything_in_flight_uses_no_safe_capacity() {
    let mut p = Process::drawing(1);
    p.say(1, 0, 0, 0);
    assert!(matches!(p.message(), LeaseMessage::Release { .. }));
    assert_eq!(p.unheld(0, AwaitAction::Refuse), PermitResult::Denied);
    assert_eq!(p.has_and_wants(), whole(0, 1));
    // Nobody answers.
    p.after(300);
    assert!(matches!(
        p.unheld(0, AwaitAction::Refuse),
        PermitResult::Held { .. }
    ));
}

#[test]
fn a_request_in_shadow_takes_a_permit_that_nobody_has_lent_once() {
    let mut p = Process::drawing(1);
    assert_eq!(
        p.unheld(1, AwaitAction::Admit),
        PermitResult::Held { held: 2, spare: 0 }
    );
    let request = p.ask();
    assert_eq!((request.has, request.demand.wants()), whole(1, 2));
    p.answer_draw(request.sequence, 1, Duration::from_secs(1));
    assert_eq!(p.unheld(2, AwaitAction::Admit), PermitResult::Denied);
}

#[test]
fn nobody_waits_where_nobody_may() {
    let mut p = Process::drawing(1);
    p.policy.first_lease_wait = Duration::ZERO;
    assert_eq!(p.draw(1, 1), PermitResult::Denied);
    assert_eq!(p.has_and_wants(), whole(1, 2));
}

#[test]
fn whose_calls_fail_goes_on_with_its_safe_capacity() {
    let mut p = Process::drawing(1);
    p.draw(1, 1);
    let sequence = p.ask().sequence;
    p.limiter.handle_failure(p.now, sequence, 1);
    assert!(matches!(p.draw(1, 1), PermitResult::Pending { .. }));
    let sequence = p.after(200).ask().sequence;
    p.limiter.handle_failure(p.now, sequence, 1);
    assert_eq!(p.limiter.limit(p.now, &p.policy), 3, "safe");
    assert_eq!(p.draw(1, 1), PermitResult::Held { held: 2, spare: 0 });
    assert_eq!(p.draw(1, 2), PermitResult::Held { held: 3, spare: 0 });
    assert_eq!(p.draw(1, 3), PermitResult::Denied);
    // It claims no more than it was lent.
    p.after(2000);
    assert_eq!(p.has_and_wants(), whole(1, 3));
}

#[test]
fn what_is_in_flight_beyond_the_share_stays_leased_and_nothing_begins() {
    let mut p = Process::drawing(5);
    let sequence = p.after(600).ask().sequence;
    p.answer_share(sequence, (5, 3), Duration::from_secs(1));
    p.say(1, 4, 0, 0);
    assert!(matches!(p.draw(1, 4), PermitResult::Pending { .. }));
    assert_eq!(p.has_and_wants(), whole(4, 5));
    p.answer_share(
        p.limiter.lease.client.sequence,
        (4, 3),
        Duration::from_secs(1),
    );
    assert_eq!(p.draw(1, 4), PermitResult::Denied);
}

#[test]
fn one_that_has_all_permits_asks_less_and_less() {
    let mut p = Process::drawing(5);
    let mut calls = 0;
    for _ in 0..400 {
        p.after(10).draw(1, 5);
        if let LeaseMessage::Refresh(request) = p.message() {
            p.answer_share(request.sequence, (5, 5), Duration::from_secs(1));
            calls += 1;
        }
    }
    assert!(calls <= 12, "{calls} in four seconds");
}

#[test]
fn a_permit_that_was_just_granted_makes_no_call() {
    let mut p = Process::drawing(1);
    let due = p.limiter.due();
    p.draw(1, 1);
    let sequence = p.ask().sequence;
    p.answer_draw(sequence, 2, Duration::from_secs(1));
    let regular = p.limiter.due();
    assert!(matches!(p.draw(1, 1), PermitResult::Held { held: 2, .. }));
    assert_eq!(p.limiter.due(), regular, "after {due:?}");
}

#[test]
fn a_request_that_waits_outlasts_the_window() {
    let mut p = Process::drawing(1);
    p.say(1, 0, 0, 0);
    p.message();
    p.after(990).draw(1, 0);
    p.after(20);
    assert_eq!(p.has_and_wants(), whole(0, 1));
}

#[test]
fn only_what_is_refused_counts_as_that() {
    let mut p = Process::drawing(1);
    let usage = WorkerUsage {
        admitted: 2,
        refused: 5,
        turned_away: 3,
        ..usage(1, 1)
    };
    p.limiter.report(p.now, &usage);
    let counts = p.limiter.lease.client.tally.counts;
    assert_eq!((counts.attempts, counts.refused), (1 + 2 + 3, 3));
}

#[test]
fn a_coordinator_that_learns_leaves_the_safe_capacity() {
    let mut p = Process::drawing(1);
    let sequence = p.after(600).ask().sequence;
    p.answer_permits(sequence, 1, Tokens::ONE);
    assert_eq!(p.limiter.limit(p.now, &p.policy), 3);
    assert!(matches!(p.draw(1, 1), PermitResult::Held { held: 2, .. }));
    p.after(1000);
    let sequence = p.ask().sequence;
    p.answer_permits(sequence, 1, Tokens::ZERO);
    assert_eq!(p.limiter.limit(p.now, &p.policy), 1);
}

/// The coordinator lends others what it is told is free, even if its answer is lost. Without it an optimistic
/// client begins more, which is not of its lease.
#[test]
fn permits_that_were_given_back_are_not_claimed_again_while_calls_fail() {
    let mut p = Process::drawing(5);
    p.policy.no_lease = Mode::Optimistic;
    let request = p.after(600).ask();
    p.answer_share(request.sequence, (5, 2), Duration::from_secs(1));
    for _ in 0..2 {
        let request = p.after(2500).ask();
        p.limiter.handle_failure(p.now, request.sequence, 1);
    }
    p.say(1, 3, 0, 0);
    assert_eq!(p.after(2500).ask().has, Capacity::from_whole(3));
    assert_eq!(p.draw(1, 3), PermitResult::Held { held: 4, spare: 0 });
    assert_eq!(p.limiter.has(p.now), Capacity::from_whole(3));
}
