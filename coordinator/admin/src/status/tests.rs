use std::sync::Arc;

use tollgate_core::lease::Unit;

use super::query::DEFAULT;
use super::*;
use crate::stats::{GroupScopes, ResourceSelection, ResourceSort, SortOrder};

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
