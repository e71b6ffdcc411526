//! Rules for the limits of a scope.

use serde_saphyr::Location;

use super::unit::unit_limits;
use super::{Check, ConfigErrors};
use crate::catalog::limits::UnitLimits;
use crate::catalog::spec::{LimitsSpec, LocatedValue, Units};
use crate::catalog::{Override, name};

/// Checks the override of `scope`, whose `spec` came as JSON.
///
/// # Errors
/// All errors of it.
pub fn check_override(scope: &str, spec: &LimitsSpec) -> Result<Override, ConfigErrors> {
    let mut check = Check::default();
    let text = LocatedValue::nowhere(scope.into());
    let valid = check.value(Some(&text), "scope", |scope| Ok(name::check_scope(scope)?));
    let limits = scope_limits(&mut check, "", Location::UNKNOWN, spec.units());
    let limits = limits.zip(valid).map(|(limits, ())| limits);
    Ok(Override::new(check.end(limits)?, spec))
}

/// Checks the limits of all `units`, of which there must be one: an entry without any is rather
/// forgotten than meant.
pub(crate) fn scope_limits(
    check: &mut Check,
    path: &str,
    at: Location,
    units: Units<'_>,
) -> Option<UnitLimits> {
    if units.is_empty() {
        let rule = "names no unit; one of requests, request_bytes, response_bytes and concurrency \
                    is needed";
        check.refuse(at, path, rule);
        return None;
    }
    unit_limits(check, path, units)
}
