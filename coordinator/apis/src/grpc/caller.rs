//! Names in certificates, for what a caller says of itself.
//!
//! A client's id is its word. For an Envoy that is enough: each of its runs has leases of its own,
//! under a number that only it knows. A coordinator below has one lease for all its runs, and a
//! higher term takes it over; so a forged one would keep the real one out for a lease.

use std::sync::Arc;

use tollgate_config::CallerNames;
use tollgate_core::lease::{ClientRun, Run};
use tollgate_net::tls::PeerNames;
use tonic::Extensions;

/// Checks callers by the names in their certificates.
#[derive(Clone, Debug)]
pub struct CallerCheck(Arc<CallerNames>);

/// Caller, by its certificate.
#[derive(Clone, Debug, Default)]
pub struct Caller(PeerNames);

/// Reason for which a caller is not who it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallerError {
    /// Another certificate belongs to that coordinator.
    #[error("client_id: {0:?} must show a certificate with a name of tls.grpc.children.{0}")]
    OtherCertificate(String),
    /// Only a coordinator has a term, and this one is not known.
    #[error("term: no coordinator {0:?} is in tls.grpc.children")]
    UnknownChild(String),
    /// The call is one between nodes.
    #[error("a node must show a certificate with a name of tls.grpc.nodes")]
    NoNode,
}

// === impl Caller ===

impl Caller {
    /// The caller of a request with these `extensions`.
    pub fn of(extensions: &Extensions) -> Self {
        Self(extensions.get::<PeerNames>().cloned().unwrap_or_default())
    }
}

// === impl CallerCheck ===

impl CallerCheck {
    /// Checks by `names`.
    pub fn new(names: &CallerNames) -> Self {
        Self(Arc::new(names.clone()))
    }

    /// Checks whether `caller` may speak for `client`.
    ///
    /// # Errors
    /// If it may not.
    pub fn client(&self, caller: &Caller, client: &ClientRun) -> Result<(), CallerError> {
        let Some(children) = &self.0.children else {
            return Ok(());
        };
        // To its parent each shard of a coordinator is a client.
        let id = client.id.as_str();
        let name = id.rsplit_once('/').map_or(id, |(name, _)| name);
        match children.get(name) {
            Some(names) if caller.0.has_one_of(names) => Ok(()),
            Some(_) => Err(CallerError::OtherCertificate(name.to_owned())),
            None if matches!(client.run, Run::Term(_)) => {
                Err(CallerError::UnknownChild(name.to_owned()))
            }
            None => Ok(()),
        }
    }

    /// Checks whether `caller` may call as another node of the cluster.
    ///
    /// # Errors
    /// If it may not.
    pub fn node(&self, caller: &Caller) -> Result<(), CallerError> {
        let is_allowed = match &self.0.nodes {
            Some(names) => caller.0.has_one_of(names),
            // A forwarded call says itself for whom: without nodes, nobody may forward for a child.
            None => self.0.children.is_none(),
        };
        is_allowed.then_some(()).ok_or(CallerError::NoNode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_names_every_caller_is_who_it_says() {
        let check = CallerCheck::new(&CallerNames::default());
        let client = ClientRun {
            id: tollgate_core::lease::ClientId::new("eu/0").unwrap(),
            run: Run::Term(tollgate_core::lease::Epoch(7)),
        };
        let caller = Caller::of(&Extensions::default());
        assert_eq!(check.client(&caller, &client), Ok(()));
        assert_eq!(check.node(&caller), Ok(()));
    }

    #[test]
    fn nobody_calls_as_a_node_where_coordinators_below_have_names_and_nodes_have_none() {
        let names = CallerNames {
            children: Some([("eu".to_owned(), vec!["eu.example".to_owned()])].into()),
            nodes: None,
        };
        let caller = Caller::of(&Extensions::default());
        let result = CallerCheck::new(&names).node(&caller);
        assert_eq!(result, Err(CallerError::NoNode));
    }
}
