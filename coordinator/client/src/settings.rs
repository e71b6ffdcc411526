//! Settings of a client.

use std::time::Duration;

use tollgate_core::lease::ClientId;
use tollgate_engine::codec::SLOTS_MAX;
use tollgate_engine::{EngineConfig, Formats, HostFailure, Identity, RULES_MAX};
use tonic::transport::ClientTlsConfig;

use crate::rule::Rule;
use crate::settings_error::SettingsError;

/// Time between two rounds of housekeeping: renewals, unspent tokens.
const TICK: Duration = Duration::from_millis(20);

/// Settings of a client.
///
/// ```
/// use std::time::Duration;
/// use tollgate_client::{Rule, Settings};
///
/// let settings = Settings::new("http://tollgate.infra:7710")
///     .node("billing")
///     .rule(Rule::new("tenant").safe_capacity(20.0))
///     .rule(Rule::new("user").max_wait(Duration::from_millis(300)));
/// # let _ = settings;
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) coordinators: Vec<String>,
    pub(crate) tls: Option<ClientTlsConfig>,
    node: String,
    rules: Vec<Rule>,
    max_scopes: u32,
    max_waiting: usize,
    call_timeout: Duration,
    pub(crate) formats: Formats,
    reports_limits: bool,
}

// === impl Settings ===

impl Settings {
    /// Returns settings for the coordinators at `url`, which begins with `http://` or `https://`, without
    /// a rule yet.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            coordinators: vec![url.into()],
            tls: None,
            node: "client".to_owned(),
            rules: Vec::new(),
            max_scopes: 10_000,
            max_waiting: 4000,
            call_timeout: Duration::from_secs(1),
            formats: Formats {
                ietf: true,
                draft03: false,
            },
            reports_limits: false,
        }
    }

    /// Adds another node of the same cluster, which is asked when those before do not answer.
    #[must_use]
    pub fn or(mut self, url: impl Into<String>) -> Self {
        self.coordinators.push(url.into());
        self
    }

    /// Sets whom to trust, and who this client is, for coordinators at `https://`.
    #[must_use]
    pub fn tls(mut self, tls: ClientTlsConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the name of this service, as operators see it among the clients of a scope; `client` by
    /// default. Each process adds a number of its own.
    #[must_use]
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = name.into();
        self
    }

    /// Adds a scope rule; 1 to 16 are needed.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the most scopes that are limited at the same time, 1 to 1 000 000; 10 000 by default.
    #[must_use]
    pub fn max_scopes(mut self, scopes: u32) -> Self {
        self.max_scopes = scopes;
        self
    }

    /// Sets the most requests that wait for their turn at the same time; 4000 by default.
    #[must_use]
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = requests;
        self
    }

    /// Sets the time after which a call to a coordinator counts as lost, 10 ms to a minute; a second by
    /// default.
    #[must_use]
    pub fn call_timeout(mut self, time: Duration) -> Self {
        self.call_timeout = time;
        self
    }

    /// Sets which drafts of draft-ietf-httpapi-ratelimit-headers the headers of refusals follow; the
    /// current one by default.
    #[must_use]
    pub fn formats(mut self, formats: Formats) -> Self {
        self.formats = formats;
        self
    }

    /// Has each [`Permit`](crate::Permit) say how the limits stand.
    #[must_use]
    pub fn report_limits(mut self, reports: bool) -> Self {
        self.reports_limits = reports;
        self
    }

    /// Checks all but the addresses.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let wrong = |field, value: &dyn ToString, rule: &str| {
            Err(SettingsError {
                field,
                value: value.to_string(),
                rule: rule.to_owned(),
            })
        };
        if !(1..=SLOTS_MAX).contains(&self.max_scopes) {
            return wrong("max_scopes", &self.max_scopes, "must be 1 to 1 000 000");
        }
        let millis = self.call_timeout.as_millis();
        if !(10..=60_000).contains(&millis) {
            return wrong(
                "call_timeout",
                &format!("{millis} ms"),
                "must be 10 ms to a minute",
            );
        }
        if !(1..=RULES_MAX).contains(&self.rules.len()) {
            return wrong("rules", &self.rules.len(), "there must be 1 to 16");
        }
        let identity = self.identity([0; 24]);
        let id = format!("{}/{:032x}", identity.node, identity.process);
        if self.node.is_empty() {
            return wrong("node", &"\"\"", "must not be empty");
        }
        if let Err(error) = ClientId::new(&id) {
            return wrong("node", &self.node, &error.to_string());
        }
        for (index, rule) in self.rules.iter().enumerate() {
            rule.check()?;
            let before = self.rules.iter().take(index);
            if before.into_iter().any(|other| other.name() == rule.name()) {
                return wrong("rule", &rule.name(), "two rules have this name");
            }
        }
        Ok(())
    }

    pub(crate) fn engine_config(&self) -> EngineConfig {
        let rules = self.rules.iter();
        EngineConfig {
            coordinator: "tollgate".to_owned(),
            shards: Vec::new(),
            enabled: true,
            rules: rules.map(|rule| rule.config(self.call_timeout)).collect(),
            max_scopes: self.max_scopes,
            max_pending: 1000,
            max_waiting: self.max_waiting,
            tick: TICK,
            call_timeout: self.call_timeout,
            // The memory of a process does not fail.
            host_failure: HostFailure::Open,
            reports_limits: self.reports_limits,
        }
    }

    /// Returns the identity of a process that has drawn `random`.
    pub(crate) fn identity(&self, random: [u8; 24]) -> Identity {
        let (worker, process) = random.split_at(8);
        Identity {
            worker: u64::from_le_bytes(worker.try_into().unwrap_or_default()),
            node: self.node.clone(),
            plugin: String::new(),
            process: u128::from_le_bytes(process.try_into().unwrap_or_default()),
        }
    }
}
