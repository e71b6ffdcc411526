//! Buckets that a store keeps over crashes.

use super::*;
use crate::fleet::StoredLimit;
use crate::lease::{DrawAnswer, DrawRequest};
use std::collections::BTreeMap;

/// Coordinator with a store, and clients that spend each token that they are granted, on a clock that the test
/// moves.
struct Site {
    server: LeaseServer,
    /// The stored buckets, each with the time of its write.
    store: BTreeMap<ResourceId, (StoredLimit, Instant)>,
    limit: Limit,
    now: Instant,
    /// Tokens that each client was granted, ever.
    granted: [Tokens; 3],
    writes: usize,
}

// === impl Site ===

impl Site {
    /// A limit of so many an hour.
    fn hourly(rate: u64, burst: u64) -> Self {
        let capacity = Capacity::from_micros(rate * 1_000_000 / 3600);
        let mut site = Self {
            server: LeaseServer::new(secs(1), Epoch(1), BOUNDS, Start::Fresh),
            store: BTreeMap::new(),
            limit: Limit {
                burst: Tokens::from_whole(burst),
                ..Limit::new(capacity)
            },
            now: secs(1),
            granted: [Tokens::ZERO; 3],
            writes: 0,
        };
        site.server.keep_buckets(site.now, BTreeMap::new());
        site
    }

    fn after(&mut self, secs: u64) -> &mut Self {
        let end = self.now.saturating_add(Duration::from_secs(secs));
        while let Some(at) = self.server.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.server.handle_timeout(self.now);
        }
        self.now = end;
        self
    }

    /// Asks for `needs` tokens of `tenant/a`; what is to be stored is, before the answer is told.
    fn draw(&mut self, client: usize, needs: u64) -> u64 {
        self.draw_of("tenant/a", client, needs)
    }

    fn draw_of(&mut self, scope: &str, client: usize, needs: u64) -> u64 {
        self.now = self.now.saturating_add(Duration::from_nanos(1));
        let name = std::format!("e/{client}");
        let run = ClientRun::only(ClientId::new(&name).unwrap());
        let resource = ResourceId::new(scope, Unit::Requests).unwrap();
        let wants = Capacity::from_whole(1);
        let request = LeaseRequest {
            draw: Some(DrawRequest {
                account: 1,
                drawn: self.granted[client],
                holds: Tokens::ZERO,
                needs: Tokens::from_whole(needs),
                first: Tokens::ONE,
                ..DrawRequest::default()
            }),
            ..LeaseRequest::new(self.now.as_nanos(), Capacity::ZERO, wants)
        };
        let terms = Terms::of(&self.limit);
        let answer = self
            .server
            .handle_refresh(self.now, &run, &resource, &request, &terms);
        let draw: DrawAnswer = answer.unwrap().draw.unwrap();
        self.write();
        let granted = draw.granted.saturating_sub(self.granted[client]);
        self.granted[client] = draw.granted;
        granted.whole()
    }

    fn write(&mut self) {
        let changes = self.server.take_bucket_changes().changes;
        for change in changes {
            self.writes += 1;
            match change.bucket {
                Some(bucket) => self.store.insert(change.resource, (bucket, self.now)),
                None => self.store.remove(&change.resource),
            };
        }
    }

    /// The coordinator is killed, and starts again at once with what is stored.
    fn crash(&mut self) -> &mut Self {
        let stored = self.store.iter();
        let stored = stored.map(|(id, (bucket, at))| {
            let age = self.now.saturating_since(*at);
            (id.clone(), bucket.after(age))
        });
        let stored = stored.collect();
        self.server = LeaseServer::new(self.now, Epoch(2), BOUNDS, Start::Fresh);
        self.server.keep_buckets(self.now, stored);
        self
    }
}

#[test]
fn a_crash_brings_no_token_back_and_takes_none() {
    let mut site = Site::hourly(10, 10);
    assert_eq!(site.draw(0, 4), 4);
    assert_eq!(site.crash().draw(1, 12), 6);
    assert_eq!(site.crash().draw(2, 12), 0);
    // One each six minutes.
    assert_eq!(site.crash().after(3 * 361).crash().draw(0, 12), 3);
    assert_eq!(site.after(2 * 3600).crash().draw(1, 12), 10);
}

/// Plays `change` of a limit of a hundred a day after 60 of its burst of a hundred were drawn, with a crash
/// at `crash`: before the change, after it, or never. Returns how many of 2000 pass then.
fn left_after(change: impl Fn(&mut Site), crash: Option<bool>) -> u64 {
    let mut site = Site::hourly(100, 100);
    assert_eq!(site.draw(0, 60), 60);
    site.draw(0, 0);
    if crash == Some(false) {
        site.crash();
    }
    change(&mut site);
    // Its clients come again, as they do at each refresh interval.
    site.draw(0, 0);
    if crash == Some(true) {
        site.crash();
    }
    site.draw(1, 2000)
}

#[test]
fn a_limit_that_changes_leaves_as_much_with_a_crash_as_without() {
    fn set(site: &mut Site, rate: u64, burst: u64) {
        site.limit = Limit {
            burst: Tokens::from_whole(burst),
            ..Limit::new(Capacity::from_micros(rate * 1_000_000 / 3600))
        };
        site.draw(2, 0);
    }
    type Change = fn(&mut Site);
    let changes: [(Change, u64); 5] = [
        (|site| set(site, 1000, 100), 40),
        (|site| set(site, 1000, 1000), 940),
        (|site| set(site, 100, 50), 40),
        (|site| set(site, 100, 10), 10),
        (
            |site| {
                set(site, 100, 10);
                set(site, 100, 100);
            },
            40,
        ),
    ];
    for (number, (change, want)) in changes.into_iter().enumerate() {
        for crash in [None, Some(false), Some(true)] {
            let left = left_after(change, crash);
            let least = want - want / 16;
            assert!(
                (least..=want).contains(&left),
                "{number} {crash:?}: {left} of {want}"
            );
        }
    }
}

#[test]
fn a_limit_that_is_lowered_is_stored_for_as_long_as_it_lasts() {
    let mut site = Site::hourly(10, 10);
    assert_eq!(site.draw(0, 10), 10);
    site.limit = Limit {
        burst: Tokens::from_whole(10),
        ..Limit::new(Capacity::from_micros(116))
    };
    site.after(60).draw(0, 0);
    assert_eq!(site.after(3600).crash().draw(1, 10), 0);
}

#[test]
fn a_bucket_that_is_full_again_is_not_stored_any_more() {
    let mut site = Site::hourly(10, 10);
    site.draw(0, 4);
    assert_eq!(site.store.len(), 1);
    site.after(3599).write();
    assert_eq!(site.store.len(), 0);
    assert_eq!(site.crash().draw(0, 12), 10);
}

#[test]
fn a_bucket_that_fills_soon_is_not_stored() {
    for (rate, stored) in [(3600, 1), (3600 * 10, 0)] {
        let mut site = Site::hourly(rate, 99);
        site.draw(0, 4);
        assert_eq!(site.store.len(), stored, "{rate}");
    }
}

#[test]
fn a_large_burst_is_stored_in_parts() {
    let mut site = Site::hourly(1000, 1000);
    for _ in 0..1000 {
        assert_eq!(site.draw(0, 1), 1);
    }
    assert!((60..=80).contains(&site.writes), "{}", site.writes);
    assert_eq!(site.crash().draw(0, 1), 0);

    let mut site = Site::hourly(1000, 1000);
    for _ in 0..500 {
        site.draw(0, 1);
    }
    let left = site.crash().draw(1, 1000);
    assert!((484..=500).contains(&left), "{left}");
}

#[test]
fn an_answer_that_is_told_again_waits_for_the_store_too() {
    let mut site = Site::hourly(10, 10);
    site.draw(0, 4);
    site.draw(0, 0);
    let changes = site.server.take_bucket_changes().changes;
    assert_eq!(changes, []);
    site.granted[0] = Tokens::ZERO;
    let run = ClientRun::only(ClientId::new("e/0").unwrap());
    let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    let request = LeaseRequest {
        draw: Some(DrawRequest {
            account: 1,
            ..DrawRequest::default()
        }),
        ..LeaseRequest::new(site.now.as_nanos() + 1, Capacity::ZERO, Capacity::MAX)
    };
    let terms = Terms::of(&site.limit);
    site.server
        .handle_refresh(site.now, &run, &resource, &request, &terms)
        .unwrap();
    assert!(site.server.take_bucket_changes().is_told);
    assert!(!site.server.take_bucket_changes().is_told);
}

#[test]
fn what_could_not_be_stored_is_to_be_stored_again() {
    let mut site = Site::hourly(10, 10);
    site.draw(0, 4);
    let resource = site.store.pop_first().unwrap().0;
    site.server.bucket_not_stored(&resource);
    site.draw(0, 0);
    assert_eq!(site.store.len(), 1);
    assert_eq!(site.crash().draw(1, 12), 6);
}

/// However often it is killed, all together get no more than one bucket, and little less.
#[test]
fn random_crashes_mint_nothing_and_lose_little() {
    for (seed, (rate, burst)) in [(10, 10), (600, 10), (3600, 1000), (100, 1)]
        .into_iter()
        .enumerate()
    {
        let mut random = seed as u64 + 1;
        let mut below = |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % bound
        };
        let mut site = Site::hourly(rate, burst);
        let begin = site.now;
        let (mut admitted, mut crashes) = (0, 0);
        let mut ideal = crate::bucket::TokenBucket::new(
            site.now,
            site.limit.capacity.as_rate(),
            site.limit.burst,
        );
        let mut ideally = 0;
        for _ in 0..2000 {
            site.after(below(7200 / rate + 2));
            if below(20) == 0 {
                site.crash();
                crashes += 1;
            }
            let needs = 1 + below(2);
            let client = below(3) as usize;
            admitted += site.draw(client, needs);
            // It has spent them.
            site.draw(client, 0);
            let left = Tokens::from_micros(ideal.balance(site.now).max(0) as u64).whole();
            let passed = needs.min(left);
            ideal.take(site.now, Tokens::from_whole(passed)).unwrap();
            ideally += passed;
        }
        let time = site.now.saturating_since(begin);
        let earned = site.limit.capacity.as_rate().tokens_in(time).whole();
        assert!(admitted <= burst + earned, "{rate}: {admitted}");
        assert!(crashes > 50);
        let part = admitted as f64 / ideally as f64;
        assert!(part > 0.97, "{rate}: {admitted} of {ideally}");
    }
}

#[test]
fn no_more_buckets_are_stored_than_may_be() {
    let mut site = Site::hourly(100, 1);
    let bounds = Bounds {
        max_resources: 3,
        max_durable: 2,
        ..BOUNDS
    };
    site.server = LeaseServer::new(secs(1), Epoch(1), bounds, Start::Fresh);
    site.server.keep_buckets(site.now, BTreeMap::new());
    let scopes = ["tenant/a", "tenant/b", "tenant/c"];
    for (client, scope) in scopes.into_iter().enumerate() {
        assert_eq!(site.draw_of(scope, client, 1), 1);
    }
    assert_eq!((site.store.len(), site.server.durable_count()), (2, 2));
    // A token is earned in 36 seconds; then the first two are full, and make room.
    site.after(20);
    assert_eq!(site.draw_of("tenant/c", 2, 1), 0);
    site.after(60);
    assert_eq!(site.draw_of("tenant/c", 2, 1), 1);
    assert_eq!((site.store.len(), site.server.durable_count()), (1, 1));
    // Stored buckets of scopes that no client asks for count until they are full.
    site.now = site.now.saturating_add(Duration::from_secs(1));
    let stored = site
        .store
        .iter()
        .map(|(id, (bucket, _))| (id.clone(), bucket.clone()));
    let stored = stored.collect();
    let bounds = Bounds {
        max_durable: 1,
        ..BOUNDS
    };
    site.server = LeaseServer::new(site.now, Epoch(2), bounds, Start::Fresh);
    site.server.keep_buckets(site.now, stored);
    assert_eq!(site.draw_of("tenant/a", 0, 1), 1);
    assert!(
        !site
            .store
            .contains_key(&ResourceId::new("tenant/a", Unit::Requests).unwrap())
    );
    site.after(60);
    assert_eq!(site.draw_of("tenant/b", 1, 1), 1);
    let is_only = site.store.keys().all(|id| &*id.scope == "tenant/b");
    assert_eq!(
        (site.store.len(), is_only, site.server.durable_count()),
        (1, true, 1)
    );
}
