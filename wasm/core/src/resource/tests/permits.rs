//! Permits of requests in flight that are drawn.

use super::draws::run;
use super::*;
use crate::lease::DrawRequest;
use crate::limit::Part;
use crate::units::Tokens;

/// A client of five in flight asks, each 10 ms.
struct InFlight {
    resource: Resource,
    sequence: u64,
}

impl InFlight {
    fn new() -> Self {
        let limit = Limit {
            headroom: Part::ALL,
            ..Limit::new(Capacity::from_whole(5))
        };
        Self {
            resource: Resource::new(Unit::Concurrency, limit, Instant::ZERO),
            sequence: 0,
        }
    }

    fn ask(&mut self, client: usize, (has, wants): (u64, u64), draws: bool) -> (u64, bool) {
        self.sequence += 1;
        let now = Instant::from_nanos(10_000_000 * self.sequence);
        let draw = DrawRequest {
            account: 1,
            ..DrawRequest::default()
        };
        let [has, wants] = [has, wants].map(Capacity::from_whole);
        let request = LeaseRequest {
            draw: draws.then_some(draw),
            ..LeaseRequest::new(self.sequence, has, wants)
        };
        let mut pool = PoolLink(None);
        let answer = self
            .resource
            .handle_refresh(now, &run(client), &request, 10, &mut pool);
        let answer = answer.unwrap();
        let gets = answer.lease.unwrap().capacity.as_micros();
        (gets / Tokens::ONE.as_micros(), answer.draw.is_some())
    }
}

#[test]
fn permits_are_where_they_are_needed_whenever_that_is() {
    let mut all = InFlight::new();
    assert_eq!(all.ask(0, (0, 2), true), (2, true));
    assert_eq!(all.ask(0, (2, 4), true), (4, true));
    assert_eq!(all.ask(1, (0, 2), true), (1, true));
    // One has ended, and the other client can have it at once.
    assert_eq!(all.ask(0, (3, 3), true), (3, true));
    assert_eq!(all.ask(1, (1, 2), true), (2, true));
}

#[test]
fn one_that_cannot_draw_permits_has_headroom() {
    let mut all = InFlight::new();
    assert_eq!(all.ask(0, (0, 2), false), (5, false));
}

#[test]
fn what_is_in_flight_beyond_the_share_is_leased_on_until_it_ends() {
    let mut all = InFlight::new();
    assert_eq!(all.ask(0, (0, 5), true), (5, true));
    for _ in 0..3000 {
        assert_eq!(all.ask(0, (5, 5), true), (5, true));
        assert_eq!(all.ask(1, (0, 3), true), (0, true));
    }
    // Its share is less, and one of the five has ended.
    assert_eq!(all.ask(0, (4, 5), true), (4, true));
    assert_eq!(all.ask(1, (0, 3), true), (1, true));
}
