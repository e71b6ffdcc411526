//! Rules for the limit of one unit.

use std::collections::BTreeMap;

use tollgate_core::lease::{Priority, Unit};
use tollgate_core::limit::{Algorithm, Limit, LimitError, Part, SafeCapacity};
use tollgate_core::quantity::{QuantityError, QuantityUnit, of_period, parse, parse_rate};
use tollgate_core::quota::Quotas;
use tollgate_core::units::{Capacity, Tokens};

use super::values::one_of;
use super::{Check, Rule, join, milliseconds, quota};
use crate::catalog::limits::UnitLimits;
use crate::catalog::spec::{LocatedScalar, LocatedValue, UnitFields, Units};

/// Returns the algorithm that `text` names.
pub(crate) fn algorithm_named(text: &str) -> Option<Algorithm> {
    one_of(text, &Algorithm::NAMES).ok()
}

/// Checks the limits of `units`; `None` if they have errors, which are noted.
pub(super) fn unit_limits(check: &mut Check, path: &str, units: Units<'_>) -> Option<UnitLimits> {
    let limits: Vec<_> = units
        .into_iter()
        .map(|(unit, fields)| {
            let path = join(path, unit.name());
            Some((unit, unit_limit(check, &path, unit, &fields)?))
        })
        .collect();
    limits.into_iter().collect()
}

fn unit_limit(check: &mut Check, path: &str, unit: Unit, fields: &UnitFields<'_>) -> Option<Limit> {
    let counted = QuantityUnit::of(unit);
    let (name, capacity) = fields.capacity;
    if capacity.is_none() && fields.quota.is_none() {
        check.missing(fields.at, join(path, name));
    }
    let before = check.count();
    let limit = values(check, path, counted, fields)?;
    divides_rates(check, path, unit, (&limit, fields));
    quota::is_drawn(check, path, fields.at, &limit);
    if check.count() > before {
        // Beside a default in the place of a wrong value the others may look wrong.
        return None;
    }
    let faults = limit.faults();
    let good = faults.is_empty();
    for error in faults {
        let text = error.to_string();
        // The error begins with the name of the field.
        let (field, rule) = text.split_once(": ").unwrap_or(("", &text));
        let field = join(path, field);
        let as_written = above_capacity(fields, &error);
        let rule = as_written.as_deref().unwrap_or(rule);
        match at_fault(fields, &error) {
            Some(text) => check.refuse_value(text, field, rule),
            None => check.refuse(fields.at, field, rule),
        }
    }
    good.then_some(limit)
}

/// The limit of all values that are good, with defaults for the others; `None` without a capacity.
fn values(
    check: &mut Check,
    path: &str,
    counted: QuantityUnit,
    fields: &UnitFields<'_>,
) -> Option<Limit> {
    let field = |name| join(path, name);
    let (name, written) = fields.capacity;
    let capacity = check.value(written, &field(name), |text| {
        number_or(
            text,
            counted,
            ("unlimited", Capacity::UNLIMITED),
            |capacity| capacity,
        )
    });
    let quotas = match fields.quota {
        Some(specs) => quota::quotas(check, path, counted, (fields.at, specs))?,
        None => Quotas::default(),
    };
    let has_rate = written.is_some() && capacity != Some(Capacity::UNLIMITED);
    let capacity = match quotas.least() {
        Some(amount) if !has_rate => Some(of_quota(amount)),
        _ => capacity,
    };
    let mut limit = Limit::new(capacity.unwrap_or(Capacity::ZERO));
    if let Some(pace) = quotas.pace() {
        limit.safe = SafeCapacity::Fixed(pace.min(limit.capacity));
    }
    limit.quotas = quotas;
    let at_once = written.and_then(|text| of_period(text.as_str(), counted));
    if let Some((period, at_once)) = at_once.filter(|_| counted != QuantityUnit::InFlight) {
        limit.period = Some(period);
        limit.burst = Tokens::from_micros(at_once.as_micros()).max(Tokens::ONE);
    }
    check.set(&mut limit.burst, fields.burst, &field("burst"), |text| {
        Ok(Tokens::from_micros(parse(text, counted)?.as_micros()))
    });
    check.set(&mut limit.safe, fields.safe, &field("safe"), |text| {
        number_or(
            text,
            counted,
            ("dynamic", SafeCapacity::Dynamic),
            SafeCapacity::Fixed,
        )
    });
    if let Some(text) = fields.safe
        && limit.safe == SafeCapacity::Dynamic
        && !has_rate
        && !limit.quotas.is_empty()
    {
        check.refuse_value(
            text,
            field("safe"),
            "is a part of a rate, and there is none",
        );
    }
    times(check, path, fields, &mut limit);
    let (headroom, reserve) = (&mut limit.headroom, &mut limit.reserve);
    check.set(headroom, fields.headroom, &field("headroom"), part);
    check.set(reserve, fields.reserve, &field("reserve"), part);
    let name = field("algorithm");
    check.set(&mut limit.algorithm, fields.algorithm, &name, |text| {
        one_of(text, &Algorithm::NAMES)
    });
    for (band, capacity) in guaranteed(check, &field("guaranteed"), counted, fields.guaranteed) {
        limit.guaranteed = limit.guaranteed.with(band, capacity);
    }
    capacity.map(|_| limit)
}

/// Capacity of a limit that has a quota and no rate: so much a second that nothing but the quota bounds it.
fn of_quota(amount: Tokens) -> Capacity {
    Capacity::from_micros(amount.as_micros()).min(Capacity::MAX)
}

/// Refuses an algorithm that goes by usage for what is not a rate: its parts are no whole numbers.
fn divides_rates(
    check: &mut Check,
    path: &str,
    unit: Unit,
    (limit, fields): (&Limit, &UnitFields<'_>),
) {
    if let Some(text) = fields.algorithm
        && unit.is_concurrency()
        && limit.algorithm.goes_by_usage()
    {
        let rule = format!(
            "{} divides rates, not requests in flight; use fair_share or proportional_share",
            limit.algorithm.name()
        );
        check.refuse_value(text, join(path, "algorithm"), rule);
    }
}

/// Sets the times of `limit`.
fn times(check: &mut Check, path: &str, fields: &UnitFields<'_>, limit: &mut Limit) {
    let times = [
        ("lease", fields.lease, &mut limit.lease),
        ("refresh", fields.refresh, &mut limit.refresh),
        ("min_refresh", fields.min_refresh, &mut limit.min_refresh),
    ];
    for (name, text, time) in times {
        check.set(time, text, &join(path, name), milliseconds);
    }
    limit.learning = limit.lease;
}

/// The rule of a safe capacity above the capacity, with both as they were written.
fn above_capacity(fields: &UnitFields<'_>, error: &LimitError) -> Option<String> {
    let is_above = matches!(error, LimitError::SafeAboveCapacity { .. });
    let (safe, (_, capacity)) = (fields.safe.filter(|_| is_above)?, fields.capacity);
    let (safe, capacity) = (safe.as_str(), capacity?.as_str());
    Some(format!("{safe} is more than the capacity, {capacity}"))
}

/// The field that is to be changed.
fn at_fault<'a>(fields: &UnitFields<'a>, error: &LimitError) -> Option<&'a LocatedScalar> {
    match error {
        LimitError::BurstBelowOne { .. } => fields.burst,
        LimitError::SafeAboveCapacity { .. } => fields.safe,
        LimitError::GuaranteedAboveCapacity { .. } => {
            fields.guaranteed.and_then(|bands| bands.values().next())
        }
        LimitError::Zero { field: "lease" } | LimitError::LeaseTooLong { .. } => fields.lease,
        LimitError::Zero { field: "refresh" } | LimitError::RefreshNotBelowLease { .. } => {
            fields.refresh.or(fields.lease)
        }
        LimitError::Zero { .. } | LimitError::MinRefreshAboveRefresh { .. } => {
            fields.min_refresh.or(fields.refresh)
        }
        // Learning mode lasts as long as the lease.
        LimitError::LearningBelowLease { .. } => fields.lease,
    }
}

/// A number of units, or `word` for a value of its own.
fn number_or<T>(
    text: &str,
    counted: QuantityUnit,
    (word, meaning): (&str, T),
    number: impl FnOnce(Capacity) -> T,
) -> Result<T, Rule> {
    if text == word {
        return Ok(meaning);
    }
    match parse_rate(text, counted) {
        Ok(capacity) => Ok(number(capacity)),
        Err(QuantityError::NotANumber(text)) => {
            Err(format!("{text:?} is neither a number nor `{word}`").into())
        }
        Err(error) => Err(error.into()),
    }
}

fn part(text: &str) -> Result<Part, Rule> {
    let part = text.parse().ok().and_then(Part::try_from_f64);
    part.ok_or_else(|| format!("{text:?} is not a part between 0 and 1").into())
}

/// The minimum of each band that is named.
fn guaranteed(
    check: &mut Check,
    path: &str,
    counted: QuantityUnit,
    bands: Option<&BTreeMap<String, LocatedScalar>>,
) -> Vec<(Priority, Capacity)> {
    let mut minimums = Vec::new();
    for (band, minimum) in bands.into_iter().flatten() {
        let field = join(path, &band.escape_debug().to_string());
        let text = LocatedValue {
            value: band.as_str().into(),
            at: minimum.at,
        };
        let band = check.value(&text, &field, priority);
        let minimum = check.value(minimum, &field, |text| Ok(parse_rate(text, counted)?));
        minimums.extend(band.zip(minimum));
    }
    minimums
}

fn priority(text: &str) -> Result<Priority, Rule> {
    let band = text.parse().ok().and_then(Priority::new);
    band.ok_or_else(|| format!("{text:?} is not a band, a whole number from 0 to 15").into())
}
