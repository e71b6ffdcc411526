//! Draws of clients of different priorities.

use super::draws::Drawers;
use super::*;
use crate::lease::Priority;

const HIGH: i64 = 5;
const LOW: i64 = 0;

/// Two tokens a second, of which client 0 in the high band and client 1 in the low one ask for so many each second.
/// Returns what each got in five minutes.
fn five_minutes(guaranteed: &[(i64, u64)], each: [u64; 2]) -> [u64; 2] {
    let mut fleet = Drawers::new(2_000_000, 12);
    let mut limit = fleet.resource.limit().clone();
    for &(priority, rate) in guaranteed {
        let rate = Capacity::from_whole(rate);
        limit.guaranteed = limit.guaranteed.with(Priority::nearest(priority), rate);
    }
    fleet.resource = Resource::new(Unit::Requests, limit, Instant::ZERO);
    let mut got = [0; 2];
    for _ in 0..300 {
        fleet.after(1);
        // The low band comes first.
        for (client, priority) in [(1, LOW), (0, HIGH)] {
            fleet.wants = each[client];
            fleet.priority = Priority::nearest(priority);
            for _ in 0..each[client] {
                got[client] += fleet.draw(client, 1).0;
            }
        }
    }
    got
}

#[test]
fn a_higher_band_gets_all_that_it_asks_for() {
    let [high, low] = five_minutes(&[], [1, 4]);
    assert!(high >= 295, "{high} of 300");
    assert!(high + low >= 605, "{high} and {low} of 612");
}

#[test]
fn a_lower_band_gets_what_a_higher_one_leaves() {
    let [high, low] = five_minutes(&[], [4, 4]);
    assert!(low <= 20, "{low}: little more than the burst");
    assert!(high + low >= 605, "{high} and {low} of 612");
}

#[test]
fn a_lower_band_gets_what_it_is_guaranteed() {
    let [high, low] = five_minutes(&[(LOW, 1)], [4, 4]);
    assert!((290..=320).contains(&low), "{low}");
    assert!(high + low >= 605, "{high} and {low} of 612");
}

#[test]
fn a_low_band_that_is_alone_gets_all() {
    let [_, low] = five_minutes(&[], [0, 4]);
    assert!(low >= 605, "{low} of 612");
}
