use tollgate_core::lease::{ClientId, ClientRun, DrawRequest, Epoch, LeaseRequest};
use tollgate_core::lease_server::{Bounds, Start, Terms};
use tollgate_core::limit::{Limit, Part};
use tollgate_core::traffic::Tally;

use super::*;

/// A lease table with one scope of a capacity of 100.
struct Table {
    server: LeaseServer,
    now: Instant,
}

// === impl Table ===

impl Table {
    fn new() -> Self {
        let bounds = Bounds {
            max_resources: 10,
            max_clients_per_resource: 100,
            max_leases: 1000,
            max_durable: 100_000,
        };
        let now = Instant::ZERO;
        let server = LeaseServer::new(now, Epoch(1), bounds, Start::Fresh);
        Self { server, now }
    }

    /// Refreshes `client`, which has and wants so much, a millisecond after the refresh before, with a
    /// lease of an hour.
    fn refresh(&mut self, client: &str, sequence: u64, (has, wants): (u64, u64)) {
        let whole = Capacity::from_whole;
        self.send(
            client,
            LeaseRequest::new(sequence, whole(has), whole(wants)),
        );
    }

    /// Refreshes `client`, which has counted so much since the start.
    fn tally(&mut self, client: &str, sequence: u64, counts: Counts) {
        let ask = LeaseRequest {
            tally: Tally { since: 0, counts },
            ..LeaseRequest::new(sequence, Capacity::ZERO, Capacity::from_whole(1))
        };
        self.send(client, ask);
    }

    fn send(&mut self, client: &str, ask: LeaseRequest) {
        self.now = self.now.saturating_add(Duration::from_millis(1));
        let client = ClientRun::only(ClientId::new(client).unwrap());
        let whole = Capacity::from_whole;
        let limit = Limit {
            headroom: Part::NONE,
            lease: Duration::from_secs(3600),
            min_refresh: Duration::from_millis(1),
            ..Limit::new(whole(100))
        };
        let id = ResourceId::new("a", Unit::Requests).unwrap();
        self.server
            .handle_refresh(self.now, &client, &id, &ask, &Terms::of(&limit))
            .unwrap();
    }

    /// Draws a token of a limit of five a second, whose bucket holds ten.
    fn draw(&mut self, client: &str) {
        let limit = Limit {
            burst: Tokens::from_whole(10),
            ..Limit::new(Capacity::from_whole(5))
        };
        let draw = DrawRequest {
            needs: Tokens::ONE,
            ..DrawRequest::default()
        };
        let ask = LeaseRequest {
            draw: Some(draw),
            ..LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(1))
        };
        let client = ClientRun::only(ClientId::new(client).unwrap());
        let id = ResourceId::new("a", Unit::Requests).unwrap();
        self.server
            .handle_refresh(self.now, &client, &id, &ask, &Terms::of(&limit))
            .unwrap();
    }

    fn detail(&self, clients: usize) -> UnitDetail {
        let found = ScopeDetail::find(&self.server, self.now, "a", clients);
        found.unwrap().units.remove("requests").unwrap()
    }
}

fn names(detail: &UnitDetail) -> Vec<&str> {
    let clients = detail.clients.iter();
    clients.map(|client| client.client.as_str()).collect()
}

/// The first client has its larger lease until it acknowledges the smaller one, and is throttled.
#[test]
fn a_client_that_has_to_give_back_what_it_wants_is_throttled_in_every_figure() {
    let mut table = Table::new();
    table.refresh("one", 1, (0, 100));
    assert_eq!(table.detail(9).waiting_count, 0);
    table.refresh("two", 1, (0, 100));
    table.refresh("one", 2, (100, 100));
    let detail = table.detail(9);
    let one = detail.clients.iter().find(|one| one.client == "one");
    let one = one.unwrap();
    assert_eq!((one.has, one.wants), (Amount::Number(100.0), one.has));
    assert_eq!(one.throttled_for_ms, Some(0));
    let marked = detail.clients.iter();
    let marked = marked.filter(|client| client.throttled_for_ms.is_some());
    assert_eq!((detail.waiting_count, marked.count()), (2, 2));
    let id = ResourceId::new("a", Unit::Requests).unwrap();
    let busy = BusyResource::find(&table.server, table.now, &id, 1).unwrap();
    assert_eq!(busy.waiting_count, 2);
}

#[test]
fn of_too_many_clients_those_throttled_for_longest_come_first() {
    let mut table = Table::new();
    let all: Vec<String> = (0..40).map(|i| format!("envoy-{i}")).collect();
    // All that is there goes to these, and the others get nothing.
    table.refresh(&all[7], 1, (0, 30));
    table.refresh(&all[3], 1, (0, 70));
    for client in all.iter().filter(|one| ![&all[7], &all[3]].contains(one)) {
        table.refresh(client, 1, (0, 5));
    }
    let whole = table.detail(100);
    assert_eq!((whole.clients.len(), whole.waiting_count), (40, 38));
    // By the definition: sorted, cut, and again in the order of the table.
    for max in [1, 2, 5, 38, 39, 40] {
        let mut want: Vec<(usize, &ResourceClient)> = whole.clients.iter().enumerate().collect();
        let has = |client: &ResourceClient| match client.has {
            Amount::Number(has) => has as u64,
            Amount::Unlimited => u64::MAX,
        };
        want.sort_by_key(|(_, client)| Reverse((client.throttled_for_ms, has(client))));
        want.truncate(max);
        want.sort_by_key(|(place, _)| *place);
        let want: Vec<&str> = want.iter().map(|(_, one)| one.client.as_str()).collect();
        let detail = table.detail(max);
        assert_eq!(names(&detail), want, "{max}");
        let longest = detail.clients.iter().map(|one| one.throttled_for_ms).max();
        assert_eq!(longest, Some(detail.throttled_for_ms), "{max}");
    }
    // Of those that are not throttled, the one with the larger lease.
    let detail = table.detail(39);
    assert!(names(&detail).contains(&&*all[3]) && !names(&detail).contains(&&*all[7]));
}

#[test]
fn a_limit_that_is_drawn_shows_its_bucket() {
    let mut table = Table::new();
    table.refresh("one", 1, (0, 100));
    assert_eq!(table.detail(9).summary.bucket, None, "it is leased");
    let mut table = Table::new();
    table.draw("one");
    table.draw("two");
    let bucket = BucketView {
        left: 8.0,
        held: 2.0,
        drawn: 2.0,
    };
    assert_eq!(table.detail(9).summary.bucket, Some(bucket));
    assert_eq!(table.server.drawn(), Tokens::from_whole(2));
}

#[test]
fn what_clients_are_asked_for_and_refuse_is_seen() {
    let mut table = Table::new();
    table.refresh("one", 1, (0, 100));
    assert_eq!(table.detail(9).summary.traffic, TrafficView::default());
    let counts = |attempts, refused| Counts { attempts, refused };
    table.tally("one", 2, counts(30, 10));
    // The answer to that was lost.
    table.tally("one", 3, counts(50, 10));
    table.tally("two", 1, counts(10, 10));
    let traffic = TrafficView {
        attempts_per_second: 60.0,
        refused_per_second: 20.0,
        attempts: 60,
        refused: 20,
    };
    assert_eq!(table.detail(9).summary.traffic, traffic);
}
