//! Watches and nudges on the wire.

use tollgate_core::lease::{ClientId, ClientRun, ResourceId};
use tollgate_core::message::SCOPES_MAX;

use crate::field::{FieldError, Rule};
use crate::request::{check_len, client_id, client_run, from_run};
use crate::{number, v1};

/// Watcher of nudges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Client that wants the nudges of its own run.
    Client(ClientRun),
    /// Node of the cluster that wants the nudges of clients that do not watch here themselves.
    Rest,
}

/// Resources that a client should ask for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nudged {
    /// The client; none if it is the one that watches.
    pub client: Option<ClientId>,
    /// The resources; 1 to [`SCOPES_MAX`].
    pub resources: Vec<ResourceId>,
}

// === impl Watch ===

impl TryFrom<v1::WatchRequest> for Watch {
    type Error = FieldError;

    fn try_from(message: v1::WatchRequest) -> Result<Self, FieldError> {
        let run = (message.incarnation, message.term);
        match (message.client_id.as_str(), run) {
            ("", (0, 0)) => Ok(Self::Rest),
            (id, run) => client_run(id, run).map(Self::Client),
        }
    }
}

impl From<&Watch> for v1::WatchRequest {
    fn from(watch: &Watch) -> Self {
        let Watch::Client(client) = watch else {
            return Self::default();
        };
        let (incarnation, term) = from_run(client.run);
        Self {
            client_id: client.id.as_str().to_owned(),
            incarnation,
            term,
        }
    }
}

// === impl Nudged ===

impl TryFrom<v1::WatchResponse> for Nudged {
    type Error = FieldError;

    fn try_from(message: v1::WatchResponse) -> Result<Self, FieldError> {
        check_len("resources", message.resources.len())?;
        let client = match message.client_id.as_str() {
            "" => None,
            id => Some(client_id(id)?),
        };
        let resources = message.resources.iter().enumerate();
        let resources =
            resources.map(|(i, nudged)| resource(nudged).map_err(|e| e.within("resources", i)));
        Ok(Self {
            client,
            resources: resources.collect::<Result<Vec<_>, _>>()?,
        })
    }
}

impl From<&Nudged> for v1::WatchResponse {
    fn from(nudged: &Nudged) -> Self {
        let client = nudged.client.as_ref().map(ClientId::as_str);
        let resources = nudged.resources.iter().take(SCOPES_MAX);
        Self {
            client_id: client.unwrap_or_default().to_owned(),
            resources: resources.map(Into::into).collect(),
        }
    }
}

impl From<&ResourceId> for v1::NudgedResource {
    fn from(id: &ResourceId) -> Self {
        Self {
            scope: id.scope.as_ref().to_owned(),
            unit: number::from_unit(id.unit),
        }
    }
}

// === free functions ===

fn resource(message: &v1::NudgedResource) -> Result<ResourceId, FieldError> {
    let unit = number::to_unit(message.unit);
    let unit = unit.map_err(|rule: Rule| FieldError::new("unit", rule))?;
    ResourceId::new(&message.scope, unit).map_err(|error| FieldError::new("scope", error))
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use tollgate_core::lease::{Epoch, Run, Unit};

    use super::*;

    fn client(run: Run) -> ClientRun {
        ClientRun {
            id: ClientId::new("envoy/1").unwrap(),
            run,
        }
    }

    fn resource(scope: &str) -> ResourceId {
        ResourceId::new(scope, Unit::Requests).unwrap()
    }

    #[test]
    fn a_watch_is_read_as_it_was_written() {
        let incarnation = Run::Incarnation(NonZeroU64::MAX);
        for watch in [
            Watch::Rest,
            Watch::Client(client(incarnation)),
            Watch::Client(client(Run::Term(Epoch(7)))),
        ] {
            let message = v1::WatchRequest::from(&watch);
            assert_eq!(Watch::try_from(message), Ok(watch));
        }
    }

    #[test]
    fn nudges_are_read_as_they_were_written() {
        for client in [None, ClientId::new("envoy/1").ok()] {
            let nudged = Nudged {
                client,
                resources: vec![resource("tenant/a"), resource("tenant/b")],
            };
            let message = v1::WatchResponse::from(&nudged);
            assert_eq!(Nudged::try_from(message), Ok(nudged));
        }
    }

    #[test]
    fn a_bad_field_is_named() {
        let watch = |client_id: &str, incarnation, term| {
            let client_id = client_id.to_owned();
            let request = v1::WatchRequest {
                client_id,
                incarnation,
                term,
            };
            Watch::try_from(request).unwrap_err().path
        };
        assert_eq!(watch("", 1, 0), "client_id");
        assert_eq!(watch("envoy/1", 0, 0), "incarnation");
        assert_eq!(watch("envoy/1", 1, 1), "term");
        let nudged = |client_id: &str, resources: Vec<(&str, i32)>| {
            let resource = |(scope, unit): (&str, i32)| v1::NudgedResource {
                scope: scope.to_owned(),
                unit,
            };
            let response = v1::WatchResponse {
                client_id: client_id.to_owned(),
                resources: resources.into_iter().map(resource).collect(),
            };
            Nudged::try_from(response).unwrap_err().path
        };
        assert_eq!(nudged("", vec![]), "resources");
        assert_eq!(nudged("", vec![("a", 1); SCOPES_MAX + 1]), "resources");
        assert_eq!(nudged("a\n", vec![("a", 1)]), "client_id");
        assert_eq!(nudged("", vec![("a", 1), ("", 1)]), "resources[1].scope");
        assert_eq!(nudged("", vec![("a", 0)]), "resources[0].unit");
    }
}
