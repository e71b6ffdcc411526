//! The plugin's configuration: JSON, as Envoy hands it over.
//!
//! Wrong values are refused as a whole, so that Envoy keeps the configuration before; the error
//! names the field, its value and the rule. Fields that this version does not know are refused as well, with the
//! one that may have been meant: what is ignored limits everybody, or nobody. For a rolling upgrade, in which a newer
//! configuration comes to an older filter, `unknown_fields` may say otherwise.

use core::time::Duration;

use crate::grpc_service::Address;
use crate::host::Host;
use crate::key::Key;
use serde_json::{Map, Value};
use tollgate_core::client::{Mode, Policy};
use tollgate_core::cluster::SHARDS_MAX;

pub(crate) use tollgate_engine::Formats;
use tollgate_engine::codec::SLOTS_MAX;
use tollgate_engine::{EngineConfig, HostFailure, RULES_MAX, RuleConfig};

mod condition;
mod conflict;
mod coordinator;
mod fields;
mod final_cost;
mod key;
mod rule;
mod terms;

use coordinator::{coordinator, names_cluster};
use fields::Fields;
pub(crate) use fields::{shortened, similar};
pub(crate) use rule::{Missing, Rule};
#[cfg(test)]
pub(crate) use terms::Body;
pub(crate) use terms::Terms;

/// Time between two rounds of housekeeping of a worker: renewals, unspent tokens, statistics.
const TICK: Duration = Duration::from_millis(20);

/// Settings of the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Settings of the engine, with the limits of each rule.
    pub(crate) engine: EngineConfig,
    /// Address of the coordinators, if they have no cluster.
    pub(crate) address: Option<Address>,
    /// The same rules as far as they are about requests, in the same order.
    pub(crate) rules: Vec<Rule>,
    /// True if routes and virtual hosts may say otherwise, in their metadata.
    pub(crate) per_route: bool,
    /// Which fields the responses to admitted requests can carry.
    pub(crate) admitted_headers: Formats,
}

/// Defaults of all rules.
#[derive(Debug)]
struct Defaults {
    policy: Policy,
    formats: Formats,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not JSON.
    #[error("the configuration is not JSON: {0}")]
    Syntax(serde_json::Error),
    /// It has these fields, which nobody knows, each perhaps with the one that may have been meant.
    #[error("{}", not_known(.0))]
    Unknown(Vec<String>),
    /// A condition has these fields, which nobody knows.
    #[error("{} not known, and a condition counts as a whole", listed(.0))]
    UnknownCondition(Vec<String>),
    /// A field is missing.
    #[error("{field} is required: {rule}")]
    Required {
        /// The field, with those that it is in.
        field: String,
        /// The rule that its value must keep.
        rule: &'static str,
    },
    /// A field has a value that breaks a rule.
    #[error("{field} is {value}: {rule}")]
    Wrong {
        /// The field, with those that it is in.
        field: String,
        /// Its value.
        value: String,
        /// The rule that its value must keep.
        rule: String,
    },
}

// === impl Config ===

impl Config {
    /// The configuration in `json`, and the fields in it that are not known and may be ignored.
    ///
    /// # Errors
    /// If it is not JSON, a value breaks a rule, or it has fields that nobody knows and does not say otherwise.
    pub fn parse(json: &[u8]) -> Result<(Self, Vec<String>), ConfigError> {
        let value: Value = serde_json::from_slice(json).map_err(ConfigError::Syntax)?;
        let mut unknown = Vec::new();
        let mut root = Fields::new("the configuration", "", &value)?;
        let ignores = ignores_unknown(&mut root)?;
        let config = Self::read(&mut root, &mut unknown)?;
        root.finish(&mut unknown);
        if unknown.is_empty() || ignores {
            Ok((config, unknown))
        } else {
            Err(ConfigError::Unknown(unknown))
        }
    }

    fn read(root: &mut Fields<'_>, unknown: &mut Vec<String>) -> Result<Self, ConfigError> {
        let millis = Duration::from_millis;
        let (coordinator, address) = coordinator(root, unknown)?;
        let call_timeout = millis(root.whole("call_timeout_ms", 1000, 10..=60_000)?);
        let mode = mode_as(root, "no_lease")?.unwrap_or_default();
        let policy = Policy {
            no_lease: mode,
            first_lease_wait: millis(root.whole("first_lease_wait_ms", 250, 0..=10_000)?),
            call_timeout,
            max_debt: millis(root.whole("max_debt_ms", 10_000, 0..=3_600_000)?),
            ..Policy::default()
        };
        let formats = terms::formats(root, "refusal_headers", Terms::DEFAULT.formats)?;
        let defaults = Defaults { policy, formats };
        let shards = shards(root)?;
        let enabled = root.flag("enabled", true)?;
        let (limits, rules) = rules(root, &defaults, unknown)?;
        let admitted_headers = terms::formats(root, "admitted_headers", Formats::default())?;
        Ok(Self {
            engine: EngineConfig {
                coordinator,
                shards,
                enabled,
                rules: limits,
                max_scopes: root.whole("max_scopes", 10_000, 1..=SLOTS_MAX.into())? as u32,
                max_pending: root.whole("max_pending", 1000, 0..=100_000)? as usize,
                max_waiting: root.whole("max_waiting", 4000, 0..=100_000)? as usize,
                tick: TICK,
                call_timeout,
                host_failure: host_failure(root)?,
                reports_limits: admitted_headers.is_any(),
            },
            address,
            rules,
            per_route: root.flag("per_route", false)?,
            admitted_headers,
        })
    }

    /// Makes the expressions in it ready for the streams of the root context at hand.
    ///
    /// # Errors
    /// If Envoy takes one for none, or has no expressions.
    pub fn compile<H: Host>(&mut self, host: &H) -> Result<(), ConfigError> {
        for (index, rule) in self.rules.iter_mut().enumerate() {
            let keys = [("key", Some(&mut rule.key)), ("plan", rule.plan.as_mut())];
            for (field, key) in keys {
                let Some(key) = key else { continue };
                let why = match key.compile(host) {
                    Ok(true) => continue,
                    Ok(false) => {
                        "must be an expression in CEL; Envoy's log says why it is none".to_owned()
                    }
                    Err(error) => format!("cannot be compiled: {error}"),
                };
                return Err(ConfigError::Wrong {
                    field: format!("scopes[{index}].{field}"),
                    value: key.in_words(),
                    rule: why,
                });
            }
        }
        Ok(())
    }

    /// Checks that `can_read` holds for the path of every property that the rules need.
    ///
    /// # Errors
    /// If it does not hold for one.
    pub fn check_properties(
        &self,
        can_read: impl Fn(&[String]) -> bool,
    ) -> Result<(), ConfigError> {
        for (index, rule) in self.rules.iter().enumerate() {
            let of_key = rule.key.properties().into_iter().map(|path| ("key", path));
            let of_plan = rule.plan.iter().flat_map(Key::properties);
            let of_key = of_key.chain(of_plan.map(|path| ("plan", path)));
            let of_cost = rule.final_cost.iter();
            let of_cost = of_cost.filter_map(|cost| Some(("final_cost", cost.property.as_ref()?)));
            let mut unread = of_key.chain(of_cost).filter(|(_, path)| !can_read(path));
            if let Some((field, path)) = unread.next() {
                return Err(ConfigError::Wrong {
                    field: format!("scopes[{index}].{field}"),
                    value: path.join("."),
                    rule: "must be a property that Envoy hands to dynamic modules; \
                           docs/native.md lists them"
                        .to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Returns the name under which the engine knows the coordinators.
    pub fn coordinator(&self) -> &str {
        &self.engine.coordinator
    }

    /// Returns the fate of a request when the host fails.
    pub fn host_failure(&self) -> HostFailure {
        self.engine.host_failure
    }

    /// Returns the address of the coordinators, if they have no cluster.
    pub fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }
}

// === free functions ===

fn not_known(fields: &[String]) -> String {
    let what = if fields.len() > 1 { "them" } else { "it" };
    let fields = listed(fields);
    format!("{fields} not known; \"unknown_fields\": \"warn\" would ignore {what}")
}

/// `fields` with their verb.
fn listed(fields: &[String]) -> String {
    let verb = if fields.len() > 1 { "are" } else { "is" };
    format!("{} {verb}", fields.join(", "))
}

/// Reads whether fields that nobody knows are ignored with a warning.
fn ignores_unknown(root: &mut Fields<'_>) -> Result<bool, ConfigError> {
    match root.text("unknown_fields")? {
        None | Some("refuse") => Ok(false),
        Some("warn") => Ok(true),
        Some(other) => Err(root.wrong("unknown_fields", other, "\"refuse\" or \"warn\"")),
    }
}

fn shards(root: &mut Fields<'_>) -> Result<Vec<String>, ConfigError> {
    let Some(value) = root.take("shards") else {
        return Ok(Vec::new());
    };
    let entries = value.as_array();
    let entries = entries.filter(|list| list.len() <= usize::from(SHARDS_MAX));
    let rule = "a list of at most 64 names of Envoy's clusters, one for each shard";
    let entries = entries.ok_or_else(|| root.wrong("shards", value, rule))?;
    let name = |(index, entry): (usize, &Value)| {
        let name = entry.as_str().filter(|name| names_cluster(name));
        name.map(str::to_owned).ok_or_else(|| {
            let rule = "the name of Envoy's cluster for this shard, 1 to 120 bytes";
            root.wrong(&format!("shards[{index}]"), entry, rule)
        })
    };
    entries.iter().enumerate().map(name).collect()
}

/// Reads the mode without a lease, of a rule or of all.
fn mode_as(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<Mode>, ConfigError> {
    match fields.text(name)? {
        None => Ok(None),
        Some("safe") => Ok(Some(Mode::Safe)),
        Some("optimistic") => Ok(Some(Mode::Optimistic)),
        Some("pessimistic") => Ok(Some(Mode::Pessimistic)),
        Some(other) => {
            let expected = "\"safe\", \"optimistic\" or \"pessimistic\"";
            Err(fields.wrong(name, other, expected))
        }
    }
}

fn host_failure(root: &mut Fields<'_>) -> Result<HostFailure, ConfigError> {
    match root.text("host_failure")? {
        None | Some("open") => Ok(HostFailure::Open),
        Some("closed") => Ok(HostFailure::Closed),
        Some(other) => Err(root.wrong("host_failure", other, "\"open\" or \"closed\"")),
    }
}

fn rules(
    root: &mut Fields<'_>,
    defaults: &Defaults,
    unknown: &mut Vec<String>,
) -> Result<(Vec<RuleConfig>, Vec<Rule>), ConfigError> {
    let expected = "a list of 1 to 16 scope rules";
    let value = root
        .take("scopes")
        .ok_or_else(|| root.required("scopes", expected))?;
    let entries = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if entries.is_empty() || entries.len() > RULES_MAX {
        return Err(root.wrong("scopes", value, expected));
    }
    let mut limits: Vec<RuleConfig> = Vec::with_capacity(entries.len());
    let mut rules = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let path = format!("scopes[{index}]");
        let mut fields = Fields::new(&path, &format!("{path}."), entry)?;
        let (limit, rule) = Rule::read(&mut fields, defaults, unknown)?;
        if limits.iter().any(|other| other.name == limit.name) {
            return Err(fields.wrong("name", limit.name.as_str(), "a name that no other rule has"));
        }
        fields.finish(unknown);
        limits.push(limit);
        rules.push(rule);
    }
    Ok((limits, rules))
}

#[cfg(test)]
mod tests;
