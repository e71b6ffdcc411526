//! The history of a node as a message.

use std::time::Duration;

use tollgate_core::lease::{ResourceId, Unit};
use tollgate_proto::v1;

use crate::history::{HistoryWindow, ResourceWindow, STEP, UnitWindow};
use crate::lease_view::ms;

/// The history of this node as a message.
pub(crate) fn peer_history(window: HistoryWindow) -> v1::PeerHistory {
    let units = window
        .units
        .into_iter()
        .map(|(unit, sums)| v1::UnitHistory {
            unit: unit.name().to_owned(),
            capacity: sums.capacity,
            sum_has: sums.has,
            sum_wants: sums.wants,
            waiting_count: sums.waiting,
        });
    v1::PeerHistory {
        step_ms: ms(STEP),
        newest_age_ms: ms(window.newest_age),
        shards: window.shards,
        units: units.collect(),
        resources: window.resources.into_iter().map(resource).collect(),
    }
}

/// Reads the history of another node; none if its steps are of another length, as in another
/// version.
#[expect(clippy::unnecessary_wraps, reason = "as views are read")]
pub(crate) fn history_window(message: v1::PeerHistory) -> Result<Option<HistoryWindow>, String> {
    if message.step_ms != ms(STEP) {
        return Ok(None);
    }
    let units = message.units.into_iter().filter_map(|sums| {
        let window = UnitWindow {
            capacity: sums.capacity,
            has: sums.sum_has,
            wants: sums.sum_wants,
            waiting: sums.waiting_count,
        };
        Some((Unit::from_name(&sums.unit)?, window))
    });
    Ok(Some(HistoryWindow {
        newest_age: Duration::from_millis(message.newest_age_ms),
        shards: message.shards,
        units: units.collect(),
        resources: message.resources.into_iter().filter_map(window).collect(),
    }))
}

fn resource((id, window): (ResourceId, ResourceWindow)) -> v1::ResourceHistory {
    let clients = window.clients.into_iter();
    let clients = clients.map(|(client, has)| v1::ClientHistory { client, has });
    v1::ResourceHistory {
        scope: id.scope.as_ref().to_owned(),
        unit: id.unit.name().to_owned(),
        at_most: window.at_most,
        sum_has: window.has,
        sum_wants: window.wants,
        waiting_count: window.waiting,
        clients: clients.collect(),
    }
}

/// Reads a resource; none if this node does not know its unit.
fn window(message: v1::ResourceHistory) -> Option<(ResourceId, ResourceWindow)> {
    let id = ResourceId {
        scope: message.scope.into(),
        unit: Unit::from_name(&message.unit)?,
    };
    let clients = message.clients.into_iter();
    let clients = clients.map(|client| (client.client, client.has));
    let window = ResourceWindow {
        at_most: message.at_most,
        has: message.sum_has,
        wants: message.sum_wants,
        waiting: message.waiting_count,
        clients: clients.collect(),
    };
    Some((id, window))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_history_is_read_as_it_was_written() {
        let values = |from: u8| vec![f32::from(from), f32::INFINITY, 0.25];
        let resource = ResourceWindow {
            at_most: values(1),
            has: values(2),
            wants: values(3),
            waiting: values(4),
            clients: BTreeMap::from([("envoy-1/a".to_owned(), values(5))]),
        };
        let sums = UnitWindow {
            capacity: values(6),
            has: values(7),
            wants: values(8),
            waiting: values(9),
        };
        let id = ResourceId::new("tenant/acme", Unit::Concurrency).unwrap();
        let window = HistoryWindow {
            newest_age: Duration::from_millis(4321),
            shards: values(10),
            units: BTreeMap::from([(Unit::ResponseBytes, sums)]),
            resources: BTreeMap::from([(id, resource)]),
        };
        let message = peer_history(window.clone());
        assert_eq!(history_window(message.clone()), Ok(Some(window)));
        let other = v1::PeerHistory {
            step_ms: 1000,
            ..message
        };
        assert_eq!(history_window(other), Ok(None));
    }
}
