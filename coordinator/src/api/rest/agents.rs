//! HTTP connections to the other nodes, with TLS where their doors speak it.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

use crate::cluster::election::Peer;
use crate::net::tls::{Credentials, Newest};

/// How long a node may take to answer: books are looked at in far less.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The most nodes to which connections are kept; room for addresses that nodes have had before.
const AGENTS_MAX: usize = 128;

/// See the module; clones share the connections.
#[derive(Clone, Debug)]
pub(super) struct Agents {
    credentials: Option<Newest<Credentials>>,
    plain: Agent,
    /// Held for a look-up only.
    tls: Arc<Mutex<Made>>,
}

/// Those that speak TLS, by address.
#[derive(Debug, Default)]
struct Made {
    /// With these; with others they are made anew.
    credentials: Option<Arc<Credentials>>,
    agents: BTreeMap<String, Agent>,
}

/// Finds an address, whatever name stands in the URL: that is the one which the certificate has.
#[derive(Debug)]
struct At(Uri);

// === impl Agents ===

impl Agents {
    /// Those that speak TLS do so with `credentials`.
    pub(super) fn new(credentials: Option<Newest<Credentials>>) -> Self {
        Self {
            credentials,
            plain: Agent::new_with_config(config().build()),
            tls: Arc::default(),
        }
    }

    /// What sends requests to the HTTP port of `peer`, over TLS or not, and what their URLs begin
    /// with.
    ///
    /// # Errors
    /// If there are no credentials for TLS, or `peer` has no address.
    pub(super) fn of(&self, peer: &Peer, tls: bool) -> Result<(Agent, String), String> {
        let address = &peer.http;
        if !tls {
            return Ok((self.plain.clone(), format!("http://{address}")));
        }
        let credentials = self.credentials.as_ref();
        let credentials = credentials.map(|newest| newest.borrow().clone());
        let credentials =
            credentials.ok_or("it is to be asked over TLS, and there is no `cluster.tls`")?;
        let base = match credentials.server_name() {
            Some(name) => format!("https://{}", named(name, address)),
            None => format!("https://{address}"),
        };
        let mut made = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = made
            .credentials
            .as_ref()
            .is_some_and(|used| Arc::ptr_eq(used, &credentials));
        if !is_same || made.agents.len() >= AGENTS_MAX {
            made.agents.clear();
            made.credentials = Some(credentials.clone());
        }
        if let Some(agent) = made.agents.get(address) {
            return Ok((agent.clone(), base));
        }
        let agent = with_tls(address, &credentials)?;
        made.agents.insert(address.clone(), agent.clone());
        Ok((agent, base))
    }
}

// === impl At ===

impl Resolver for At {
    fn resolve(
        &self,
        _: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        DefaultResolver::default().resolve(&self.0, config, timeout)
    }
}

// === free functions ===

fn config() -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        // Where the token goes is where it was meant to go.
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(TIMEOUT))
}

fn with_tls(address: &str, credentials: &Credentials) -> Result<Agent, String> {
    let tls = credentials.ureq().map_err(|error| error.to_string())?;
    let at: Uri = format!("https://{address}")
        .parse()
        .map_err(|_| format!("{address:?} is no address"))?;
    let config = config().tls_config(tls).build();
    Ok(Agent::with_parts(
        config,
        DefaultConnector::default(),
        At(at),
    ))
}

/// `name` with the port of `address`.
fn named(name: &str, address: &str) -> String {
    let (_, port) = address.rsplit_once(':').unwrap_or_default();
    match name.parse::<Ipv6Addr>() {
        Ok(name) => format!("[{name}]:{port}"),
        Err(_) => format!("{name}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_takes_the_place_of_the_host() {
        let rows = [
            ("nodes", "10.0.0.1:7711", "nodes:7711"),
            ("nodes", "[::1]:7711", "nodes:7711"),
            ("::1", "node-1:7711", "[::1]:7711"),
            ("127.0.0.1", "node-1:7711", "127.0.0.1:7711"),
        ];
        for (name, address, want) in rows {
            assert_eq!(named(name, address), want);
        }
    }
}
