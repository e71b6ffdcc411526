//! Quotas with what is used of them.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use serde::{Deserialize, Serialize};
use tollgate_core::fleet::QuotaUsage;
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
    /// The part that nobody has.
    #[schema(minimum = 0)]
    pub left: f64,
    /// Start of the window.
    pub from_ms: u64,
    /// Its end; of a window that slides, now.
    pub until_ms: u64,
    /// Now.
    pub at_ms: u64,
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
        Self {
            per: quota.name.clone(),
            amount: tokens(quota.amount),
            used: tokens(quota.used),
            left: tokens(quota.amount.saturating_sub(quota.used)),
            from_ms: quota.window.start.as_millis(),
            until_ms: quota.window.end.as_millis(),
            at_ms: quota.time.as_millis(),
        }
    }
}
