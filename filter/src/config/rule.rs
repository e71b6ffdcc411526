//! A scope rule: whom a request counts for, and what becomes of it.

use serde_json::Value;
use tollgate_core::client::Policy;
use tollgate_core::lease::Priority;
use tollgate_core::units::Capacity;

use super::fields::Fields;
use super::key::constant;
use super::{ConfigError, Defaults, RULE_NAME_LEN_MAX, Terms, condition, key, mode};
use crate::condition::Condition;
use crate::key::Key;

/// Which scope a request belongs to, and what holds there without a coordinator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    /// The first part of the scope id.
    pub(crate) name: String,
    /// Where the second part is.
    pub(crate) key: Key,
    /// Which requests it is about; without one, all.
    pub(crate) when: Option<Condition>,
    /// What becomes of a request that has no key.
    pub(crate) missing: Missing,
    /// What becomes of one whose key is not usable.
    pub(crate) malformed: Missing,
    pub(crate) policy: Policy,
    /// How its refusals look.
    pub(crate) terms: Terms,
    /// Of a hundred requests that it would refuse, how many it does; none is shadow mode.
    pub(crate) enforced: u8,
    pub(crate) on_overflow: Overflow,
}

/// What becomes of a request without a usable key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The rule does not apply to it.
    Skip,
    /// It is answered with 400.
    Deny,
    /// It has this key.
    Default(String),
}

/// What becomes of scopes for which no slot is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// They share one.
    Share,
    /// The rule does not apply to them.
    Pass,
    /// They are refused.
    Refuse,
}

// === impl Rule ===

impl Rule {
    /// One entry of `scopes`.
    pub(super) fn read(
        fields: &mut Fields<'_>,
        defaults: &Defaults,
        unknown: &mut Vec<String>,
    ) -> Result<Self, ConfigError> {
        let name = name(fields)?;
        let key = key::key(fields, unknown)?;
        let missing = missing(fields, "missing", unknown)?;
        let missing = missing.unwrap_or_else(|| Missing::Default("unknown".to_owned()));
        Ok(Self {
            name,
            key,
            when: condition::condition(fields, unknown)?,
            malformed: missing_or(fields, &missing, unknown)?,
            missing,
            policy: Policy {
                mode: mode(fields)?.unwrap_or(defaults.policy.mode),
                safe: capacity(fields, "safe_capacity", "a number of requests per second")?
                    .unwrap_or(defaults.policy.safe),
                safe_bytes: capacity(fields, "safe_bytes", "a number of bytes per second")?
                    .unwrap_or(defaults.policy.safe_bytes),
                safe_concurrency: capacity(fields, "safe_concurrency", "a number of requests")?
                    .unwrap_or(defaults.policy.safe_concurrency),
                priority: priority(fields)?,
                ..defaults.policy.clone()
            },
            terms: Terms::read(fields, defaults.formats, unknown)?,
            enforced: enforced(fields)?,
            on_overflow: on_overflow(fields)?,
        })
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

fn missing_or(
    fields: &mut Fields<'_>,
    otherwise: &Missing,
    unknown: &mut Vec<String>,
) -> Result<Missing, ConfigError> {
    let malformed = missing(fields, "malformed", unknown)?;
    Ok(malformed.unwrap_or_else(|| otherwise.clone()))
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

fn enforced(fields: &mut Fields<'_>) -> Result<u8, ConfigError> {
    let percent = fields.whole("enforced_percent", 100, 0..=100)? as u8;
    match fields.text("mode")? {
        None | Some("enforce") => Ok(percent),
        Some("shadow") => Ok(0),
        Some(other) => Err(fields.wrong("mode", other, "\"enforce\" or \"shadow\"")),
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
