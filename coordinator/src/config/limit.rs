//! One limit of the file.

use std::time::Duration;

use serde_saphyr::{Location, Spanned};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::limit::{Limit, LimitError, Part, Safe};
use tollgate_core::units::{Capacity, Tokens};

use super::check::Check;
use super::error::Problem;
use super::raw::{RawLimit, RawRequests};
use crate::limits::Pattern;

/// What `limits[index]` matches and how much it allows; none if something is wrong, which is noted.
pub(super) fn limit(
    check: &mut Check,
    index: usize,
    raw: &Spanned<RawLimit>,
) -> Option<(Pattern, Limit)> {
    let field = |name| format!("limits[{index}].{name}");
    let RawLimit { pattern, requests } = &raw.value;
    if pattern.is_none() {
        check.refuse(raw.referenced, field("match"), Problem::Missing);
    }
    let pattern = check.value(pattern.as_ref(), &field("match"), parse_pattern);
    let Some(requests) = requests else {
        check.refuse(raw.referenced, field("requests"), Problem::Missing);
        return None;
    };
    let limit = requests_limit(check, &field("requests"), requests);
    pattern.zip(limit)
}

fn parse_pattern(text: &str) -> Result<Pattern, Problem> {
    ResourceId::new(text, Unit::Requests)?;
    Ok(Pattern::parse(text)?)
}

fn requests_limit(check: &mut Check, path: &str, raw: &Spanned<RawRequests>) -> Option<Limit> {
    let field = |name| format!("{path}.{name}");
    let at = raw.referenced;
    let raw = &raw.value;
    if raw.rate.is_none() {
        check.refuse(at, field("rate"), Problem::Missing);
    }
    let rate = check.value(raw.rate.as_ref(), &field("rate"), rate);
    let burst = check.value(raw.burst.as_ref(), &field("burst"), number);
    let safe = check.value(raw.safe.as_ref(), &field("safe"), number);
    let lease = check.value(raw.lease.as_ref(), &field("lease"), duration);
    let refresh = check.value(raw.refresh.as_ref(), &field("refresh"), duration);
    let min_refresh = check.value(raw.min_refresh.as_ref(), &field("min_refresh"), duration);
    let learning = check.value(raw.learning.as_ref(), &field("learning"), duration);
    let headroom = check.value(raw.headroom.as_ref(), &field("headroom"), headroom);

    let mut limit = Limit::new(rate?);
    if let Some(burst) = burst {
        limit.burst = Tokens::from_micros(burst.as_micros());
    }
    limit.safe = safe.map_or(Safe::Client, Safe::Fixed);
    limit.lease = lease.unwrap_or(limit.lease);
    limit.refresh = refresh.unwrap_or(limit.refresh);
    limit.min_refresh = min_refresh.unwrap_or(limit.min_refresh);
    limit.learning = learning.unwrap_or(limit.lease);
    limit.headroom = headroom.unwrap_or(limit.headroom);
    together(check, path, at, raw, &limit)?;
    Some(limit)
}

/// Whether the fields go together; notes it if not.
fn together(
    check: &mut Check,
    path: &str,
    at: Location,
    raw: &RawRequests,
    limit: &Limit,
) -> Option<()> {
    let place = |text: Option<&super::raw::Text>| text.map_or(at, |text| text.referenced);
    if let Err(error) = limit.validate() {
        let text = match &error {
            LimitError::BurstBelowOne { .. } => raw.burst.as_ref(),
            LimitError::SafeAboveCapacity { .. } => raw.safe.as_ref(),
            LimitError::GuaranteedAboveCapacity { .. } => None,
            LimitError::Zero { field: "lease" } | LimitError::LeaseTooLong { .. } => {
                raw.lease.as_ref()
            }
            LimitError::Zero { field: "refresh" } | LimitError::RefreshNotBelowLease { .. } => {
                raw.refresh.as_ref().or(raw.lease.as_ref())
            }
            LimitError::LearningBelowLease { .. } => raw.learning.as_ref(),
            LimitError::Zero { .. } | LimitError::MinRefreshAboveRefresh { .. } => {
                raw.min_refresh.as_ref().or(raw.refresh.as_ref())
            }
        };
        check.refuse(place(text), path, error);
        return None;
    }
    Some(())
}

/// A number of units per second, or the word for no limit.
fn rate(text: &str) -> Result<Capacity, Problem> {
    if text == "unlimited" {
        return Ok(Capacity::UNLIMITED);
    }
    let number = text.parse::<f64>();
    let number = number.map_err(|_| Problem::NotARate(text.to_owned()))?;
    Ok(Capacity::try_from_f64(number)?)
}

fn number(text: &str) -> Result<Capacity, Problem> {
    let number = text.parse::<f64>();
    let number = number.map_err(|_| Problem::NotANumber(text.to_owned()))?;
    Ok(Capacity::try_from_f64(number)?)
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

fn headroom(text: &str) -> Result<Part, Problem> {
    let part = text.parse().ok().and_then(Part::try_from_f64);
    part.ok_or_else(|| Problem::Headroom(text.to_owned()))
}
