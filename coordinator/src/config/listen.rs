//! Where the coordinator listens.

use std::net::{Ipv4Addr, SocketAddr};

use serde::Deserialize;
use serde_saphyr::Location;

use super::admin::yes_or_no;
use super::check::Check;
use super::error::Problem;
use crate::catalog::spec::LocatedScalar;

/// Where the coordinator listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// For Envoys.
    pub grpc: SocketAddr,
    /// For people and Prometheus.
    pub http: SocketAddr,
}

/// A gRPC listener that other machines can reach in plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} can be reached from other machines, and that needs TLS (tls.grpc.cert and \
     tls.grpc.key); to serve without, say `listen.insecure_grpc: true` or --insecure-grpc"
)]
pub struct PlainGrpc {
    /// The address that the listener would have.
    pub address: SocketAddr,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawListen {
    grpc: Option<LocatedScalar>,
    http: Option<LocatedScalar>,
    insecure_grpc: Option<LocatedScalar>,
}

// === impl RawListen ===

impl RawListen {
    /// Where `grpc` stands.
    pub(super) fn grpc_at(&self) -> Location {
        self.grpc.as_ref().map_or(Location::UNKNOWN, |text| text.at)
    }

    /// Where `http` stands.
    pub(super) fn http_at(&self) -> Location {
        self.http.as_ref().map_or(Location::UNKNOWN, |text| text.at)
    }

    /// Whether the file lets the gRPC listener speak plain text beyond loopback.
    pub(super) fn insecure_grpc(&self, check: &mut Check) -> bool {
        let text = self.insecure_grpc.as_ref();
        let insecure = check.value(text, "listen.insecure_grpc", yes_or_no);
        insecure.unwrap_or(false)
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

    /// Whether gRPC may be served here in plain text.
    ///
    /// # Errors
    /// If other machines can reach the address.
    pub fn may_serve_plain_grpc(&self) -> Result<(), PlainGrpc> {
        match is_loopback(self.grpc) {
            true => Ok(()),
            false => Err(PlainGrpc { address: self.grpc }),
        }
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

/// Whether only this machine can reach `address`.
pub(super) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn address(text: &str) -> Result<SocketAddr, Problem> {
    text.parse().map_err(|_| Problem::Address(text.to_owned()))
}
