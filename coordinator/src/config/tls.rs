//! Section `tls`: the listeners that speak TLS, and their files.

use serde::Deserialize;

use crate::catalog::check::Check;
use crate::catalog::spec::{LocatedScalar, LocatedValue};
use crate::net::tls::{Listener, ServerFiles};

/// Listeners that speak TLS; one without files speaks plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// For Envoys.
    pub grpc: Option<ServerFiles>,
    /// For people and Prometheus.
    pub http: Option<ServerFiles>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTls {
    grpc: Option<LocatedValue<RawFiles>>,
    http: Option<LocatedValue<RawFiles>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFiles {
    cert: Option<LocatedScalar>,
    key: Option<LocatedScalar>,
    client_ca: Option<LocatedScalar>,
}

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
pub(super) fn tls(check: &mut Check, raw: Option<&RawTls>) -> Tls {
    let Some(raw) = raw else {
        return Tls::default();
    };
    Tls {
        grpc: files(check, Listener::Grpc, raw.grpc.as_ref()),
        http: files(check, Listener::Http, raw.http.as_ref()),
    }
}

fn files(
    check: &mut Check,
    listener: Listener,
    raw: Option<&LocatedValue<RawFiles>>,
) -> Option<ServerFiles> {
    let raw = raw?;
    let field = |name| format!("tls.{}.{name}", listener.name());
    let LocatedValue { value: raw, at } = raw;
    let cert = check.required_path(*at, &raw.cert, &field("cert"));
    let key = check.required_path(*at, &raw.key, &field("key"));
    let client_ca = check.path(&raw.client_ca, &field("client_ca"));
    Some(ServerFiles {
        cert: cert?,
        key: key?,
        client_ca,
    })
}
