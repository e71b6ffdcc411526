use std::num::NonZeroU64;

use tollgate_core::lease::{ClientRun, Epoch, LeaseRequest, Run, Unit};
use tollgate_core::lease_server::{Bounds, Start, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::units::Capacity;

use super::*;

/// Lease table of `scopes` in which each client wants 8 of a capacity of 10.
fn lease_server(scopes: &[(&str, &[&str])]) -> LeaseServer {
    let bounds = Bounds {
        max_resources: 100,
        max_clients_per_resource: 100,
        max_leases: 1_000_000,
        max_durable: 100_000,
    };
    let now = Instant::ZERO;
    let mut server = LeaseServer::new(now, Epoch(1), bounds, Start::Fresh);
    let limit = Limit::new(Capacity::from_whole(10));
    for (scope, clients) in scopes {
        let id = ResourceId::new(scope, Unit::Requests).unwrap();
        for client in *clients {
            let client = ClientRun::only(ClientId::new(client).unwrap());
            let ask = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(8));
            server
                .handle_refresh(now, &client, &id, &ask, &Terms::of(&limit))
                .unwrap();
        }
    }
    server
}

fn show<W: ResourceVisitor>(server: &LeaseServer, mut walk: W) -> W {
    for (id, resource) in server.resources() {
        walk.add(server, id, resource, Instant::ZERO);
    }
    walk
}

#[test]
fn a_page_has_the_first_clients_whatever_the_order_of_the_leases() {
    let server = lease_server(&[
        ("a", &["e", "c", "g"]),
        ("b", &["d", "c", "a"]),
        ("c", &["b", "g", "c"]),
    ]);
    let page = |after: &str, max| {
        let first = First {
            after: after.to_owned(),
            max,
            clients: BTreeMap::new(),
        };
        let First { clients, .. } = show(&server, first);
        let clients = clients.into_values();
        clients
            .map(|one| format!("{}{}", one.client, one.resource_count))
            .collect::<String>()
    };
    assert_eq!(page("", 100), "a1b1c3d1e1g2");
    assert_eq!(page("", 3), "a1b1c3");
    assert_eq!(page("c", 2), "d1e1");
    assert_eq!(page("f", 2), "g2");
    assert_eq!(page("g", 2), "");
}

#[test]
fn a_client_has_its_leases_and_waits_for_those_that_are_too_small() {
    let server = lease_server(&[("a", &["one", "two"]), ("b", &["one"]), ("c", &["two"])]);
    let leases = Leases {
        client: ClientId::new("one").unwrap(),
        detail: ClientDetail {
            client: "one".to_owned(),
            drained_for_ms: None,
            lease_count: 0,
            leases: Vec::new(),
            unanswered: Vec::new(),
        },
    };
    let Leases { detail, .. } = show(&server, leases);
    let scopes: Vec<&str> = detail
        .leases
        .iter()
        .map(|lease| lease.scope.as_str())
        .collect();
    assert_eq!(scopes, ["a", "b"]);
    assert_eq!(detail.lease_count, 2);
    assert_eq!(detail.leases[1].wants, Amount::Number(8.0));
    let first = First {
        after: String::new(),
        max: 9,
        clients: BTreeMap::new(),
    };
    // The second to ask found only 2 of 10 free.
    let waiting = show(&server, first).clients;
    let waiting: Vec<usize> = waiting.into_values().map(|one| one.waiting_count).collect();
    assert_eq!(waiting, [0, 1]);
}

/// The lease of the dead run is still counted, and the client is one.
#[test]
fn a_client_that_started_again_is_one_client_with_the_leases_of_both_runs() {
    let mut server = lease_server(&[("a", &["one"]), ("b", &["two"])]);
    let id = ResourceId::new("a", Unit::Requests).unwrap();
    let limit = Limit::new(Capacity::from_whole(10));
    for number in [7, 8] {
        let client = ClientRun {
            id: ClientId::new("two").unwrap(),
            run: Run::Incarnation(NonZeroU64::new(number).unwrap()),
        };
        let ask = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(8));
        server
            .handle_refresh(Instant::ZERO, &client, &id, &ask, &Terms::of(&limit))
            .unwrap();
    }
    let first = First {
        after: String::new(),
        max: 9,
        clients: BTreeMap::new(),
    };
    let clients = show(&server, first).clients;
    let two = &clients["two"];
    assert_eq!((clients.len(), two.resource_count), (2, 2));
    assert_eq!(two.waiting_count, 1, "of a, where there is too little");
    let leases = Leases {
        client: ClientId::new("two").unwrap(),
        detail: ClientDetail {
            client: "two".to_owned(),
            drained_for_ms: None,
            lease_count: 0,
            leases: Vec::new(),
            unanswered: Vec::new(),
        },
    };
    let Leases { detail, .. } = show(&server, leases);
    let scopes: Vec<&str> = detail.leases.iter().map(|one| &*one.scope).collect();
    assert_eq!((detail.lease_count, scopes), (3, vec!["a", "a", "b"]));
}
