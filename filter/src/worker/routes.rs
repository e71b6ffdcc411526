//! Warnings about the metadata of routes.

use std::collections::BTreeSet;

use super::Worker;
use crate::host::{Host, Level};
use crate::route::FieldError;

/// The most warnings that a worker gives.
const WARNINGS_MAX: usize = 1000;

/// Warnings that have been given.
#[derive(Debug, Default)]
pub(super) struct RouteWarnings(BTreeSet<String>);

// === impl RouteWarnings ===

impl RouteWarnings {
    /// Returns whether a warning is new and may be given.
    fn add(&mut self, warning: &str) -> bool {
        self.0.len() < WARNINGS_MAX && self.0.insert(warning.to_owned())
    }
}

// === impl Worker ===

impl<H: Host + Clone> Worker<H> {
    /// Counts a field that is ignored in the metadata of the route at hand, and warns of it once. Rules
    /// of another filter of this worker are no error.
    #[cold]
    pub(crate) fn ignore_route_field(&mut self, error: &FieldError) {
        if let FieldError::Rule(name, _) = error
            && self.rules.has(name)
        {
            return;
        }
        self.metrics.invalid_route_fields.add_one();
        let route = self.host.property(&["xds", "route_name"]).ok().flatten();
        let route = route.filter(|name| !name.is_empty());
        let route = route.map_or_else(
            || "a route without a name".to_owned(),
            |name| format!("route {:?}", String::from_utf8_lossy(&name)),
        );
        let warning = format!("tollgate: ignored in the metadata of {route}: {error}");
        if self.route_warnings.add(&warning) {
            self.host.log(Level::Warn, &warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_given_once_and_so_many_in_all() {
        let mut warnings = RouteWarnings::default();
        let new = (0..2 * WARNINGS_MAX).filter(|n| warnings.add(&(n / 2).to_string()));
        assert_eq!(new.count(), WARNINGS_MAX);
        assert!(!warnings.add("one more"));
    }
}
