//! Tokens that the whole fleet has used of a quota.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString as _};
use core::time::Duration;

use super::{QuotaRecord, QuotaThreshold, THRESHOLDS, UsedPart};
use crate::quota::{Quota, QuotaPeriod};
use crate::units::{Tokens, WallTime};

/// Part of a quota of which a store may say that it is used beside what is.
const AHEAD_PART: u64 = 16 * 1024;

/// Use of one quota.
#[derive(Clone, Debug)]
pub(super) struct QuotaAccount {
    /// The name of its period.
    pub(super) name: String,
    /// The quota; none while the limit has none of that name.
    pub(super) quota: Option<Quota>,
    /// Tokens that were granted, by the times until which they count, in order: one for a calendar.
    parts: VecDeque<UsedPart>,
    /// The last part as the store has it.
    stored: Option<UsedPart>,
    /// The latest time until which anything has counted.
    latest: WallTime,
    /// Tokens that clients held when the window began, and that time.
    carried: (Tokens, WallTime),
    /// The threshold that was reached last, in percent.
    threshold: u64,
}

// === impl QuotaAccount ===

impl QuotaAccount {
    /// A quota of which nothing is used.
    pub(super) fn new(quota: &Quota) -> Self {
        Self {
            name: quota.period.to_string(),
            quota: Some(quota.clone()),
            parts: VecDeque::new(),
            stored: None,
            latest: WallTime::default(),
            carried: Default::default(),
            threshold: 0,
        }
    }

    /// The use that a record tells of, of a quota that is not known yet.
    pub(super) fn of(record: &QuotaRecord) -> Self {
        Self {
            name: record.name.clone(),
            quota: None,
            parts: record.parts.iter().copied().collect(),
            stored: None,
            latest: WallTime::default(),
            carried: Default::default(),
            threshold: 0,
        }
    }

    /// Takes the parts of `other` of which more is used.
    pub(super) fn merge(&mut self, other: &Self) {
        for more in &other.parts {
            match self.parts.iter_mut().find(|part| part.until == more.until) {
                Some(part) => part.used = part.used.max(more.used),
                None => self.parts.push_back(*more),
            }
        }
        self.parts
            .make_contiguous()
            .sort_unstable_by_key(|part| part.until);
    }

    /// Forgets at `now` what does not count any more. Tokens that clients hold are part of what is used from now on.
    pub(super) fn expire(&mut self, now: WallTime, held: Tokens) {
        if let Some(quota) = &self.quota {
            self.latest = self.latest.max(quota.period.counts_until(now));
        }
        let mut expired = Tokens::ZERO;
        let mut began = self.carried.1;
        while let Some(part) = self.parts.pop_front_if(|part| part.until <= now) {
            expired = expired.saturating_add(part.used);
            began = part.until;
        }
        // Those of later parts are the last that clients got.
        let carried = expired.min(held.saturating_sub(self.used()));
        if expired > Tokens::ZERO && self.is_of_calendar() {
            self.threshold = 0;
        }
        if expired > Tokens::ZERO {
            self.carried = (carried, began);
        }
        self.charge(now, carried);
    }

    fn is_of_calendar(&self) -> bool {
        let period = self.quota.as_ref().map(|quota| &quota.period);
        matches!(period, Some(QuotaPeriod::Calendar(_)))
    }

    /// Notes that a client spent `tokens`, the last of them at `spent_at` or before: in the window before this one
    /// they count there alone.
    pub(super) fn note_spent(&mut self, spent_at: WallTime, tokens: Tokens) {
        let (carried, began) = self.carried;
        if self.is_of_calendar() && spent_at < began {
            let before = carried.min(tokens);
            self.carried.0 = carried.saturating_sub(before);
            self.give_back(before);
        }
    }

    /// Takes `tokens` that were granted at `now`.
    pub(super) fn charge(&mut self, now: WallTime, tokens: Tokens) {
        let Some(quota) = self.quota.as_ref().filter(|_| tokens > Tokens::ZERO) else {
            return;
        };
        // After the clock was set back the later window goes on: none opens twice.
        self.latest = self.latest.max(quota.period.counts_until(now));
        let until = self.latest;
        match self.parts.back_mut() {
            Some(part) if part.until >= until => part.used = part.used.saturating_add(tokens),
            _ => self.parts.push_back(UsedPart {
                until,
                used: tokens,
            }),
        }
    }

    /// Takes back `tokens` that were granted and are not spent.
    pub(super) fn give_back(&mut self, tokens: Tokens) {
        let mut rest = tokens;
        for part in self.parts.iter_mut().rev() {
            let back = part.used.min(rest);
            part.used = part.used.saturating_sub(back);
            rest = rest.saturating_sub(back);
        }
    }

    /// Tokens that are used.
    pub(super) fn used(&self) -> Tokens {
        let used = self.parts.iter().map(|part| part.used);
        used.fold(Tokens::ZERO, Tokens::saturating_add)
    }

    /// Tokens that are left; none if it bounds nothing.
    pub(super) fn left(&self) -> Option<Tokens> {
        let quota = self.quota.as_ref()?;
        Some(quota.amount.saturating_sub(self.used()))
    }

    /// Time from `now` until `need` tokens are left, or all of a smaller amount; none if they are, or never will be.
    pub(super) fn opens_in(&self, now: WallTime, need: Tokens) -> Option<Duration> {
        let need = need.min(self.quota.as_ref()?.amount);
        let mut left = self.left()?;
        for part in &self.parts {
            if left >= need {
                return None;
            }
            left = left.saturating_add(part.used);
            if left >= need {
                return Some(part.until.saturating_since(now));
            }
        }
        None
    }

    /// Time at which nothing counts any more.
    pub(super) fn counts_until(&self) -> Option<WallTime> {
        self.parts.back().map(|part| part.until)
    }

    /// Part of the amount that is used, in percent; none if it bounds nothing.
    fn percent(&self) -> Option<u64> {
        let amount = self.quota.as_ref()?.amount.as_micros();
        let used = u128::from(self.used().as_micros()).saturating_mul(100);
        let percent = used.checked_div(amount.into())?;
        Some(u64::try_from(percent).unwrap_or(u64::MAX))
    }

    /// Returns the highest threshold that has been reached, once for each window.
    pub(super) fn take_threshold(&mut self) -> Option<QuotaThreshold> {
        let used = self.percent()?;
        let reached = THRESHOLDS.into_iter().filter(|percent| *percent <= used);
        let percent = reached.max().unwrap_or(0);
        let before = self.threshold;
        // Tokens that come back are no news.
        self.threshold = if percent == 0 { 0 } else { percent.max(before) };
        (percent > before).then(|| QuotaThreshold {
            name: self.name.clone(),
            percent,
        })
    }

    /// Tokens that a store may say are used beside those that are, in whole ones.
    fn ahead(&self) -> Tokens {
        let amount = self.quota.as_ref().map_or(0, |quota| quota.amount.whole());
        let ahead = Tokens::from_whole(amount.checked_div(AHEAD_PART).unwrap_or(0));
        ahead.min(self.left().unwrap_or(Tokens::ZERO))
    }

    /// Whether a store says that less is used than is, or much more.
    pub(super) fn is_beyond_stored(&self) -> bool {
        let ahead = self.ahead().saturating_add(self.ahead());
        self.parts.back().is_some_and(|last| {
            let stored = self.stored.filter(|stored| stored.until == last.until);
            let most = last.used.saturating_add(ahead);
            stored.is_none_or(|stored| stored.used < last.used || stored.used > most)
        })
    }

    /// Returns what is to be stored, so that the next tokens need no write.
    pub(super) fn store(&mut self) -> QuotaRecord {
        let ahead = self.ahead();
        let mut record = self.record();
        if let Some(last) = record.parts.last_mut() {
            last.used = last.used.saturating_add(ahead);
        }
        self.stored = record.parts.last().copied();
        record
    }

    /// Returns what is used, for another coordinator.
    pub(super) fn record(&self) -> QuotaRecord {
        QuotaRecord {
            name: self.name.clone(),
            parts: self.parts.iter().copied().collect(),
        }
    }

    /// Notes that the store does not have it.
    pub(super) fn not_stored(&mut self) {
        self.stored = None;
    }
}
