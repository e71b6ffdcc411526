//! Section `listen`: addresses of the listeners.

use std::net::{Ipv4Addr, SocketAddr};

use serde::Deserialize;
use serde_saphyr::Location;

use crate::catalog::check::{Check, Rule};
use crate::catalog::spec::LocatedScalar;

/// Addresses of the listeners.
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
    pub(super) grpc: Option<LocatedScalar>,
    pub(super) http: Option<LocatedScalar>,
    pub(super) insecure_grpc: Option<LocatedScalar>,
}

// === impl Listen ===

impl Listen {
    pub(super) fn check(check: &mut Check, raw: Option<&RawListen>) -> Self {
        let mut listen = Self::default();
        let Some(raw) = raw else { return listen };
        let (grpc, http) = (raw.grpc.as_ref(), raw.http.as_ref());
        check.set(&mut listen.grpc, grpc, "listen.grpc", address);
        check.set(&mut listen.http, http, "listen.http", address);
        if listen.grpc == listen.http && listen.grpc.port() != 0 {
            let text = raw.http.as_ref().or(raw.grpc.as_ref());
            check.refuse(
                at(text),
                "listen.http",
                "is the same address as listen.grpc",
            );
        }
        listen
    }
}

impl Default for Listen {
    /// Loopback; other machines are let in on request.
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

/// Where `text` stands.
pub(super) fn at(text: Option<&LocatedScalar>) -> Location {
    text.map_or(Location::UNKNOWN, |text| text.at)
}

fn address(text: &str) -> Result<SocketAddr, Rule> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an address like 127.0.0.1:7710").into())
}
