//! Section `tls`: the listeners that speak TLS, and their files.

use serde::Deserialize;
use serde_saphyr::Location;
use tollgate_net::tls::{Listener, ServerFiles};

use super::callers::{CallerNames, RawChildren, RawNames};
use crate::catalog::check::Check;
use crate::catalog::spec::{LocatedScalar, LocatedValue};

/// Listeners that speak TLS; one without files speaks plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// For Envoys.
    pub grpc: Option<ServerFiles>,
    /// For people and Prometheus.
    pub http: Option<ServerFiles>,
    /// Names in the certificates of coordinators that call.
    pub callers: CallerNames,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTls {
    grpc: Option<LocatedValue<RawGrpc>>,
    http: Option<LocatedValue<RawFiles>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGrpc {
    cert: Option<LocatedScalar>,
    key: Option<LocatedScalar>,
    client_ca: Option<LocatedScalar>,
    children: Option<RawChildren>,
    nodes: Option<RawNames>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFiles {
    cert: Option<LocatedScalar>,
    key: Option<LocatedScalar>,
    client_ca: Option<LocatedScalar>,
}

/// The files of a listener as they are written: certificate, key and issuers of clients'.
type WrittenFiles<'a> = [&'a Option<LocatedScalar>; 3];

// === impl Tls ===

impl Tls {
    /// The listeners that speak TLS.
    pub fn each(&self) -> impl Iterator<Item = (Listener, &ServerFiles)> {
        let listeners = [(Listener::Grpc, &self.grpc), (Listener::Http, &self.http)];
        listeners
            .into_iter()
            .filter_map(|(listener, files)| Some((listener, files.as_ref()?)))
    }
}

// === free functions ===

/// Checks the section; the files are checked when they are opened.
pub(super) fn tls(check: &mut Check, raw: Option<&RawTls>, in_cluster: bool) -> Tls {
    let mut tls = Tls::default();
    let Some(raw) = raw else {
        return tls;
    };
    if let Some(LocatedValue { value: raw, at }) = &raw.grpc {
        let written = [&raw.cert, &raw.key, &raw.client_ca];
        tls.grpc = files(check, Listener::Grpc, *at, written);
        let names = (raw.children.as_ref(), raw.nodes.as_ref());
        tls.callers = CallerNames::check(check, names, raw.client_ca.is_some(), in_cluster);
    }
    if let Some(LocatedValue { value: raw, at }) = &raw.http {
        let written = [&raw.cert, &raw.key, &raw.client_ca];
        tls.http = files(check, Listener::Http, *at, written);
    }
    tls
}

fn files(
    check: &mut Check,
    listener: Listener,
    at: Location,
    [cert, key, client_ca]: WrittenFiles<'_>,
) -> Option<ServerFiles> {
    let field = |name| format!("tls.{}.{name}", listener.name());
    let cert = check.required_path(at, cert, &field("cert"));
    let key = check.required_path(at, key, &field("key"));
    let client_ca = check.path(client_ca, &field("client_ca"));
    Some(ServerFiles {
        cert: cert?,
        key: key?,
        client_ca,
    })
}
