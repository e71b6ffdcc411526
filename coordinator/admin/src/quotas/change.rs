//! Changes of quotas, as people ask for them.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_config::catalog::Catalog;
use tollgate_config::catalog::spec::LocatedScalar;
use tollgate_core::fleet::{QuotaChange, QuotaChangeRequest};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::quantity::{QuantityUnit, parse};
use tollgate_core::units::{Tokens, WallTime};
use tollgate_net::clock::unix_time;
use utoipa::ToSchema;

use super::QuotasView;
use crate::problem::{FieldFault, RestError};

/// The longest id of a credit, in characters.
const ID_LEN_MAX: usize = 64;

/// The longest credit: what ends later was meant otherwise.
const CREDIT_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// A change of what is used of a quota: one of `set_used`, `credit` and `withdraw`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"credit": {"id": "ticket 7", "amount": "1k"}}))]
pub struct QuotaChangeSpec {
    /// Unit of the quota; may be absent if the scope has quotas of one unit alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Period of the quota, such as `day`, as it is shown; may be absent if the unit has one quota alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
    /// Tokens that have been used in this window, such as `5k`; those that Envoys hold count beside them. 0 begins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub set_used: Option<LocatedScalar>,
    /// Tokens beside the amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<CreditSpec>,
    /// Id of a credit of which the rest is taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdraw: Option<String>,
}

/// Tokens beside the amount of a quota, used when the window has none left.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreditSpec {
    /// Id under which it is given once, until it expires.
    #[schema(min_length = 1, max_length = 64)]
    pub id: String,
    /// The tokens, such as `1k`.
    #[schema(value_type = String)]
    pub amount: LocatedScalar,
    /// Its end, in whole seconds since 1970, ten years from now at most; by default the end of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// Outcome of a change at another node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeOutcome {
    /// It is durable.
    Changed(QuotasView),
    /// The node refused it.
    Refused {
        /// The status of the answer.
        status: u16,
        /// The reason.
        detail: String,
    },
}

// === impl ChangeOutcome ===

impl ChangeOutcome {
    /// The status of the answer.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Changed(_) => 200,
            Self::Refused { status, .. } => *status,
        }
    }
}

// === impl QuotaChangeSpec ===

impl QuotaChangeSpec {
    /// Returns the order of `by` about a quota of `scope`.
    ///
    /// # Errors
    /// If it has no such quota, or a field breaks a rule.
    pub(super) fn request(
        &self,
        catalog: &Catalog,
        scope: &str,
        by: Option<String>,
    ) -> Result<(ResourceId, QuotaChangeRequest), RestError> {
        let names = quota_names(catalog, scope)?;
        let (unit, quota) = self.quota(&names)?;
        let unit = *unit;
        let change = match (&self.set_used, &self.credit, &self.withdraw) {
            (Some(used), None, None) => QuotaChange::SetUsed(tokens("set_used", used, unit)?),
            (None, Some(credit), None) => credit.change(unit)?,
            (None, None, Some(id)) => QuotaChange::Withdraw { id: id.clone() },
            _ => {
                let rule = "exactly one of set_used, credit and withdraw must be given";
                return Err(invalid("set_used", rule));
            }
        };
        let resource = ResourceId::new(scope, unit);
        let resource = resource.map_err(|error| RestError::parameter("scope", scope, error))?;
        let request = QuotaChangeRequest {
            quota: quota.clone(),
            by: by.unwrap_or_default(),
            change,
        };
        Ok((resource, request))
    }

    /// The one of the quotas called `names` that it means.
    fn quota<'a>(&self, names: &'a [(Unit, String)]) -> Result<&'a (Unit, String), RestError> {
        let is_meant = |(unit, name): &&(Unit, String)| {
            self.unit.as_ref().is_none_or(|meant| meant == unit.name())
                && self.per.as_ref().is_none_or(|meant| meant == name)
        };
        let mut meant = names.iter().filter(is_meant);
        match (meant.next(), meant.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(invalid("per", format!("fits none of {}", listed(names)))),
            (Some(_), Some(_)) => {
                let rule = format!("is needed, with unit: there are {}", listed(names));
                Err(invalid("per", rule))
            }
        }
    }
}

// === impl CreditSpec ===

impl CreditSpec {
    fn change(&self, unit: Unit) -> Result<QuotaChange, RestError> {
        let Self { id, amount, until } = self;
        let length = id.chars().count();
        if !(1..=ID_LEN_MAX).contains(&length) || id.chars().any(char::is_control) {
            let rule = format!("is not 1 to {ID_LEN_MAX} printable characters");
            return Err(invalid("credit.id", rule));
        }
        let amount = tokens("credit.amount", amount, unit)?;
        if amount == Tokens::ZERO {
            return Err(invalid("credit.amount", "is nothing"));
        }
        let latest = unix_time().saturating_add(CREDIT_MAX).as_secs();
        if until.is_some_and(|until| until > latest) {
            let rule = "is more than ten years from now: it is in seconds since 1970";
            return Err(invalid("credit.until", rule));
        }
        let until = until.map(|secs| WallTime::from_millis(secs.saturating_mul(1000)));
        Ok(QuotaChange::Credit {
            id: id.clone(),
            amount,
            until,
        })
    }
}

// === free functions ===

/// The quotas of `scope`, by their units and the names of their periods.
///
/// # Errors
/// If it has none.
pub(super) fn quota_names(
    catalog: &Catalog,
    scope: &str,
) -> Result<Vec<(Unit, String)>, RestError> {
    let resolved = catalog.resolve(&Arc::from(scope));
    let mut names = Vec::new();
    for unit in Unit::ALL {
        let limit = resolved.counted(unit);
        let quotas = limit.into_iter().flat_map(|limit| limit.quotas.iter());
        names.extend(quotas.map(|quota| (unit, quota.period.to_string())));
    }
    if !names.is_empty() {
        return Ok(names);
    }
    let group = resolved.home();
    Err(RestError::NotFound(if group == scope {
        format!("{scope} has no quota")
    } else {
        format!("{scope} has no quota of its own; it shares those of {group}")
    }))
}

fn listed(names: &[(Unit, String)]) -> String {
    let names = names.iter();
    let names = names.map(|(unit, name)| format!("{name:?} of {}", unit.name()));
    names.collect::<Vec<_>>().join(", ")
}

/// The tokens of `unit` that `field` says.
fn tokens(field: &str, text: &LocatedScalar, unit: Unit) -> Result<Tokens, RestError> {
    let amount = parse(text.as_str(), QuantityUnit::of(unit));
    let amount = amount.map_err(|error| fault(field, Some(text.as_str()), error))?;
    Ok(Tokens::from_micros(amount.as_micros()))
}

fn invalid(field: &str, rule: impl ToString) -> RestError {
    fault(field, None, rule)
}

fn fault(field: &str, value: Option<&str>, rule: impl ToString) -> RestError {
    RestError::Invalid(vec![FieldFault {
        field: field.to_owned(),
        value: value.map(str::to_owned),
        rule: rule.to_string(),
    }])
}
