//! Limiters of bytes that draw of the fleet's bucket.

use super::*;
use crate::client::AwaitAction;
use crate::lease::DrawAnswer;

/// Answer of a coordinator that has granted so many bytes of a limit of a thousand a second, of which so many are
/// left.
fn granted(tokens: u64, left: u64, next: Option<Duration>) -> Answer {
    Answer {
        capacity: Capacity::from_whole(1000),
        burst: Some(Tokens::from_whole(1000)),
        draw: Some(DrawAnswer {
            granted: Tokens::from_whole(tokens),
            left: Tokens::from_whole(left),
            next,
            ..DrawAnswer::default()
        }),
        ..answer(0)
    }
}

impl Process {
    /// Has drawn the byte that lets its first request go on.
    fn of_bytes(left: u64) -> Self {
        let mut p = Self::new();
        p.limiter = RateLimiter::of(Unit::ResponseBytes, p.now, &p.policy);
        assert!(matches!(p.draw(1), DrawResult::Pending { .. }));
        let request = p.ask();
        assert_eq!(request.draw.unwrap().needs, Tokens::ONE);
        assert!(p.answer(request.sequence, 1, &granted(1, left, None)));
        assert_eq!(p.draw(1), DrawResult::Tokens(Tokens::ONE));
        p
    }

    /// Draws for a request that usually has so many bytes.
    fn draw(&mut self, usual: u64) -> DrawResult {
        let usual = Tokens::from_whole(usual);
        self.limiter
            .draw_bytes(self.now, &self.policy, usual, 1, AwaitAction::Hold)
    }

    fn pay_bytes(&mut self, bytes: u64) {
        let owed = Tokens::from_whole(bytes);
        self.limiter.pay(self.now, &self.policy, bytes, owed);
    }
}

#[test]
fn a_request_takes_as_many_bytes_as_usual_where_there_are_many() {
    let mut p = Process::of_bytes(900);
    assert_eq!(p.draw(300), DrawResult::Tokens(Tokens::from_whole(300)));
    let waits = p.draw(200);
    assert!(matches!(waits, DrawResult::Pending { .. }), "{waits:?}");
    let request = p.ask();
    assert_eq!(request.draw.unwrap().owed, Tokens::from_whole(300));
    assert!(p.answer(request.sequence, 1, &granted(501, 400, None)));
    assert_eq!(p.draw(200), DrawResult::Tokens(Tokens::from_whole(200)));
}

#[test]
fn who_brings_no_bytes_passes_or_asks() {
    let mut p = Process::new();
    p.limiter = RateLimiter::of(Unit::RequestBytes, p.now, &p.policy);
    assert!(matches!(p.draw(0), DrawResult::Tokens(_)));
    assert_eq!(p.limiter.state(p.now), LeaseState::Idle);
    p.policy.safe_bytes = Capacity::ZERO;
    p.limiter = RateLimiter::of(Unit::RequestBytes, p.now, &p.policy);
    assert!(matches!(p.draw(0), DrawResult::Pending { .. }));
}

#[test]
fn a_request_waits_for_an_answer_where_there_are_few() {
    let mut p = Process::of_bytes(100);
    assert!(matches!(p.draw(300), DrawResult::Pending { .. }));
    let request = p.ask();
    let draw = request.draw.unwrap();
    let usual = Tokens::from_whole(300);
    assert_eq!((draw.needs, draw.first), (usual, usual));
    let next = Some(Duration::from_millis(500));
    assert!(p.answer(request.sequence, 1, &granted(1 + 300, 0, next)));
    assert_eq!(p.draw(300), DrawResult::Tokens(usual));
    p.pay_bytes(50);
    let request = p.ask();
    assert_eq!(request.draw.unwrap().owed, Tokens::from_whole(50));
    assert!(p.answer(request.sequence, 1, &granted(351, 0, next)));
    let retry_at = Some(p.now.saturating_add(Duration::from_millis(500)));
    assert_eq!(p.draw(300), DrawResult::Denied { retry_at });
}

#[test]
fn what_is_left_lets_a_request_go_on_however_little_it_is() {
    let mut p = Process::of_bytes(100);
    p.limiter.give_back(p.now, &p.policy, Tokens::from_whole(7));
    assert_eq!(p.draw(300), DrawResult::Tokens(Tokens::from_whole(7)));
}

#[test]
fn a_debt_of_the_fleet_is_no_bytes_to_come() {
    let mut p = Process::of_bytes(100);
    p.pay_bytes(3000);
    let request = p.ask();
    let next = Some(Duration::from_secs(3));
    assert!(p.answer(request.sequence, 1, &granted(3001, 0, next)));
    p.after(2999);
    assert!(matches!(p.draw(300), DrawResult::Denied { .. }));
    p.after(1);
    let asks = p.draw(300);
    assert!(matches!(asks, DrawResult::Pending { .. }), "{asks:?}");
}

#[test]
fn bytes_that_come_back_let_nobody_pass_while_the_fleet_is_in_debt() {
    let mut p = Process::of_bytes(100);
    assert!(matches!(p.draw(300), DrawResult::Pending { .. }));
    let request = p.ask();
    let next = Some(Duration::from_secs(1));
    assert!(p.answer(request.sequence, 1, &granted(301, 0, next)));
    assert_eq!(p.draw(300), DrawResult::Tokens(Tokens::from_whole(300)));
    p.limiter
        .give_back(p.now, &p.policy, Tokens::from_whole(80));
    assert!(matches!(p.draw(300), DrawResult::Denied { .. }));
    p.after(1000);
    assert_eq!(p.draw(300), DrawResult::Tokens(Tokens::from_whole(80)));
}
