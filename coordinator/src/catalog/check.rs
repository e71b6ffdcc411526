//! Rules for limits, groups and attachments, in the YAML file and in the API's JSON.
//!
//! A `Check` collects every error of a configuration, so that one run shows all of them. An error
//! is the broken rule of one field; each section states its own rules.

use std::fmt;

use serde_saphyr::Location;

use crate::catalog::spec::LocatedScalar;

mod attachment;
mod error;
mod group;
mod scope;
mod unit;
mod values;

pub use error::{ConfigError, ConfigErrors};

pub(crate) use attachment::attachment;
pub(crate) use group::group;
pub(crate) use scope::scope_limits;
pub(crate) use values::{duration, milliseconds};

/// Errors that have been found so far.
#[derive(Debug, Default)]
pub(crate) struct Check {
    errors: Vec<ConfigError>,
}

/// Text of a broken rule, made of a text or an error.
#[derive(Debug)]
pub(crate) struct Rule(String);

// === impl Check ===

impl Check {
    /// Notes that the field called `field`, which stands `at`, breaks `rule`.
    pub(crate) fn refuse(&mut self, at: Location, field: impl Into<String>, rule: impl Into<Rule>) {
        self.errors.push(ConfigError::new(at, field, rule));
    }

    /// Notes that the field called `field` is missing in the section that stands `at`.
    pub(crate) fn missing(&mut self, at: Location, field: impl Into<String>) {
        self.refuse(at, field, "is missing");
    }

    /// Whether a list or a mapping of `count` entries is within its bound; notes it if not.
    pub(crate) fn is_within(
        &mut self,
        max: usize,
        count: usize,
        at: Location,
        field: &str,
    ) -> bool {
        if count > max {
            self.refuse(at, field, format!("has {count} entries, more than {max}"));
        }
        count <= max
    }

    /// How many errors have been found.
    pub(crate) fn count(&self) -> usize {
        self.errors.len()
    }

    /// Returns the value of `text`; `None` if it is absent or, which is noted, wrong.
    pub(crate) fn value<T>(
        &mut self,
        text: Option<&LocatedScalar>,
        field: &str,
        parse: impl FnOnce(&str) -> Result<T, Rule>,
    ) -> Option<T> {
        let text = text?;
        match parse(text.as_str()) {
            Ok(value) => Some(value),
            Err(rule) => {
                self.refuse(text.at, field, rule);
                None
            }
        }
    }

    /// Sets `to` to the value of `text`, if that is there and right.
    pub(crate) fn set<T>(
        &mut self,
        to: &mut T,
        text: Option<&LocatedScalar>,
        field: &str,
        parse: impl FnOnce(&str) -> Result<T, Rule>,
    ) {
        if let Some(value) = self.value(text, field, parse) {
            *to = value;
        }
    }

    /// Returns `value` if it is there and no error was found.
    ///
    /// # Errors
    /// All that were noted, in the order of the file.
    pub(crate) fn end<T>(mut self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => {
                self.errors.sort_by_key(|error| (error.line, error.column));
                Err(ConfigErrors(self.errors))
            }
        }
    }
}

// === impl Rule ===

impl<T: fmt::Display> From<T> for Rule {
    fn from(rule: T) -> Self {
        Self(rule.to_string())
    }
}

// === free functions ===

/// The path of the field called `name` below `path`.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        return name.to_owned();
    }
    format!("{path}.{name}")
}
