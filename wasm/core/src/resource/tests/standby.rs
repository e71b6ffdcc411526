//! Standby capacity of clients that draw.

use super::draws::{Drawers, run};
use super::*;
use crate::units::Tokens;

impl Drawers {
    /// Three clients of six a second that have drawn for longer than a lease.
    fn old() -> Self {
        let mut fleet = Self::new(6_000_000, 60);
        for _ in 0..11 {
            for client in 0..3 {
                fleet.draw(client, 1);
            }
            fleet.after(1);
            fleet.resource.note_silences(fleet.now);
        }
        fleet
    }

    /// Standby capacity of a client, by its next answer.
    fn standby(&mut self, client: usize) -> u64 {
        let answer = self.lose(client, 0);
        answer.draw.unwrap().standby.as_micros()
    }
}

#[test]
fn all_together_are_promised_no_more_than_the_capacity() {
    let mut fleet = Drawers::old();
    assert_eq!(
        fleet.standby(0),
        2_000_000,
        "its share, and a part of the rest"
    );
    // It wants all, but the others have been promised theirs.
    fleet.wants = 6;
    assert_eq!(fleet.standby(0), 2_000_000);
    fleet.wants = 1;
    let others = fleet.standby(1) + fleet.standby(2);
    fleet.wants = 6;
    let own = fleet.standby(0);
    assert_eq!(own, 6_000_000 - others);
    assert!(own > 3_000_000, "{own}");
}

#[test]
fn a_young_client_is_promised_nothing() {
    let mut fleet = Drawers::new(6_000_000, 60);
    assert_eq!(fleet.standby(0), 0);
    assert_eq!(fleet.after(5).standby(0), 0);
    assert!(fleet.after(5).standby(0) > 0, "it is there for a lease");
}

#[test]
fn the_fleets_bucket_earns_no_standby_capacity_of_a_client_that_is_silent() {
    let mut fleet = Drawers::old();
    let mut secs = |secs| {
        let mut together = 0;
        for _ in 0..secs {
            fleet.after(1);
            fleet.resource.note_silences(fleet.now);
            together += fleet.draw(1, 60).0 + fleet.draw(2, 60).0;
        }
        together
    };
    secs(4);
    let together = secs(4);
    assert_eq!(together, 4 * 4, "two of six a second are the other's");
    let client = fleet.resource.client_snapshot(fleet.now, &run(0)).unwrap();
    assert_eq!(client.draws.standby, Capacity::from_whole(2));
    // Its lease ends.
    for _ in 0..3 {
        fleet.after(1);
        fleet.resource.note_silences(fleet.now);
        fleet.resource.expire(fleet.now);
        fleet.draw(1, 60);
    }
    assert_eq!(fleet.resource.client_snapshot(fleet.now, &run(0)), None);
    fleet.draw(2, 60);
    fleet.after(1);
    let both = fleet.draw(1, 60).0 + fleet.draw(2, 60).0;
    assert_eq!(both, 6);
}

#[test]
fn the_fleets_bucket_earns_nothing_while_all_are_cut_off() {
    let mut fleet = Drawers::old();
    fleet.draw(0, 60);
    for client in 0..3 {
        fleet.standby(client);
    }
    // The first request after a long time finds that all were missed two seconds after their last.
    let left = fleet.after(9).lose(0, 0).draw.unwrap().left;
    assert!(
        left <= Tokens::from_whole(6 * 3),
        "{left:?} of nine seconds"
    );
}

#[test]
fn no_lease_is_granted_out_of_what_a_client_that_is_cut_off_may_use() {
    let mut fleet = Drawers::new(100_000_000, 100);
    fleet.wants = 5;
    for _ in 0..11 {
        fleet.draw_or_lease(0, 1);
        fleet.draw_or_lease(1, 1);
        fleet.after(1);
    }
    let standby = fleet.standby(0);
    assert!(standby >= 40_000_000, "{standby}");
    fleet.wants = 100;
    let mut lease = Capacity::ZERO;
    for _ in 0..6 {
        fleet.after(1);
        lease = fleet.lose(1, 1).lease.unwrap().capacity;
    }
    assert!(lease > Capacity::ZERO, "it is leased");
    let together = lease.as_micros() + standby;
    assert!(together <= 100_000_000, "{together}");
}
