//! Messages between nodes: the views of the admin API in JSON, and histories.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tollgate_proto::v1;
use tonic::Status;

mod history;

pub(crate) use self::history::{history_window, peer_history};

/// Writes a view, if there is one.
///
/// # Errors
/// If it has no JSON, as no view does.
pub(super) fn to_message<V: Serialize>(view: Option<&V>) -> Result<v1::PeerView, Status> {
    let json = view.map(serde_json::to_vec).transpose();
    let json = json.map_err(|error| Status::internal(error.to_string()))?;
    Ok(v1::PeerView {
        json: json.unwrap_or_default(),
    })
}

/// Reads a view; none if the node has nothing to show.
///
/// # Errors
/// If it is not one of this version.
pub(crate) fn view<V: DeserializeOwned>(message: v1::PeerView) -> Result<Option<V>, String> {
    if message.json.is_empty() {
        return Ok(None);
    }
    let view = serde_json::from_slice(&message.json);
    view.map(Some)
        .map_err(|error| format!("its answer cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use crate::lease_view::{
        Amount, BusyResource, LimitedBy, ResourceClient, TrafficView, UnitSummary,
    };

    use super::*;

    #[test]
    fn a_view_is_read_as_it_was_written() {
        for capacity in [Amount::Unlimited, Amount::Number(0.1)] {
            let resource = BusyResource {
                scope: "a".to_owned(),
                unit: "requests".to_owned(),
                summary: UnitSummary {
                    capacity,
                    safe: Some(capacity),
                    learning_ms: 7,
                    sum_has: Amount::Number(0.5),
                    sum_wants: Amount::Number(2.5),
                    client_count: 1,
                    written: None,
                    limited_by: Some(LimitedBy {
                        whose: "own limit".to_owned(),
                        at_most: capacity,
                    }),
                    bucket: None,
                    quotas: Vec::new(),
                    traffic: TrafficView::default(),
                },
                waiting_count: 1,
                throttled_for_ms: None,
                clients: vec![ResourceClient {
                    client: "envoy-1/a".to_owned(),
                    wants: Amount::Number(2.5),
                    has: Amount::Unlimited,
                    expires_in_ms: 3,
                    throttled_for_ms: Some(4000),
                }],
            };
            let message = to_message(Some(&resource)).unwrap();
            assert_eq!(view(message), Ok(Some(resource)));
        }
        assert_eq!(
            view::<Amount>(to_message::<Amount>(None).unwrap()),
            Ok(None)
        );
        for wrong in ["\"much\"", "null", "[]"] {
            let json = wrong.as_bytes().to_vec();
            assert!(view::<Amount>(v1::PeerView { json }).is_err(), "{wrong}");
        }
    }
}
