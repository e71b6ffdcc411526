//! Quotas with what is used of them.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use serde::{Deserialize, Serialize};
use tollgate_core::fleet::{EndedWindow, QuotaCredit, QuotaEvent, QuotaUsage};
use utoipa::ToSchema;

use super::tokens;

/// Quota of a limit in its present window, in tokens. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct QuotaView {
    /// Its name: the period, such as `day`, `month from 15` or `24h`.
    pub per: String,
    /// Amount of a window.
    #[schema(minimum = 0)]
    pub amount: f64,
    /// The part that clients were granted, of which they may hold a little.
    #[schema(minimum = 0)]
    pub used: f64,
    /// The part of that which clients hold, as far as is known.
    #[serde(default)]
    #[schema(minimum = 0)]
    pub held: f64,
    /// The tokens that nobody has, credits included.
    #[schema(minimum = 0)]
    pub left: f64,
    /// Start of the window.
    pub from_ms: u64,
    /// Its end; of a window that slides, now.
    pub until_ms: u64,
    /// Now.
    pub at_ms: u64,
    /// Credits that have not expired; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub credits: Vec<CreditView>,
    /// The last twelve windows that have ended, and in which something was used, the earliest first; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub ended: Vec<EndedWindowView>,
    /// The last eight changes that people made, the earliest first; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub changes: Vec<QuotaChangeView>,
}

/// Tokens beside the amount of a quota, used when the window has none left.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct CreditView {
    /// Its id: it is given once.
    pub id: String,
    /// The tokens.
    #[schema(minimum = 0)]
    pub amount: f64,
    /// Those that are left.
    #[schema(minimum = 0)]
    pub left: f64,
    /// Its end, in milliseconds since 1970.
    pub until_ms: u64,
}

/// Use of a window that has ended. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct EndedWindowView {
    /// Its start.
    pub from_ms: u64,
    /// Its end.
    pub until_ms: u64,
    /// Tokens that were used.
    #[schema(minimum = 0)]
    pub used: f64,
}

/// A change of a quota that a person made.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct QuotaChangeView {
    /// Its time, in milliseconds since 1970.
    pub at_ms: u64,
    /// Name of the token; empty without tokens.
    pub by: String,
    /// Id of the credit; absent if it was said what is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub credit: Option<String>,
    /// Tokens of the credit, or that were said to be used.
    #[schema(minimum = 0)]
    pub tokens: f64,
}

// === impl QuotaView ===

impl QuotaView {
    /// The views of `quotas`.
    pub(crate) fn all(quotas: &[QuotaUsage]) -> Vec<Self> {
        quotas.iter().map(Self::from).collect()
    }

    /// Part that is used, from 0 on; more than 1 if costs became known late.
    pub fn used_part(&self) -> f64 {
        self.used / self.amount.max(1.0)
    }

    /// Part of the window that has passed; none if it slides.
    pub fn passed_part(&self) -> Option<f64> {
        let length = self.until_ms.checked_sub(self.from_ms)?;
        let passed = self.at_ms.checked_sub(self.from_ms)?;
        (self.until_ms > self.at_ms).then(|| passed as f64 / length.max(1) as f64)
    }

    /// Time after which all is used if it goes on as it did since the start of the window; none if nothing is used.
    pub fn used_up_in_ms(&self) -> Option<u64> {
        let passed = self.at_ms.checked_sub(self.from_ms)?;
        (self.used > 0.0).then(|| (passed as f64 * self.left / self.used) as u64)
    }
}

impl From<&QuotaUsage> for QuotaView {
    fn from(quota: &QuotaUsage) -> Self {
        let record = &quota.record;
        Self {
            per: record.name.clone(),
            amount: tokens(quota.amount),
            used: tokens(quota.used),
            held: tokens(quota.held),
            left: tokens(quota.left),
            from_ms: quota.window.start.as_millis(),
            until_ms: quota.window.end.as_millis(),
            at_ms: quota.time.as_millis(),
            credits: record.credits.iter().map(CreditView::from).collect(),
            ended: record.ended.iter().map(EndedWindowView::from).collect(),
            changes: record.events.iter().map(QuotaChangeView::from).collect(),
        }
    }
}

// === impl CreditView ===

impl From<&QuotaCredit> for CreditView {
    fn from(credit: &QuotaCredit) -> Self {
        Self {
            id: credit.id.clone(),
            amount: tokens(credit.amount),
            left: tokens(credit.left),
            until_ms: credit.until.as_millis(),
        }
    }
}

// === impl EndedWindowView ===

impl From<&EndedWindow> for EndedWindowView {
    fn from(window: &EndedWindow) -> Self {
        Self {
            from_ms: window.start.as_millis(),
            until_ms: window.end.as_millis(),
            used: tokens(window.used),
        }
    }
}

// === impl QuotaChangeView ===

impl From<&QuotaEvent> for QuotaChangeView {
    fn from(event: &QuotaEvent) -> Self {
        Self {
            at_ms: event.at.as_millis(),
            by: event.by.clone(),
            credit: event.credit.clone(),
            tokens: tokens(event.tokens),
        }
    }
}
