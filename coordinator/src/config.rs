//! The configuration file: what is leased, and where the coordinator listens.
//!
//! A file is accepted as a whole or refused as a whole. Every error has the line and column, the
//! field and the rule it breaks; all values are checked before any is reported, so that one run
//! shows everything. Only what is wrong with the shape of the file (an unknown field, a list where
//! a number belongs) is reported alone, because nothing after it can be trusted.

use std::net::{Ipv4Addr, SocketAddr};

use tollgate_core::node::Bounds;

use crate::limits::Limits;

mod admin;
mod check;
mod error;
mod limit;
mod raw;

pub use admin::{Admin, Exposed, Public};
pub use error::{ConfigError, ConfigErrors, Problem};

/// The most limits in a file.
pub const LIMITS_MAX: usize = 10_000;

/// The largest file, in bytes: what [`LIMITS_MAX`] generous limits take.
pub const FILE_LEN_MAX: usize = 8 << 20;

/// A configuration whose values are all good.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// Who may use the admin API.
    pub admin: Admin,
    /// How much to keep at most.
    pub bounds: Bounds,
    /// The limits.
    pub limits: Limits,
}

/// Where the coordinator listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// For Envoys.
    pub grpc: SocketAddr,
    /// For people and Prometheus.
    pub http: SocketAddr,
}

// === impl Config ===

impl Config {
    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ConfigErrors> {
        let raw = raw::read(text)?;
        check::config(&raw)
    }
}

// === impl Listen ===

impl Default for Listen {
    /// Loopback: who wants to be reached from elsewhere says so.
    fn default() -> Self {
        Self {
            grpc: (Ipv4Addr::LOCALHOST, 7710).into(),
            http: (Ipv4Addr::LOCALHOST, 7711).into(),
        }
    }
}

#[cfg(test)]
mod tests;
