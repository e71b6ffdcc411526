//! `tls` of those whom a coordinator calls: whom to trust, and what to show.

use std::path::PathBuf;

use rustls::pki_types::ServerName;
use serde::Deserialize;

use super::check::Check;
use super::error::Problem;
use crate::catalog::spec::{LocatedScalar, LocatedValue};
use crate::net::tls::ClientFiles;

/// What can be wrong with such a section.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClientTlsProblem {
    /// A key without a certificate, or the other way around.
    #[error("is missing: cert and key belong together")]
    Half,
    /// Not a name that a certificate can have.
    #[error("{0:?} is neither the name of a host nor an IP address, without a port")]
    ServerName(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawClientTls {
    ca: Option<LocatedScalar>,
    cert: Option<LocatedScalar>,
    key: Option<LocatedScalar>,
    server_name: Option<LocatedScalar>,
}

// === impl RawClientTls ===

impl RawClientTls {
    /// Whether it says what to show.
    pub(super) fn shows(&self) -> bool {
        self.cert.is_some() || self.key.is_some()
    }
}

// === free functions ===

/// Checks `raw`, the section called `section`; none if that is, which is noted, wrong.
pub(super) fn client_tls(
    check: &mut Check,
    section: &str,
    raw: &LocatedValue<RawClientTls>,
) -> Option<ClientFiles> {
    let field = |name: &str| format!("{section}.{name}");
    let LocatedValue { value: raw, at } = raw;
    if raw.ca.is_none() {
        check.refuse(*at, field("ca"), Problem::Missing);
    }
    let ca = check.value(raw.ca.as_ref(), &field("ca"), path);
    let cert = check.value(raw.cert.as_ref(), &field("cert"), path);
    let key = check.value(raw.key.as_ref(), &field("key"), path);
    let missing = match (&raw.cert, &raw.key) {
        (None, Some(key)) => Some(("cert", key.at)),
        (Some(cert), None) => Some(("key", cert.at)),
        _ => None,
    };
    if let Some((name, at)) = missing {
        check.refuse(at, field(name), ClientTlsProblem::Half);
    }
    let server_name = check.value(raw.server_name.as_ref(), &field("server_name"), |text| {
        match ServerName::try_from(text) {
            Ok(_) => Ok(text.to_owned()),
            Err(_) => Err(ClientTlsProblem::ServerName(text.to_owned()).into()),
        }
    });
    Some(ClientFiles {
        ca: ca?,
        identity: cert.zip(key),
        server_name,
    })
}

fn path(text: &str) -> Result<PathBuf, Problem> {
    match text {
        "" => Err(Problem::Empty),
        path => Ok(path.into()),
    }
}
