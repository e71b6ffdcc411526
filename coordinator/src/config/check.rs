//! Collects what is wrong.

use serde_saphyr::Location;

use super::error::{ConfigError, ConfigErrors, Problem};
use crate::catalog::spec::LocatedScalar;

/// What has been found wrong so far.
#[derive(Debug, Default)]
pub(crate) struct Check {
    errors: Vec<ConfigError>,
}

// === impl Check ===

impl Check {
    /// Notes that `field`, which stands `at`, has `problem`.
    pub(crate) fn refuse(
        &mut self,
        at: Location,
        field: impl Into<String>,
        problem: impl Into<Problem>,
    ) {
        self.errors.push(ConfigError::new(at, field, problem));
    }

    /// How much has been found wrong.
    pub(crate) fn count(&self) -> usize {
        self.errors.len()
    }

    /// What `text` says; none if it is absent or, which is noted, wrong.
    pub(crate) fn value<T>(
        &mut self,
        text: Option<&LocatedScalar>,
        field: &str,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        let text = text?;
        match parse(text.as_str()) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.refuse(text.at, field, problem);
                None
            }
        }
    }

    /// `value` if nothing was wrong and it is there.
    ///
    /// # Errors
    /// Everything that was noted, in the order of the file.
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

// === free functions ===

/// The way to the field called `name` below `path`.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        return name.to_owned();
    }
    format!("{path}.{name}")
}
