//! Section `tls`: the listeners that speak TLS, and their files.

use std::path::Path;

use serde::Deserialize;

use super::values::not_empty;
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
    /// The same, with relative paths starting at the folder of `file`.
    pub(super) fn beside(self, file: &Path) -> Self {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        let beside = |files: ServerFiles| ServerFiles {
            cert: folder.join(files.cert),
            key: folder.join(files.key),
            client_ca: files.client_ca.map(|path| folder.join(path)),
        };
        Self {
            grpc: self.grpc.map(beside),
            http: self.http.map(beside),
        }
    }

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
    for (name, text) in [("cert", &raw.value.cert), ("key", &raw.value.key)] {
        if text.is_none() {
            check.missing(raw.at, field(name));
        }
    }
    let cert = check.value(raw.value.cert.as_ref(), &field("cert"), not_empty);
    let key = check.value(raw.value.key.as_ref(), &field("key"), not_empty);
    let client_ca = check.value(raw.value.client_ca.as_ref(), &field("client_ca"), not_empty);
    Some(ServerFiles {
        cert: cert?,
        key: key?,
        client_ca,
    })
}
