//! Time since when a client has got less than it wants.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::lease_server::ResourceSnapshot;
use crate::limit::Part;

const CLIENTS: [&str; 3] = ["a", "b", "c"];

/// The throttled times of the clients of `fleet`, in milliseconds.
fn throttled_ms(fleet: &Fleet) -> BTreeMap<&str, u128> {
    let records = fleet.resource.clients();
    let times = records.filter_map(|record| {
        let since = record.throttled_since?;
        Some((record.id.as_str(), since.elapsed(fleet.now).as_millis()))
    });
    times.collect()
}

#[test]
fn the_time_begins_with_the_first_refresh_that_gets_less_and_ends_with_one_that_does_not() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.headroom = Part::NONE;
    // Client, has and wants; what it gets; the time since when it has got less, if it has. 100 ms
    // pass before each.
    let rows = [
        ("a", 0, 600, 600, None),
        ("b", 0, 700, 400, Some(0)),
        ("b", 400, 700, 400, Some(100)),
        ("a", 600, 600, 500, Some(0)),
        ("b", 400, 600, 400, Some(300)),
        ("a", 500, 600, 500, Some(200)),
        ("b", 400, 600, 500, Some(500)),
        ("b", 500, 300, 300, None),
        ("a", 500, 600, 500, Some(500)),
        ("b", 300, 300, 300, None),
        ("a", 500, 600, 600, None),
        ("a", 600, 2000, 700, Some(0)),
    ];
    for (row, (client, has, wants, want_gets, want_ms)) in rows.into_iter().enumerate() {
        let answer = fleet.refresh(client, has, wants);
        let time = throttled_ms(&fleet).get(client).copied();
        assert_eq!((gets(&answer), time), (want_gets, want_ms), "row {row}");
    }
}

/// An answer that is repeated within the minimum interval counts with the wants of its request.
#[test]
fn a_repeated_answer_counts_as_well() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.headroom = Part::NONE;
    fleet.refresh("a", 0, 100);
    fleet.now = fleet.now.saturating_add(Duration::from_millis(1));
    assert_eq!(gets(&fleet.ask("a", 2, 100, 900).unwrap()), 100);
    assert_eq!(throttled_ms(&fleet), [("a", 0)].into());
    fleet.now = fleet.now.saturating_add(Duration::from_millis(1));
    assert_eq!(gets(&fleet.ask("a", 3, 100, 50).unwrap()), 100);
    assert_eq!(throttled_ms(&fleet), BTreeMap::new());
}

/// The next master's clock may have started a moment ago.
#[test]
fn the_time_goes_on_at_the_next_master() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.refresh("a", 0, 2 * CAPACITY);
    fleet.now = fleet.now.saturating_add(Duration::from_secs(5));
    fleet.hand_over(at(3));
    assert_eq!(throttled_ms(&fleet), [("a", 5000)].into());
    fleet.refresh("a", CAPACITY, 2 * CAPACITY);
    assert_eq!(throttled_ms(&fleet), [("a", 5100)].into());
    // A master of a version that does not know the time begins anew.
    let mut snapshot = fleet.snapshot();
    snapshot.clients[0].throttled_for = None;
    fleet.resource = Resource::restore(fleet.now, &snapshot).unwrap();
    assert_eq!(throttled_ms(&fleet), BTreeMap::new());
    fleet.refresh("a", CAPACITY, 2 * CAPACITY);
    assert_eq!(throttled_ms(&fleet), [("a", 0)].into());
}

// === impl Fleet ===

impl Fleet {
    fn snapshot(&self) -> ResourceSnapshot {
        ResourceSnapshot {
            id: crate::lease::ResourceId::new("tenant/acme", Unit::Requests).unwrap(),
            limit: self.limit.clone(),
            pool: None,
            learning: Duration::ZERO,
            crowded: Duration::ZERO,
            balance: Duration::ZERO,
            bucket: None,
            quotas: Vec::new(),
            clients: self.resource.client_snapshots(self.now),
        }
    }

    /// Lets a master go on whose clock says `now`.
    fn hand_over(&mut self, now: Instant) {
        let snapshot = self.snapshot();
        self.resource = Resource::restore(now, &snapshot).unwrap();
        self.now = now;
    }
}

/// Something that happens to a resource.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client asks for so much; so many milliseconds have passed.
    Refresh(usize, u64, u64),
    /// The capacity changes.
    Capacity(u64),
    /// Another master takes over, whose clock says so many milliseconds.
    HandOver(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let refresh = (0..CLIENTS.len(), 0..1500_u64, 0..900_u64);
    prop_oneof![
        20 => refresh.prop_map(|(client, wants, ms)| Event::Refresh(client, wants, ms)),
        1 => (0..1500_u64).prop_map(Event::Capacity),
        1 => (0..9000_u64).prop_map(Event::HandOver),
    ]
}

proptest! {
    /// The time is that since the first of the latest answers without a break that were less than
    /// was wanted, whatever happens.
    #[test]
    fn the_time_is_that_of_the_answers(events in prop::collection::vec(event(), 1..120)) {
        let mut fleet = Fleet::new(LEARNED);
        // The lease of each client, and the time since when it has got less than it wanted, by a
        // clock that no hand-over turns back.
        let mut has = [0; CLIENTS.len()];
        let mut since: [Option<u64>; CLIENTS.len()] = [None; CLIENTS.len()];
        let mut clock_ms = 0;
        for event in events {
            match event {
                Event::Capacity(capacity) => fleet.limit.capacity = Capacity::from_whole(capacity),
                Event::HandOver(now) => fleet.hand_over(at(now)),
                Event::Refresh(client, wants, ms) => {
                    fleet.now = fleet.now.saturating_add(Duration::from_millis(ms));
                    clock_ms += ms;
                    // One that has been silent for a whole lease is forgotten.
                    fleet.resource.expire(fleet.now);
                    let known: Vec<&str> = fleet.resource.clients().map(|c| c.id.as_str()).collect();
                    for (client, since) in CLIENTS.into_iter().zip(&mut since) {
                        *since = since.filter(|_| known.contains(&client));
                    }
                    fleet.sequence += 1;
                    let answer = fleet.ask(CLIENTS[client], fleet.sequence, has[client], wants);
                    let got = answer.unwrap().lease.map_or(0, |lease| lease.capacity.as_micros());
                    has[client] = got / 1_000_000;
                    since[client] = if got < wants * 1_000_000 { since[client].or(Some(clock_ms)) } else { None };
                }
            }
            let want = CLIENTS.into_iter().zip(since);
            let want = want.filter_map(|(client, since)| Some((client, u128::from(clock_ms - since?))));
            prop_assert_eq!(throttled_ms(&fleet), want.collect::<BTreeMap<_, _>>());
        }
    }
}
