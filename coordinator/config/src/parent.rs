//! Section `parent`: the coordinator that this one borrows from.

use std::time::Duration;

use serde::Deserialize;
use tollgate_net::tls::ClientFiles;

use super::client_tls::{RawClientTls, client_tls};
use crate::catalog::check::{Check, Rule, duration};
use crate::catalog::spec::{LocatedScalar, LocatedValue};

/// Addresses as they may be written.
const EXAMPLES: &str = "root:7710, http://root:7710 or https://root:7710";

/// The most addresses of a parent.
const ADDRESSES_MAX: usize = 16;

/// The longest address and the longest name, in bytes. With its shard a name is a client id.
const ADDRESS_LEN_MAX: usize = 270;
const NAME_LEN_MAX: usize = 64;

/// Time that a call to the parent may take: by default, at least and at most.
const TIMEOUT: Duration = Duration::from_secs(1);
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(30);

/// The coordinator that this one borrows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentConfig {
    /// Name by which the parent knows this coordinator, and coordinators below find loops; `None`
    /// stands for its host's name and gRPC port. All nodes of a cluster have the same.
    pub name: Option<String>,
    /// URLs, which are tried in order; never empty.
    pub addresses: Vec<String>,
    /// Time after which a call is lost.
    pub timeout: Duration,
    /// Files for TLS to the parent; `None` for plain text.
    pub tls: Option<ClientFiles>,
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

    /// Checks the parts together, for a node of a cluster or for one that is alone.
    ///
    /// # Errors
    /// The field at fault and the rule that it breaks.
    pub(super) fn check(&self, in_cluster: bool) -> Result<(), (&'static str, &'static str)> {
        let https = |address: &String| address.starts_with("https://");
        if self
            .addresses
            .iter()
            .any(|address| https(address) != self.tls.is_some())
        {
            let rule = "does not go with parent.tls.ca: addresses are https if that is there, and \
                        only then";
            return Err(("parent.addresses", rule));
        }
        if in_cluster && self.name.is_none() {
            let rule = "is missing: the parent must know all nodes of a cluster by the same name";
            return Err(("parent.name", rule));
        }
        Ok(())
    }
}

// === free functions ===

/// Checks the section; `None` if it is absent or has errors, which are noted.
pub(super) fn parent(
    check: &mut Check,
    raw: Option<&LocatedValue<RawParent>>,
) -> Option<ParentConfig> {
    let raw = raw?;
    let section = &raw.value;
    let tls = section.tls.as_ref();
    let tls = tls.and_then(|tls| client_tls(check, "parent.tls", tls));
    let name = check.value(&section.name, "parent.name", name);
    let timeout = check.value(&section.timeout, "parent.timeout", timeout);
    let field = "parent.addresses";
    let Some(list) = &section.addresses else {
        check.missing(raw.at, field);
        return None;
    };
    if !(1..=ADDRESSES_MAX).contains(&list.value.len()) {
        let count = list.value.len();
        let rule = format!("has {count} addresses, not 1 to {ADDRESSES_MAX}");
        check.refuse(list.at, field, rule);
    }
    let addresses = list.value.iter().enumerate().filter_map(|(i, text)| {
        check.value(text, &format!("{field}[{i}]"), |text| {
            address(text, tls.is_some())
                .ok_or_else(|| format!("{text:?} is not an address like {EXAMPLES}").into())
        })
    });
    Some(ParentConfig {
        name,
        addresses: addresses.collect(),
        timeout: timeout.unwrap_or(TIMEOUT),
        tls,
    })
}

/// A coordinator's name, as its parent knows it.
pub(super) fn name(text: &str) -> Result<String, Rule> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    if (1..=NAME_LEN_MAX).contains(&text.len()) && text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        let rule = format!("{text:?} is not 1 to {NAME_LEN_MAX} letters, digits or any of `.-_:`");
        Err(rule.into())
    }
}

fn timeout(text: &str) -> Result<Duration, Rule> {
    let time = duration(text)?;
    if TIMEOUTS.contains(&time) {
        Ok(time)
    } else {
        Err(format!("{text:?} is not a time from 50ms to 30s").into())
    }
}

/// `text` as a URL with a port and nothing behind it; `tls` says what `host:port` alone means.
pub fn address(text: &str, tls: bool) -> Option<String> {
    let url = match text.split_once("://") {
        Some(("http" | "https", _)) => text.to_owned(),
        Some(_) => return None,
        None if tls => format!("https://{text}"),
        None => format!("http://{text}"),
    };
    let uri: http::Uri = url.parse().ok()?;
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let whole = uri.host().is_some_and(|host| !host.is_empty()) && uri.port_u16().is_some();
    let anonymous = !url.contains('@');
    (bare && whole && anonymous && url.len() <= ADDRESS_LEN_MAX).then_some(url)
}

#[cfg(test)]
mod tests;
