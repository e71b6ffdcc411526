use std::sync::Arc;

use tollgate_core::lease::Unit;
use tollgate_proto::v1;

use super::query::DEFAULT;
use super::*;
use crate::leases::stats::{GroupScopes, ResourceSelection, ResourceSort, SortOrder};
use crate::leases::view::{Amount, UnitSummary};

fn busy(scope: &str, capacity: Amount, wants: f64) -> BusyResource {
    BusyResource {
        scope: scope.to_owned(),
        unit: "requests".to_owned(),
        summary: UnitSummary {
            capacity,
            safe: Some(Amount::Unlimited),
            learning_ms: 0,
            sum_has: Amount::Number(0.0),
            sum_wants: Amount::Number(wants),
            client_count: 1,
            limited_by: None,
        },
        waiting_count: 0,
        throttled_for_ms: None,
        clients: Vec::new(),
    }
}

#[test]
fn what_a_node_says_is_read_as_it_was_written() {
    let one = busy("a", Amount::Unlimited, 2.5);
    let text = serde_json::to_value(&one).unwrap();
    let read: BusyResource = serde_json::from_value(text).unwrap();
    assert_eq!(read, one);
    for wrong in ["\"much\"", "null", "[]"] {
        assert!(serde_json::from_str::<Amount>(wrong).is_err(), "{wrong}");
    }
}

/// A node of an older version tells its busiest resources whatever it is asked for.
#[test]
fn of_a_peer_that_selects_nothing_what_it_tells_is_counted() {
    let sums = v1::UnitSums {
        unit: "requests".to_owned(),
        resource_count: 7,
        ..v1::UnitSums::default()
    };
    let busiest = ["tenant/acme", "tenant/bee"].map(|scope| busy(scope, Amount::Unlimited, 1.0));
    let peer = |match_count| v1::PeerStatus {
        units: vec![sums.clone()],
        busiest: busiest.clone().map(Into::into).to_vec(),
        match_count,
        ..v1::PeerStatus::default()
    };
    let acme = Shown {
        selection: DEFAULT.selection.searching("Acme"),
        ..DEFAULT
    };
    let rows = [(&DEFAULT, None, 7), (&acme, None, 1), (&acme, Some(5), 5)];
    for (shown, told, want) in rows {
        let status = shown.status_of_peer(peer(told));
        assert_eq!((status.match_count, status.resource_count), (want, 7));
    }
}

#[test]
fn a_peer_reads_what_is_asked_for() {
    let query = StatusQuery::default().checked().unwrap();
    assert_eq!(query.selection, DEFAULT.selection);
    for sort in [
        ResourceSort::Pressure,
        ResourceSort::Scope,
        ResourceSort::Capacity,
        ResourceSort::Leased,
        ResourceSort::Wanted,
        ResourceSort::Waiting,
        ResourceSort::Clients,
    ] {
        for order in [SortOrder::Asc, SortOrder::Desc] {
            let selection = ResourceSelection {
                unit: Some(Unit::Concurrency),
                throttled_only: true,
                group: Some(GroupScopes::new(Arc::default(), "gold")),
                ..ResourceSelection::busiest()
            };
            let shown = Shown {
                resources: 3,
                clients: 4,
                selection: selection.searching("Acme").sorted_by(sort, Some(order)),
            };
            let read = Shown::of_message(shown.message(true), Arc::default()).unwrap();
            assert_eq!(read.selection, shown.selection);
            assert_eq!((read.resources, read.clients), (3, 4));
        }
    }
}
