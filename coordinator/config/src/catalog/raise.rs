//! Raises: limits that a scope or a group has for a time, whatever else it has, such as in an incident.

use std::sync::Arc;
use std::time::Duration;

use super::limits::UnitLimits;
use super::spec::RaiseSpec;
use super::written;

/// Limits of a scope or a group for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    limits: Arc<UnitLimits>,
    until: u64,
    written: Box<str>,
}

// === impl Raise ===

impl Raise {
    /// A raise to `limits` until that second since 1970, which are those of the valid `spec`.
    pub(crate) fn new(limits: UnitLimits, until: u64, spec: &RaiseSpec) -> Self {
        Self {
            limits: Arc::new(limits),
            until,
            written: written(spec),
        }
    }

    /// The limits.
    pub fn limits(&self) -> &Arc<UnitLimits> {
        &self.limits
    }

    /// Its end, in seconds since 1970.
    pub fn until(&self) -> u64 {
        self.until
    }

    /// Whether it has ended at `now`, time since 1970.
    pub fn has_ended(&self, now: Duration) -> bool {
        self.until <= now.as_secs()
    }

    /// The written form.
    pub fn spec(&self) -> RaiseSpec {
        serde_json::from_str(&self.written).unwrap_or_default()
    }

    pub(super) fn written(&self) -> &str {
        &self.written
    }
}
