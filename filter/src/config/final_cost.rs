//! Field `final_cost` of a rule.

use core::ops::RangeInclusive;

use serde_json::Value;
use tollgate_core::units::Tokens;
use tollgate_engine::Estimate;

use super::ConfigError;
use super::fields::Fields;
use super::key::dynamic_metadata;
use crate::final_cost::{FinalCost, FreeStatuses};

/// The most statuses of a list.
const STATUSES_MAX: usize = 32;
/// Tokens that a request may reserve.
const ESTIMATE: RangeInclusive<u64> = 1..=1_000_000_000;

/// Reads what a rule's requests reserve, and where their final cost is; none if they have none.
pub(super) fn final_cost(
    rule: &mut Fields<'_>,
    unknown: &mut Vec<String>,
) -> Result<Option<(Estimate, FinalCost)>, ConfigError> {
    let Some(mut fields) = rule.object("final_cost")? else {
        return Ok(None);
    };
    let property = dynamic_metadata(&mut fields)?;
    let (only, not) = (
        statuses(&mut fields, "only")?,
        statuses(&mut fields, "not")?,
    );
    let estimate = estimate(&mut fields)?;
    let on_abort = on_abort(&mut fields)?;
    fields.finish(unknown);
    let wrong = |expected| Err(rule.wrong("final_cost", &fields.whole_object(), expected));
    let free = match (only, not) {
        (Some(_), Some(_)) => return wrong("an object with one of only and not"),
        (Some(only), None) => Some(FreeStatuses::AllBut(only)),
        (None, Some(not)) => Some(FreeStatuses::Only(not)),
        (None, None) => None,
    };
    if property.is_none() && free.is_none() {
        return wrong(
            "{\"metadata\": [NAMESPACE, KEY, ...]}, {\"only\": [STATUS, ...]} or {\"not\": [STATUS, ...]}",
        );
    }
    let cost = FinalCost {
        free,
        property,
        on_abort,
    };
    Ok(Some((estimate, cost)))
}

fn estimate(fields: &mut Fields<'_>) -> Result<Estimate, ConfigError> {
    let Some(value) = fields.take("estimate") else {
        return Ok(Estimate::Request);
    };
    let tokens = value.as_u64().filter(|tokens| ESTIMATE.contains(tokens));
    match (tokens, value.as_str()) {
        (Some(tokens), _) => Ok(Estimate::Tokens(Tokens::from_whole(tokens))),
        (None, Some("usual")) => Ok(Estimate::Usual),
        _ => {
            let expected = "a whole number from 1 to 1000000000, or \"usual\"";
            Err(fields.wrong("estimate", value, expected))
        }
    }
}

fn on_abort(fields: &mut Fields<'_>) -> Result<Option<Tokens>, ConfigError> {
    match fields.text("on_abort")? {
        None | Some("estimate") => Ok(None),
        Some("nothing") => Ok(Some(Tokens::ZERO)),
        Some(other) => Err(fields.wrong("on_abort", other, "\"estimate\" or \"nothing\"")),
    }
}

/// Reads a list of statuses such as 401 and `5xx`.
fn statuses(
    fields: &mut Fields<'_>,
    name: &'static str,
) -> Result<Option<Vec<RangeInclusive<u16>>>, ConfigError> {
    let Some(value) = fields.take(name) else {
        return Ok(None);
    };
    let list = value.as_array();
    let list = list.filter(|list| (1..=STATUSES_MAX).contains(&list.len()));
    let ranges = list.and_then(|list| list.iter().map(range).collect());
    let expected = "a list of 1 to 32 statuses from 100 to 599, or classes such as \"5xx\"";
    match ranges {
        Some(ranges) => Ok(Some(ranges)),
        None => Err(fields.wrong(name, value, expected)),
    }
}

fn range(value: &Value) -> Option<RangeInclusive<u16>> {
    match value {
        Value::String(class) => {
            let digit = class.strip_suffix("xx")?.parse::<u16>().ok();
            let digit = digit.filter(|digit| class.len() == 3 && (1..=5).contains(digit))?;
            let first = digit.checked_mul(100)?;
            Some(first..=first.checked_add(99)?)
        }
        number => {
            let status = u16::try_from(number.as_u64()?).ok();
            let status = status.filter(|status| (100..=599).contains(status))?;
            Some(status..=status)
        }
    }
}
