//! Limiter for the newest configuration.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_client::{Client, Rule, Settings, SettingsError};
use tollgate_config::{RlsDomains, rls_kinds};
use tollgate_leases::router::Router;
use tollgate_net::clock::Clock;

use super::limiter::Limiter;
use super::transport::LocalTransport;

/// The longest time that a request waits for its scope's first lease, or for tokens of a small limit. Both
/// take a millisecond or two; a refusal because they came later would be wrong. Within the timeout of 0.1 s
/// that `docs/rls.md` gives Envoy's filter.
const FIRST_LEASE_WAIT: Duration = Duration::from_millis(80);
/// The most that a scope may owe, as a time at its rate.
const DEBT_MAX: Duration = Duration::from_secs(60);
/// The most scopes at the same time; more share one bucket for each kind.
const SCOPES_MAX: u32 = 100_000;

/// Limiter for the newest configuration.
///
/// The limits are not in it, but with the leases. So it stays as it is through most changes, with all
/// its leases and balances.
#[derive(Debug)]
pub(super) struct Limiters {
    router: Router,
    clock: Clock,
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    /// The configuration that it was last used for.
    domains: Arc<RlsDomains>,
    limiter: Arc<Limiter>,
}

// === impl Limiters ===

impl Limiters {
    pub(super) const fn new(router: Router, clock: Clock) -> Self {
        Self {
            router,
            clock,
            current: Mutex::new(None),
        }
    }

    /// Returns the limiter for `domains`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn of(&self, domains: &Arc<RlsDomains>) -> Result<Arc<Limiter>, SettingsError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = &mut *current {
            let is_same = Arc::ptr_eq(&current.domains, domains);
            if is_same || rls_kinds(&current.domains) == rls_kinds(domains) {
                if !is_same {
                    current.domains = Arc::clone(domains);
                }
                return Ok(Arc::clone(&current.limiter));
            }
        }
        // The leases of the one before expire, unless its rules are gone for a moment only.
        let client = self.client(&rls_kinds(domains))?;
        let limiter = Limiter::new(client, self.router.masters.clone(), self.clock);
        let limiter = Arc::new(limiter);
        *current = Some(Current {
            domains: Arc::clone(domains),
            limiter: Arc::clone(&limiter),
        });
        Ok(limiter)
    }

    /// Starts a client of the leases; `None` if there are no rules.
    fn client(&self, kinds: &BTreeSet<&str>) -> Result<Option<Client>, SettingsError> {
        if kinds.is_empty() {
            return Ok(None);
        }
        let node = self.router.me.as_ref().map(|me| format!("rls/{}", me.node));
        // The address has no meaning beside a transport.
        let mut settings = Settings::new("http://this-node")
            .node(node.unwrap_or_else(|| "rls".to_owned()))
            .max_scopes(SCOPES_MAX);
        for kind in kinds {
            let rule = Rule::new(*kind).first_lease_wait(FIRST_LEASE_WAIT);
            settings = settings.rule(rule.max_debt(DEBT_MAX));
        }
        let transport = LocalTransport::new(self.router.clone());
        Client::start_with(&settings, transport).map(Some)
    }
}
