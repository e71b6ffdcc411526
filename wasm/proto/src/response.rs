//! Answers of a coordinator on the wire.
//!
//! The filter reads these, so a hostile or broken coordinator must not hurt more than the scopes it
//! answers for: each scope is checked by itself, and a bad one is an error of that scope.

use std::time::Duration;

use tollgate_core::fleet::QuotaLevel;
pub use tollgate_core::lease::UnitAnswer;
use tollgate_core::lease::{Answer, DrawAnswer, Epoch, LeaseTerms, Origin};
use tollgate_core::limit::LEASE_MAX;
pub use tollgate_core::message::{
    MESSAGE_LEN_MAX, Refreshed, ScopeAnswer, ScopeError, UnusableAnswer,
};
use tollgate_core::units::{Capacity, CapacityError, RatePeriod, Tokens};

use crate::field::FieldError;
use crate::request::{check_len, scope_id};
use crate::{number, v1};

// === impl Refreshed ===

impl TryFrom<v1::RefreshResponse> for Refreshed {
    type Error = FieldError;

    fn try_from(message: v1::RefreshResponse) -> Result<Self, FieldError> {
        check_len("scopes", message.scopes.len())?;
        let scopes = message.scopes.into_iter().enumerate();
        let answer = |(i, mut scope): (usize, v1::ScopeResponse)| {
            if scope.epoch == 0 {
                scope.epoch = message.epoch;
            }
            ScopeAnswer::try_from(scope).map_err(|error| error.within("scopes", i).into())
        };
        Ok(Self {
            scopes: scopes.map(answer).collect(),
        })
    }
}

impl From<FieldError> for UnusableAnswer {
    fn from(error: FieldError) -> Self {
        Self(error.to_string())
    }
}

impl v1::RefreshResponse {
    /// The message that says `scopes`.
    pub fn new(scopes: &[ScopeAnswer]) -> Self {
        let epochs = scopes.iter().map(|scope| scope.origin.epoch);
        Self {
            epoch: epochs.max().unwrap_or_default().0,
            scopes: scopes.iter().map(Into::into).collect(),
        }
    }
}

// === impl ScopeAnswer ===

impl TryFrom<v1::ScopeResponse> for ScopeAnswer {
    type Error = FieldError;

    fn try_from(message: v1::ScopeResponse) -> Result<Self, FieldError> {
        let id = |field, id: &str| scope_id(id).map_err(|error| FieldError::new(field, error));
        let scope = id("scope", &message.scope)?;
        let canonical = match message.canonical_scope {
            same if same == message.scope => scope.clone(),
            other => id("canonical_scope", &other)?,
        };
        let shard = number::to_shard(message.shard);
        let origin = Origin {
            shard: shard.map_err(|rule| FieldError::new("shard", rule))?,
            epoch: Epoch(message.epoch),
        };
        // A newer coordinator may limit units that this build cannot count.
        let known = |unit: &i32| number::to_unit(*unit).ok();
        let mut limited: Vec<_> = message.limited.iter().filter_map(known).collect();
        limited.sort_unstable();
        limited.dedup();
        let outcome = match message.error {
            Some(error) => Err(error.into()),
            None => {
                let units = message.units.iter().enumerate();
                Ok(units
                    .map(|(i, unit)| UnitAnswer::try_from(unit).map_err(|e| e.within("units", i)))
                    .collect::<Result<_, _>>()?)
            }
        };
        Ok(Self {
            scope,
            canonical,
            limited,
            origin,
            usual: message.usual,
            outcome,
        })
    }
}

impl From<&ScopeAnswer> for v1::ScopeResponse {
    fn from(answer: &ScopeAnswer) -> Self {
        let (units, error) = match &answer.outcome {
            Ok(units) => (units.iter().map(Into::into).collect(), None),
            Err(error) => (Vec::new(), Some(error.clone().into())),
        };
        Self {
            scope: answer.scope.as_ref().to_owned(),
            canonical_scope: answer.canonical.as_ref().to_owned(),
            units,
            error,
            limited: answer
                .limited
                .iter()
                .copied()
                .map(number::from_unit)
                .collect(),
            // Alone it is that of the whole response.
            epoch: answer.origin.shard.map_or(0, |_| answer.origin.epoch.0),
            shard: number::from_shard(answer.origin.shard),
            usual: answer.usual,
        }
    }
}

// === impl ScopeError ===

impl From<v1::ScopeError> for ScopeError {
    /// Replaces control characters and cuts what is too long: the message ends up in logs.
    fn from(message: v1::ScopeError) -> Self {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let mut text: String = message.message.chars().map(clean).collect();
        text.truncate(text.floor_char_boundary(MESSAGE_LEN_MAX));
        Self {
            code: message.code,
            message: text,
        }
    }
}

impl From<ScopeError> for v1::ScopeError {
    fn from(error: ScopeError) -> Self {
        Self {
            code: error.code,
            message: error.message,
        }
    }
}

// === impl UnitAnswer ===

impl TryFrom<&v1::UnitResponse> for UnitAnswer {
    type Error = FieldError;

    fn try_from(message: &v1::UnitResponse) -> Result<Self, FieldError> {
        let unit = number::to_unit(message.unit).map_err(|rule| FieldError::new("unit", rule))?;
        let refresh_interval = number::to_duration(message.refresh_interval_ms)
            .map_err(|rule| FieldError::new("refresh_interval_ms", rule))?;
        let safe = message.safe_capacity.map(number::to_capacity).transpose();
        let burst = message.burst.map(number::to_tokens).transpose();
        let answer = Answer {
            lease: message.lease.as_ref().map(lease_terms).transpose()?,
            refresh_interval,
            safe: safe.map_err(|error| FieldError::new("safe_capacity", error))?,
            capacity: capacity_or_unlimited(message.capacity, message.unlimited)
                .map_err(|error| FieldError::new("capacity", error))?,
            // A newer coordinator may know others.
            period: RatePeriod::from_seconds(message.period_s),
            burst: burst.map_err(|error| FieldError::new("burst", error))?,
            draw: message.draw.as_ref().map(draw).transpose()?,
        };
        Ok(Self {
            unit,
            sequence: message.sequence,
            answer,
        })
    }
}

impl From<&UnitAnswer> for v1::UnitResponse {
    fn from(unit: &UnitAnswer) -> Self {
        let answer = &unit.answer;
        let (capacity, unlimited) = wire_capacity(answer.capacity);
        // A lease that is over before it can be told is no lease.
        let lease = answer
            .lease
            .filter(|terms| terms.duration >= Duration::from_millis(1));
        Self {
            unit: number::from_unit(unit.unit),
            sequence: unit.sequence,
            lease: lease.map(Into::into),
            refresh_interval_ms: number::from_duration(answer.refresh_interval).max(1),
            safe_capacity: answer.safe.map(number::from_capacity),
            capacity,
            unlimited,
            burst: answer.burst.map(number::from_tokens),
            draw: answer.draw.map(Into::into),
            period_s: answer.period.map_or(0, RatePeriod::seconds),
        }
    }
}

impl From<DrawAnswer> for v1::DrawResponse {
    fn from(draw: DrawAnswer) -> Self {
        // Not a moment earlier: the token is not there yet.
        let up = Duration::from_nanos(999_999);
        let next = draw.next.map(|next| next.saturating_add(up).min(LEASE_MAX));
        Self {
            granted: draw.granted.as_micros(),
            left: draw.left.as_micros(),
            next_ms: next.map(number::from_duration),
            standby: number::from_capacity(draw.standby),
            quota: draw.quota.map(Into::into),
        }
    }
}

impl From<QuotaLevel> for v1::QuotaLevel {
    fn from(quota: QuotaLevel) -> Self {
        Self {
            amount: quota.amount.as_micros(),
            left: quota.left.as_micros(),
            window_ms: millis(quota.length),
            resets_in_ms: millis(quota.resets_in),
        }
    }
}

impl From<LeaseTerms> for v1::Lease {
    fn from(terms: LeaseTerms) -> Self {
        let (capacity, unlimited) = wire_capacity(terms.capacity);
        Self {
            capacity,
            duration_ms: number::from_duration(terms.duration),
            burst: number::from_tokens(terms.burst),
            unlimited,
            fingerprint: terms.fingerprint,
        }
    }
}

// === free functions ===

fn draw(message: &v1::DrawResponse) -> Result<DrawAnswer, FieldError> {
    let next = message.next_ms.map(number::to_remaining).transpose();
    Ok(DrawAnswer {
        granted: Tokens::from_micros(message.granted),
        left: Tokens::from_micros(message.left),
        next: next.map_err(|rule| FieldError::new("draw.next_ms", rule))?,
        standby: number::to_capacity(message.standby)
            .map_err(|error| FieldError::new("draw.standby", error))?,
        quota: message.quota.map(|quota| QuotaLevel {
            amount: Tokens::from_micros(quota.amount),
            left: Tokens::from_micros(quota.left),
            length: Duration::from_millis(quota.window_ms),
            resets_in: Duration::from_millis(quota.resets_in_ms),
        }),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn lease_terms(message: &v1::Lease) -> Result<LeaseTerms, FieldError> {
    Ok(LeaseTerms {
        capacity: capacity_or_unlimited(message.capacity, message.unlimited)
            .map_err(|error| FieldError::new("lease.capacity", error))?,
        burst: number::to_tokens(message.burst)
            .map_err(|error| FieldError::new("lease.burst", error))?,
        duration: number::to_duration(message.duration_ms)
            .map_err(|rule| FieldError::new("lease.duration_ms", rule))?,
        fingerprint: message.fingerprint,
    })
}

fn capacity_or_unlimited(value: f64, unlimited: bool) -> Result<Capacity, CapacityError> {
    let capacity = number::to_capacity(value)?;
    Ok(if unlimited {
        Capacity::UNLIMITED
    } else {
        capacity
    })
}

fn wire_capacity(capacity: Capacity) -> (f64, bool) {
    if capacity.is_unlimited() {
        return (0.0, true);
    }
    (number::from_capacity(capacity), false)
}

#[cfg(test)]
mod tests;
