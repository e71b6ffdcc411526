//! Where the coordinator listens.

use std::net::{Ipv4Addr, SocketAddr};

use serde::Deserialize;
use serde_saphyr::Location;

use super::check::Check;
use super::error::Problem;
use crate::spec::Text;

/// Where the coordinator listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// For Envoys.
    pub grpc: SocketAddr,
    /// For people and Prometheus.
    pub http: SocketAddr,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawListen {
    grpc: Option<Text>,
    http: Option<Text>,
}

// === impl RawListen ===

impl RawListen {
    /// Where `http` stands.
    pub(super) fn http_at(&self) -> Location {
        self.http.as_ref().map_or(Location::UNKNOWN, |text| text.at)
    }
}

// === impl Listen ===

impl Listen {
    pub(super) fn check(check: &mut Check, raw: Option<&RawListen>) -> Self {
        let mut listen = Self::default();
        let Some(raw) = raw else { return listen };
        if let Some(grpc) = check.value(raw.grpc.as_ref(), "listen.grpc", address) {
            listen.grpc = grpc;
        }
        if let Some(http) = check.value(raw.http.as_ref(), "listen.http", address) {
            listen.http = http;
        }
        if listen.grpc == listen.http && listen.grpc.port() != 0 {
            let at = raw.http.as_ref().or(raw.grpc.as_ref());
            let at = at.map_or(Location::UNKNOWN, |text| text.at);
            check.refuse(at, "listen.http", Problem::SameAddress);
        }
        listen
    }
}

impl Default for Listen {
    /// Loopback: who wants to be reached from elsewhere says so.
    fn default() -> Self {
        Self {
            grpc: (Ipv4Addr::LOCALHOST, 7710).into(),
            http: (Ipv4Addr::LOCALHOST, 7711).into(),
        }
    }
}

// === free functions ===

fn address(text: &str) -> Result<SocketAddr, Problem> {
    text.parse().map_err(|_| Problem::Address(text.to_owned()))
}
