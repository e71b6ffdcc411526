//! Rules for quotas.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_saphyr::Location;
use tollgate_core::limit::Limit;
use tollgate_core::quantity::{QuantityUnit, parse};
use tollgate_core::quota::{Calendar, CalendarUnit, QUOTAS_MAX, Quota, QuotaPeriod, Quotas};
use tollgate_core::units::Tokens;

use super::{Check, Rule, duration, join};
use crate::catalog::spec::{QuotaSpec, QuotaSpecs};

/// The shortest window that slides.
const ROLLING_MIN: Duration = Duration::from_secs(60);

/// The longest window that slides: a year and a day.
const ROLLING_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Checks the quotas of the limit that stands `at`; `None` if they have errors, which are noted.
pub(super) fn quotas(
    check: &mut Check,
    path: &str,
    counted: QuantityUnit,
    (at, specs): (Location, &QuotaSpecs),
) -> Option<Quotas> {
    let field = join(path, "quota");
    if !check.is_within(QUOTAS_MAX, specs.0.len(), at, &field) {
        return None;
    }
    let quotas: Vec<_> = specs
        .0
        .iter()
        .map(|spec| quota(check, &field, counted, at, spec))
        .collect();
    let quotas: Vec<Quota> = quotas.into_iter().collect::<Option<_>>()?;
    let names: Vec<_> = quotas
        .iter()
        .map(|quota| quota.period.to_string())
        .collect();
    for (i, name) in names.iter().enumerate() {
        if names.iter().take(i).any(|before| before == name) {
            let rule = format!("{name:?} is there twice: the smaller amount would be enough");
            check.refuse(at, &field, rule);
            return None;
        }
    }
    Some(Quotas::new(quotas))
}

/// Refuses a quota that nobody would keep: only tokens that are drawn are counted.
pub(super) fn is_drawn(check: &mut Check, path: &str, at: Location, limit: &Limit) {
    if limit.quotas.is_empty() {
        return;
    }
    if check.is_below_parent {
        let rule =
            "is not kept below a parent, which lends rates: write it there, for its own clients";
        check.refuse(at, join(path, "quota"), rule);
    }
    if limit.algorithm != Default::default() {
        let rule = format!(
            "goes with algorithm fair_share alone, not with {}",
            limit.algorithm.name()
        );
        check.refuse(at, join(path, "quota"), rule);
    }
}

fn quota(
    check: &mut Check,
    path: &str,
    counted: QuantityUnit,
    at: Location,
    spec: &QuotaSpec,
) -> Option<Quota> {
    let field = |name| join(path, name);
    let amount = check.required(at, &spec.amount, &field("amount"), |text| {
        let amount = Tokens::from_micros(parse(text, counted)?.as_micros());
        if amount < Tokens::ONE {
            return Err(Rule::from(format!("{text:?} is less than one")));
        }
        Ok(amount)
    });
    let period = check.required(at, &spec.per, &field("per"), period);
    let zone = check.value(&spec.timezone, &field("timezone"), |text| {
        TimeZone::get(text)
            .map_err(|_| Rule::from(format!("{text:?} is no time zone, such as Europe/Berlin")))
    });
    let anchor = check.value(&spec.anchor, &field("anchor"), anchor);
    let mut quota = Quota {
        amount: amount?,
        period: period?,
    };
    match &mut quota.period {
        QuotaPeriod::Calendar(calendar) => {
            if let (Some(text), false) = (&spec.anchor, calendar.unit == CalendarUnit::Month) {
                check.refuse_value(text, field("anchor"), "is the day on which a month begins");
                return None;
            }
            calendar.zone = zone.unwrap_or(TimeZone::UTC);
            calendar.anchor = anchor.unwrap_or(1);
        }
        QuotaPeriod::Rolling(_) => {
            let of_calendar = [("timezone", &spec.timezone), ("anchor", &spec.anchor)];
            for (name, text) in of_calendar {
                if let Some(text) = text {
                    check.refuse_value(text, field(name), "goes with a period of the calendar");
                    return None;
                }
            }
        }
    }
    Some(quota)
}

fn period(text: &str) -> Result<QuotaPeriod, Rule> {
    let named = CalendarUnit::ALL
        .into_iter()
        .find(|unit| unit.name() == text);
    if let Some(unit) = named {
        return Ok(QuotaPeriod::Calendar(Calendar::utc(unit)));
    }
    match duration(text) {
        Ok(length) if (ROLLING_MIN..=ROLLING_MAX).contains(&length) => {
            Ok(QuotaPeriod::Rolling(length))
        }
        Ok(_) => Err(format!("{text:?} is not between 1m and 366d").into()),
        Err(_) => Err(format!(
            "{text:?} is none of minute, hour, day, week, month, year, and no duration like 24h"
        )
        .into()),
    }
}

fn anchor(text: &str) -> Result<u8, Rule> {
    let day = text.parse().ok().filter(|day| (1..=31).contains(day));
    day.ok_or_else(|| format!("{text:?} is not a day of a month, 1 to 31").into())
}
