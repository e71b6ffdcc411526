//! Rules for the limits of a scope.

use serde_saphyr::Location;

use super::Check;
use super::unit::unit_limits;
use crate::catalog::limits::UnitLimits;
use crate::catalog::spec::Units;

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
