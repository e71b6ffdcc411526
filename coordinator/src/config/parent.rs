//! `parent`: the coordinator that this one borrows from.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::check::Check;
use super::client_tls::{RawClientTls, client_tls};
use super::error::Problem;
use crate::catalog::spec::{LocatedScalar, LocatedValue};
use crate::net::tls::ClientFiles;

/// The most addresses of a parent.
const ADDRESSES_MAX: usize = 16;

/// The longest address and the longest name, in bytes. With its shard a name is a client id.
const ADDRESS_LEN_MAX: usize = 270;
const NAME_LEN_MAX: usize = 64;

/// How long a call to the parent may take: by default, at least and at most.
const TIMEOUT: Duration = Duration::from_secs(1);
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(30);

/// The coordinator that this one borrows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentConfig {
    /// How the parent knows this coordinator, and those below find loops; none is its host's name
    /// and gRPC port. All nodes of a cluster have the same.
    pub name: Option<String>,
    /// URLs, which are tried in order; never empty.
    pub addresses: Vec<String>,
    /// After how long a call is lost.
    pub timeout: Duration,
    /// With what it is spoken to over TLS; none for plain text.
    pub tls: Option<ClientFiles>,
}

/// What can be wrong with a value of `parent`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParentProblem {
    /// Not an address.
    #[error("{0:?} is not an address like root:7710, http://root:7710 or https://root:7710")]
    Address(String),
    /// None, or too many.
    #[error("has {0} addresses, not 1 to {ADDRESSES_MAX}")]
    Addresses(usize),
    /// Not a name.
    #[error("{0:?} is not 1 to {NAME_LEN_MAX} letters, digits or any of `.-_:`")]
    Name(String),
    /// No name, where several nodes must be known by one.
    #[error("is missing: the parent must know all nodes of a cluster by the same name")]
    NoName,
    /// Not a time that a call may take.
    #[error("{0:?} is not a time from 50ms to 30s")]
    Timeout(String),
    /// TLS without an issuer to trust, or the other way around.
    #[error("does not go with parent.tls.ca: addresses are https if that is there, and only then")]
    Scheme,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawParent {
    name: Option<LocatedScalar>,
    addresses: Option<LocatedValue<Vec<LocatedScalar>>>,
    timeout: Option<LocatedScalar>,
    tls: Option<LocatedValue<RawClientTls>>,
}

// === impl ParentConfig ===

impl ParentConfig {
    /// The same, or one with defaults, at `addresses` instead.
    pub(super) fn at(config: Option<Self>, addresses: &[String]) -> Self {
        Self {
            addresses: addresses.to_vec(),
            ..config.unwrap_or(Self {
                name: None,
                addresses: Vec::new(),
                timeout: TIMEOUT,
                tls: None,
            })
        }
    }

    /// The same, with relative paths starting at the folder of `file`.
    pub(super) fn beside(self, file: &Path) -> Self {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        Self {
            tls: self.tls.map(|tls| tls.beside(folder)),
            ..self
        }
    }

    /// What its parts must be to each other, and to whether it is a node of a cluster.
    pub(super) fn check(&self, in_cluster: bool) -> Result<(), (&'static str, ParentProblem)> {
        let https = |address: &String| address.starts_with("https://");
        if self
            .addresses
            .iter()
            .any(|address| https(address) != self.tls.is_some())
        {
            return Err(("parent.addresses", ParentProblem::Scheme));
        }
        if in_cluster && self.name.is_none() {
            return Err(("parent.name", ParentProblem::NoName));
        }
        Ok(())
    }
}

// === free functions ===

/// Checks the section; none if it is absent or, which is noted, wrong.
pub(super) fn parent(
    check: &mut Check,
    raw: Option<&LocatedValue<RawParent>>,
) -> Option<ParentConfig> {
    let raw = raw?;
    let said = &raw.value;
    let tls = said.tls.as_ref();
    let tls = tls.and_then(|tls| client_tls(check, "parent.tls", tls));
    let name = check.value(said.name.as_ref(), "parent.name", |text| {
        name(text).ok_or_else(|| ParentProblem::Name(text.to_owned()).into())
    });
    let timeout = check.value(said.timeout.as_ref(), "parent.timeout", |text| {
        let time = humantime::parse_duration(text).ok();
        let time = time.filter(|time| TIMEOUTS.contains(time));
        time.ok_or_else(|| ParentProblem::Timeout(text.to_owned()).into())
    });
    let field = "parent.addresses";
    let Some(list) = &said.addresses else {
        // They may be said on the command line.
        check.refuse(raw.at, field, Problem::Missing);
        return None;
    };
    if !(1..=ADDRESSES_MAX).contains(&list.value.len()) {
        check.refuse(list.at, field, ParentProblem::Addresses(list.value.len()));
    }
    let addresses = list.value.iter().enumerate().filter_map(|(i, text)| {
        check.value(Some(text), &format!("{field}[{i}]"), |text| {
            address(text, tls.is_some())
                .ok_or_else(|| ParentProblem::Address(text.to_owned()).into())
        })
    });
    Some(ParentConfig {
        name,
        addresses: addresses.collect(),
        timeout: timeout.unwrap_or(TIMEOUT),
        tls,
    })
}

fn name(text: &str) -> Option<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    let fits = (1..=NAME_LEN_MAX).contains(&text.len()) && text.bytes().all(good);
    fits.then(|| text.to_owned())
}

/// `text` as a URL with a port and nothing behind it; `tls` says what `host:port` alone means.
pub fn address(text: &str, tls: bool) -> Option<String> {
    let url = match text.split_once("://") {
        Some(("http" | "https", _)) => text.to_owned(),
        Some(_) => return None,
        None if tls => format!("https://{text}"),
        None => format!("http://{text}"),
    };
    let uri: tonic::codegen::http::Uri = url.parse().ok()?;
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let whole = uri.host().is_some_and(|host| !host.is_empty()) && uri.port_u16().is_some();
    let anonymous = !url.contains('@');
    (bare && whole && anonymous && url.len() <= ADDRESS_LEN_MAX).then_some(url)
}

#[cfg(test)]
mod tests;
