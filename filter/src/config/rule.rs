//! A scope rule: the scope that a request counts for, and its limits.

use core::ops::RangeInclusive;
use core::time::Duration;

use serde_json::Value;
use tollgate_core::client::Policy;
use tollgate_core::lease::Priority;
use tollgate_core::units::Capacity;
use tollgate_engine::{Overflow, RuleConfig, Shape};

use super::fields::Fields;
use super::final_cost::final_cost;
use super::key::constant;
use super::{ConfigError, Defaults, Terms, condition, key, mode_as};
use crate::condition::Condition;
use crate::final_cost::FinalCost;
use crate::key::{Key, RULE_NAME_LEN_MAX};

/// The longest wait, in milliseconds: shorter than the time after which a scope that nobody uses
/// makes room for others.
const MAX_WAIT_MS: RangeInclusive<u64> = 1..=30_000;
/// Numbers of requests of one key that may wait.
const MAX_WAITING: RangeInclusive<u64> = 1..=100_000;

/// Which scope a request belongs to, and how its refusals look. The rule's limits are in a
/// [`RuleConfig`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    /// Where the second part of the scope id is.
    pub(crate) key: Key,
    /// Where the plan is that its scopes are told apart by, if they are.
    pub(crate) plan: Option<Key>,
    /// Which requests it is about; without one, all.
    pub(crate) when: Option<Condition>,
    /// Fate of a request that has no key.
    pub(crate) missing: Missing,
    /// Form of its refusals.
    pub(crate) terms: Terms,
    /// Where it finds at a request's end what it has cost in all, if it does.
    pub(crate) final_cost: Option<FinalCost>,
}

/// Fate of a request without a usable key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The rule does not apply to it.
    Skip,
    /// It is answered with 400.
    Deny,
    /// It has this key.
    Default(String),
}

// === impl Rule ===

impl Rule {
    /// One entry of `scopes`.
    pub(super) fn read(
        fields: &mut Fields<'_>,
        defaults: &Defaults,
        unknown: &mut Vec<String>,
    ) -> Result<(RuleConfig, Self), ConfigError> {
        let name = name(fields)?;
        let key = key::required(fields, unknown)?;
        let plan = key::key(fields, "plan", unknown)?;
        let missing = missing(fields, "missing", unknown)?;
        let missing = missing.unwrap_or_else(|| Missing::Default("unknown".to_owned()));
        let when = condition::condition(fields)?;
        let policy = Policy {
            no_lease: mode_as(fields, "no_lease")?.unwrap_or(defaults.policy.no_lease),
            safe: capacity(fields, "safe_capacity", "a number of requests per second")?
                .unwrap_or(defaults.policy.safe),
            safe_bytes: capacity(fields, "safe_bytes", "a number of bytes per second")?
                .unwrap_or(defaults.policy.safe_bytes),
            safe_concurrency: capacity(fields, "safe_concurrency", "a number of requests")?
                .unwrap_or(defaults.policy.safe_concurrency),
            priority: priority(fields)?,
            ..defaults.policy.clone()
        };
        let terms = Terms::read(fields, defaults.formats, unknown)?;
        let (enforced, on_overflow) = (enforced(fields, &terms)?, on_overflow(fields)?);
        let (estimate, final_cost) = final_cost(fields, unknown)?.unzip();
        let limits = RuleConfig {
            name,
            policy,
            enforced,
            on_overflow,
            final_cost: estimate,
            shape: shape(fields)?,
            marks: terms.marks,
        };
        let rule = Self {
            key,
            plan,
            when,
            missing,
            terms,
            final_cost,
        };
        Ok((limits, rule))
    }
}

// === free functions ===

fn name(fields: &mut Fields<'_>) -> Result<String, ConfigError> {
    let expected = "1 to 40 of a-z, 0-9, _ and -";
    let name = fields
        .text("name")?
        .ok_or_else(|| fields.required("name", expected))?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if name.is_empty() || name.len() > RULE_NAME_LEN_MAX || !name.bytes().all(plain) {
        return Err(fields.wrong("name", name, expected));
    }
    Ok(name.to_owned())
}

fn missing(
    fields: &mut Fields<'_>,
    name: &'static str,
    unknown: &mut Vec<String>,
) -> Result<Option<Missing>, ConfigError> {
    let expected = "\"skip\", \"deny\" or {\"default\": KEY} with a key of 1 to 200 bytes";
    Ok(match fields.take(name) {
        None => None,
        Some(Value::String(word)) if word == "skip" => Some(Missing::Skip),
        Some(Value::String(word)) if word == "deny" => Some(Missing::Deny),
        Some(value @ Value::Object(_)) => {
            let path = fields.path(name);
            let mut inner = Fields::new(&path, &format!("{path}."), value)?;
            let text = inner
                .text("default")?
                .ok_or_else(|| inner.required("default", expected))?;
            inner.finish(unknown);
            Some(Missing::Default(constant(&inner, "default", text)?))
        }
        Some(other) => return Err(fields.wrong(name, other, expected)),
    })
}

fn capacity(
    fields: &mut Fields<'_>,
    name: &'static str,
    expected: &str,
) -> Result<Option<Capacity>, ConfigError> {
    let Some(value) = fields.take(name) else {
        return Ok(None);
    };
    let number = value
        .as_f64()
        .ok_or_else(|| fields.wrong(name, value, expected))?;
    Capacity::try_from_f64(number)
        .map(Some)
        .map_err(|error| fields.wrong_as(name, value, error.to_string()))
}

fn priority(fields: &mut Fields<'_>) -> Result<Priority, ConfigError> {
    let level = fields.whole("priority", 0, 0..=Priority::HIGHEST.level().into())?;
    Ok(Priority::new(level as u8).unwrap_or_default())
}

fn enforced(fields: &mut Fields<'_>, terms: &Terms) -> Result<u8, ConfigError> {
    if terms.marks {
        return match fields.take("enforced_percent") {
            None => Ok(0),
            Some(percent) => Err(fields.wrong(
                "enforced_percent",
                percent,
                "absent beside \"on_limit\": \"mark\"",
            )),
        };
    }
    Ok(fields.whole("enforced_percent", 100, 0..=100)? as u8)
}

/// Returns how requests beyond the limit wait, if they do.
fn shape(fields: &mut Fields<'_>) -> Result<Option<Shape>, ConfigError> {
    let shape = Shape {
        max_wait: Duration::from_millis(fields.whole("max_wait_ms", 1000, MAX_WAIT_MS)?),
        max_waiting: fields.whole("max_waiting", 1000, MAX_WAITING)? as usize,
    };
    match fields.text("on_limit")? {
        None | Some("refuse" | "mark") => Ok(None),
        Some("shape") => Ok(Some(shape)),
        Some(other) => Err(fields.wrong("on_limit", other, "\"refuse\", \"shape\" or \"mark\"")),
    }
}

fn on_overflow(fields: &mut Fields<'_>) -> Result<Overflow, ConfigError> {
    match fields.text("on_overflow")? {
        None | Some("share") => Ok(Overflow::Share),
        Some("pass") => Ok(Overflow::Pass),
        Some("refuse") => Ok(Overflow::Refuse),
        Some(other) => {
            let expected = "\"share\", \"pass\" or \"refuse\"";
            Err(fields.wrong("on_overflow", other, expected))
        }
    }
}
