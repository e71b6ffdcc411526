//! Rules for limits, groups and attachments, in the YAML file and in the API's JSON.
//!
//! A `Check` collects every error of a configuration, so that one run shows all of them. An error
//! is the broken rule of one field; each section states its own rules.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_saphyr::Location;

use crate::catalog::name::NameError;
use crate::catalog::spec::LocatedScalar;

mod attachment;
mod error;
mod group;
mod quota;
mod scope;
mod unit;
mod values;

pub use error::{ConfigError, ConfigErrors};

pub(crate) use attachment::attachment;
pub(crate) use group::group;
pub(crate) use scope::scope_limits;
pub(crate) use unit::algorithm_named;
pub(crate) use values::{duration, milliseconds, not_empty};

/// Errors that have been found so far.
#[derive(Debug, Default)]
pub(crate) struct Check {
    errors: Vec<ConfigError>,
    /// The folder at which relative paths start.
    folder: PathBuf,
    /// Whether the coordinator has a parent.
    pub(crate) is_below_parent: bool,
}

/// Text of a broken rule, made of a text or an error.
#[derive(Debug)]
pub(crate) struct Rule(String);

// === impl Check ===

impl Check {
    /// A check of a file in `folder`.
    pub(crate) fn beside(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            ..Self::default()
        }
    }

    /// Notes that the field called `field`, which stands `at`, breaks `rule`.
    pub(crate) fn refuse(&mut self, at: Location, field: impl Into<String>, rule: impl Into<Rule>) {
        self.errors.push(ConfigError::new(at, field, rule));
    }

    /// Notes that the field called `field`, whose value is `text`, breaks `rule`.
    pub(crate) fn refuse_value(
        &mut self,
        text: &LocatedScalar,
        field: impl Into<String>,
        rule: impl Into<Rule>,
    ) {
        let error = ConfigError::new(text.at, field, rule);
        self.errors.push(error.of_value(text.as_str()));
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
    pub(crate) fn value<'a, T>(
        &mut self,
        text: impl Into<Option<&'a LocatedScalar>>,
        field: &str,
        parse: impl FnOnce(&str) -> Result<T, Rule>,
    ) -> Option<T> {
        let text = text.into()?;
        match parse(text.as_str()) {
            Ok(value) => Some(value),
            Err(rule) => {
                self.refuse_value(text, field, rule);
                None
            }
        }
    }

    /// Returns whether the name of the object that stands `at` is `valid`; notes it if not.
    pub(crate) fn name(
        &mut self,
        at: Location,
        field: &str,
        valid: Result<(), NameError>,
    ) -> Option<()> {
        valid.map_err(|rule| self.refuse(at, field, rule)).ok()
    }

    /// Returns the value of `text`, which must be in the section that stands `at`.
    pub(crate) fn required<T>(
        &mut self,
        at: Location,
        text: &Option<LocatedScalar>,
        field: &str,
        parse: impl FnOnce(&str) -> Result<T, Rule>,
    ) -> Option<T> {
        if text.is_none() {
            self.missing(at, field);
        }
        self.value(text, field, parse)
    }

    /// Returns the path that `text` names, from the folder of the file.
    pub(crate) fn path(&mut self, text: &Option<LocatedScalar>, field: &str) -> Option<PathBuf> {
        let path = self.value(text, field, not_empty)?;
        Some(self.folder.join(path))
    }

    /// Like [`Check::path`], of a text that must be in the section that stands `at`.
    pub(crate) fn required_path(
        &mut self,
        at: Location,
        text: &Option<LocatedScalar>,
        field: &str,
    ) -> Option<PathBuf> {
        let path = self.required(at, text, field, not_empty)?;
        Some(self.folder.join(path))
    }

    /// Notes that one of two fields of `section` is missing, which belong together.
    pub(crate) fn pair(
        &mut self,
        section: &str,
        (one, text): (&str, &Option<LocatedScalar>),
        (other, text_of_other): (&str, &Option<LocatedScalar>),
    ) {
        let (missing, there) = match (text, text_of_other) {
            (None, Some(there)) => (one, there),
            (Some(there), None) => (other, there),
            _ => return,
        };
        let rule = format!("is missing: {one} and {other} belong together");
        self.refuse(there.at, join(section, missing), rule);
    }

    /// Sets `to` to the value of `text`, if that is there and right.
    pub(crate) fn set<'a, T>(
        &mut self,
        to: &mut T,
        text: impl Into<Option<&'a LocatedScalar>>,
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
    pub(crate) fn end<T>(self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => Err(ConfigErrors(self.noted())),
        }
    }

    /// Returns all that were noted, in the order of the file.
    pub(crate) fn noted(mut self) -> Vec<ConfigError> {
        self.errors.sort_by_key(|error| (error.line, error.column));
        self.errors
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
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        return name.to_owned();
    }
    format!("{path}.{name}")
}
