//! The limit of one unit.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::lease::{Priority, Unit};
use tollgate_core::limit::{Algorithm, Limit, LimitError, Part, SafeCapacity};
use tollgate_core::units::{Capacity, Tokens};

use super::check::{Check, join};
use super::error::Problem;
use crate::catalog::limits::UnitLimits;
use crate::catalog::quantity::{QuantityError, QuantityUnit, parse};
use crate::catalog::spec::{LocatedScalar, LocatedValue, UnitSpec, Units};

/// The fields of a unit, whichever it is.
struct Fields<'a> {
    /// `rate` or `max`.
    capacity: (&'static str, Option<&'a LocatedScalar>),
    burst: Option<&'a LocatedScalar>,
    safe: Option<&'a LocatedScalar>,
    lease: Option<&'a LocatedScalar>,
    refresh: Option<&'a LocatedScalar>,
    min_refresh: Option<&'a LocatedScalar>,
    learning: Option<&'a LocatedScalar>,
    headroom: Option<&'a LocatedScalar>,
    reserve: Option<&'a LocatedScalar>,
    algorithm: Option<&'a LocatedScalar>,
    guaranteed: Option<&'a BTreeMap<String, LocatedScalar>>,
}

/// What the fields say, where they are there and good.
struct Values {
    capacity: Option<Capacity>,
    burst: Option<Capacity>,
    safe: Option<SafeCapacity>,
    lease: Option<Duration>,
    refresh: Option<Duration>,
    min_refresh: Option<Duration>,
    learning: Option<Duration>,
    headroom: Option<Part>,
    reserve: Option<Part>,
    algorithm: Option<Algorithm>,
    guaranteed: Vec<(Priority, Capacity)>,
}

// === impl Fields ===

impl<'a> Fields<'a> {
    fn of(spec: UnitSpec<'a>) -> Self {
        macro_rules! fields {
            ($spec:expr, $name:ident, $burst:expr) => {
                Self {
                    capacity: (stringify!($name), $spec.$name.as_ref()),
                    burst: $burst,
                    safe: $spec.safe.as_ref(),
                    lease: $spec.lease.as_ref(),
                    refresh: $spec.refresh.as_ref(),
                    min_refresh: $spec.min_refresh.as_ref(),
                    learning: $spec.learning.as_ref(),
                    headroom: $spec.headroom.as_ref(),
                    reserve: $spec.reserve.as_ref(),
                    algorithm: $spec.algorithm.as_ref(),
                    guaranteed: $spec.guaranteed.as_ref(),
                }
            };
        }
        match spec {
            UnitSpec::Rate(spec) => fields!(spec.value, rate, spec.value.burst.as_ref()),
            UnitSpec::Gauge(spec) => fields!(spec.value, max, None),
        }
    }

    /// The field that is to be changed.
    fn at_fault(&self, error: &LimitError) -> Option<&'a LocatedScalar> {
        match error {
            LimitError::BurstBelowOne { .. } => self.burst,
            LimitError::SafeAboveCapacity { .. } => self.safe,
            LimitError::GuaranteedAboveCapacity { .. } => {
                self.guaranteed.and_then(|bands| bands.values().next())
            }
            LimitError::Zero { field: "lease" } | LimitError::LeaseTooLong { .. } => self.lease,
            LimitError::Zero { field: "refresh" } | LimitError::RefreshNotBelowLease { .. } => {
                self.refresh.or(self.lease)
            }
            LimitError::LearningBelowLease { .. } => self.learning,
            LimitError::Zero { .. } | LimitError::MinRefreshAboveRefresh { .. } => {
                self.min_refresh.or(self.refresh)
            }
        }
    }
}

// === impl Values ===

impl Values {
    fn check(check: &mut Check, path: &str, counted: QuantityUnit, fields: &Fields<'_>) -> Self {
        let field = |name| join(path, name);
        let number = |text: &str| Ok(parse(text, counted)?);
        let (name, capacity) = fields.capacity;
        Self {
            capacity: check.value(capacity, &field(name), |text| amount(text, counted)),
            burst: check.value(fields.burst, &field("burst"), number),
            safe: check.value(fields.safe, &field("safe"), |text| safe(text, counted)),
            lease: check.value(fields.lease, &field("lease"), duration),
            refresh: check.value(fields.refresh, &field("refresh"), duration),
            min_refresh: check.value(fields.min_refresh, &field("min_refresh"), duration),
            learning: check.value(fields.learning, &field("learning"), duration),
            headroom: check.value(fields.headroom, &field("headroom"), part),
            reserve: check.value(fields.reserve, &field("reserve"), part),
            algorithm: check.value(fields.algorithm, &field("algorithm"), algorithm),
            guaranteed: guaranteed(check, &field("guaranteed"), counted, fields.guaranteed),
        }
    }

    /// The limit; none without a capacity.
    fn limit(&self) -> Option<Limit> {
        let mut limit = Limit::new(self.capacity?);
        if let Some(burst) = self.burst {
            limit.burst = Tokens::from_micros(burst.as_micros());
        }
        limit.safe = self.safe.unwrap_or(limit.safe);
        limit.lease = self.lease.unwrap_or(limit.lease);
        limit.refresh = self.refresh.unwrap_or(limit.refresh);
        limit.min_refresh = self.min_refresh.unwrap_or(limit.min_refresh);
        limit.learning = self.learning.unwrap_or(limit.lease);
        limit.headroom = self.headroom.unwrap_or(limit.headroom);
        limit.reserve = self.reserve.unwrap_or(limit.reserve);
        limit.algorithm = self.algorithm.unwrap_or(limit.algorithm);
        for (band, capacity) in &self.guaranteed {
            limit.guaranteed = limit.guaranteed.with(*band, *capacity);
        }
        Some(limit)
    }
}

// === free functions ===

/// The limits that `units` say; none if something is wrong, which is noted.
pub(super) fn unit_limits(check: &mut Check, path: &str, units: Units<'_>) -> Option<UnitLimits> {
    let limits: Vec<_> = units
        .into_iter()
        .map(|(unit, spec)| {
            let path = join(path, unit.name());
            Some((unit, unit_limit(check, &path, unit, spec)?))
        })
        .collect();
    limits.into_iter().collect()
}

fn unit_limit(check: &mut Check, path: &str, unit: Unit, spec: UnitSpec<'_>) -> Option<Limit> {
    let counted = match unit {
        Unit::RequestBytes | Unit::ResponseBytes => QuantityUnit::Bytes,
        Unit::Requests | Unit::Concurrency => QuantityUnit::Requests,
    };
    let fields = Fields::of(spec);
    let (name, capacity) = fields.capacity;
    if capacity.is_none() {
        check.refuse(spec.at(), join(path, name), Problem::Missing);
    }
    let before = check.count();
    let limit = Values::check(check, path, counted, &fields).limit()?;
    if check.count() > before {
        // Beside a default in the place of what is wrong the others may look wrong.
        return None;
    }
    let faults = limit.faults();
    let good = faults.is_empty();
    for error in faults {
        let at = fields.at_fault(&error).map(|text| text.at);
        check.refuse(at.unwrap_or_else(|| spec.at()), path, error);
    }
    good.then_some(limit)
}

/// A number of units, or the word for no limit.
fn amount(text: &str, counted: QuantityUnit) -> Result<Capacity, Problem> {
    if text == "unlimited" {
        return Ok(Capacity::UNLIMITED);
    }
    parse(text, counted).map_err(|error| match error {
        QuantityError::NotANumber(text) => Problem::NotAnAmount(text),
        error => error.into(),
    })
}

/// What each client falls back to without a lease.
fn safe(text: &str, counted: QuantityUnit) -> Result<SafeCapacity, Problem> {
    if text == "dynamic" {
        return Ok(SafeCapacity::Dynamic);
    }
    match parse(text, counted) {
        Ok(capacity) => Ok(SafeCapacity::Fixed(capacity)),
        Err(QuantityError::NotANumber(text)) => Err(Problem::NotSafe(text)),
        Err(error) => Err(error.into()),
    }
}

fn duration(text: &str) -> Result<Duration, Problem> {
    let duration = humantime::parse_duration(text).map_err(|cause| Problem::NotADuration {
        text: text.to_owned(),
        cause,
    })?;
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(Problem::SubMillisecond(text.to_owned()));
    }
    Ok(duration)
}

fn part(text: &str) -> Result<Part, Problem> {
    let part = text.parse().ok().and_then(Part::try_from_f64);
    part.ok_or_else(|| Problem::Part(text.to_owned()))
}

fn algorithm(text: &str) -> Result<Algorithm, Problem> {
    match text {
        "fair_share" => Ok(Algorithm::FairShare),
        "proportional_share" => Ok(Algorithm::ProportionalShare),
        "static" => Ok(Algorithm::Static),
        "none" => Ok(Algorithm::None),
        other => Err(Problem::Word {
            text: other.to_owned(),
            words: "fair_share, proportional_share, static, none",
        }),
    }
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
        let band = check.value(Some(&text), &field, priority);
        let minimum = check.value(Some(minimum), &field, |text| Ok(parse(text, counted)?));
        minimums.extend(band.zip(minimum));
    }
    minimums
}

fn priority(text: &str) -> Result<Priority, Problem> {
    let band = text.parse().ok().and_then(Priority::new);
    band.ok_or_else(|| Problem::Band(text.to_owned()))
}
