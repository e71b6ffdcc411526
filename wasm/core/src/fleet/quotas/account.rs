//! Tokens that the whole fleet has used of a quota.

use alloc::borrow::ToOwned as _;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::time::Duration;

use super::change::{
    CHANGES_MAX, CREDITS_MAX, QuotaChange, QuotaChangeRequest, QuotaCredit, QuotaError, QuotaEvent,
};
use super::{ENDED_MAX, EndedWindow, QuotaRecord, QuotaThreshold, THRESHOLDS, UsedPart};
use crate::quota::{Quota, QuotaPeriod};
use crate::units::{Tokens, WallTime};

/// Part of a quota of which a store may say that it is used beside what is.
const AHEAD_PART: u64 = 16 * 1024;

/// Part of a window for which its use is remembered after its end, so that it can be exported.
const EXPORT_PART: u32 = 8;

/// Use of one quota.
#[derive(Clone, Debug)]
pub(super) struct QuotaAccount {
    /// The quota; none while the limit has none of that name.
    pub(super) quota: Option<Quota>,
    /// Its use: of a calendar in one part.
    record: QuotaRecord,
    /// The last part as the store has it.
    stored: Option<UsedPart>,
    /// Whether the store has the rest of the record.
    is_rest_stored: bool,
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
        let name = quota.period.to_string();
        Self {
            quota: Some(quota.clone()),
            is_rest_stored: true,
            ..Self::of(QuotaRecord {
                name,
                ..QuotaRecord::default()
            })
        }
    }

    /// The use that a record tells of, of a quota that is not known yet.
    pub(super) fn of(record: QuotaRecord) -> Self {
        Self {
            quota: None,
            record,
            stored: None,
            is_rest_stored: false,
            latest: WallTime::default(),
            carried: Default::default(),
            threshold: 0,
        }
    }

    /// The name of its period.
    pub(super) fn name(&self) -> &str {
        &self.record.name
    }

    /// Its use, for another coordinator.
    pub(super) fn record(&self) -> &QuotaRecord {
        &self.record
    }

    /// The same, of an account that is not needed any more.
    pub(super) fn into_record(self) -> QuotaRecord {
        self.record
    }

    /// Takes what another coordinator says is used, where that is more.
    pub(super) fn merge(&mut self, other: &QuotaRecord) {
        self.record.merge(other);
        self.is_rest_stored = false;
    }

    /// Forgets at `now` what does not count any more. Tokens that clients hold are part of what is used from now on.
    /// Returns whether a window of a calendar has ended in which something was used.
    pub(super) fn expire(&mut self, now: WallTime, held: Tokens) -> bool {
        if let Some(quota) = &self.quota {
            self.latest = self.latest.max(quota.period.counts_until(now));
        }
        self.record.credits.retain(|credit| credit.until > now);
        let ended = self.record.parts.partition_point(|part| part.until <= now);
        let ended: Vec<_> = self.record.parts.drain(..ended).collect();
        let Some(last) = ended.last() else {
            return false;
        };
        let expired = ended.iter().map(|part| part.used);
        let expired = expired.fold(Tokens::ZERO, Tokens::saturating_add);
        if expired == Tokens::ZERO {
            return false;
        }
        // Those of later parts are the last that clients got.
        let carried = expired.min(held.saturating_sub(self.used()));
        if self.is_of_calendar() {
            self.threshold = 0;
            self.note_ended(last.until, expired.saturating_sub(carried));
        }
        self.carried = (carried, last.until);
        self.charge(now, carried);
        self.is_of_calendar()
    }

    /// Remembers a window that ended at `end`.
    fn note_ended(&mut self, end: WallTime, used: Tokens) {
        let Some(quota) = &self.quota else { return };
        let before = end.saturating_sub(Duration::from_millis(1));
        let start = quota.period.window(before).start;
        let ended = &mut self.record.ended;
        ended.push(EndedWindow { start, end, used });
        let surplus = ended.len().saturating_sub(ENDED_MAX);
        ended.drain(..surplus);
        self.is_rest_stored = false;
    }

    fn is_of_calendar(&self) -> bool {
        let period = self.quota.as_ref().map(|quota| &quota.period);
        matches!(period, Some(QuotaPeriod::Calendar(_)))
    }

    /// Notes that a client spent `tokens`, the last of them at `spent_at` or before: in the window before this one
    /// they count there alone.
    pub(super) fn note_spent(&mut self, spent_at: WallTime, tokens: Tokens) {
        let (carried, began) = self.carried;
        if !self.is_of_calendar() || spent_at >= began {
            return;
        }
        let before = carried.min(tokens);
        self.carried.0 = carried.saturating_sub(before);
        self.give_back(before);
        if let Some(window) = self.record.ended.last_mut() {
            window.used = window.used.saturating_add(before);
        }
    }

    /// Takes `tokens` that were granted at `now`: of the window, then of credits, those first that expire first, and
    /// then of a debt.
    pub(super) fn charge(&mut self, now: WallTime, tokens: Tokens) {
        let Some(left) = self.left_of_window().filter(|_| tokens > Tokens::ZERO) else {
            return;
        };
        let credited = self.charge_credits(tokens.saturating_sub(left));
        self.count(now, tokens, credited);
    }

    /// Takes `tokens` of credits, or what they have. Returns those that it took.
    fn charge_credits(&mut self, tokens: Tokens) -> Tokens {
        let mut rest = tokens;
        for credit in &mut self.record.credits {
            let part = credit.left.min(rest);
            credit.left = credit.left.saturating_sub(part);
            rest = rest.saturating_sub(part);
        }
        self.is_rest_stored &= rest == tokens;
        tokens.saturating_sub(rest)
    }

    /// Counts `tokens` as used at `now`, a part of them `credited`; with none it is remembered until the window ends.
    fn count(&mut self, now: WallTime, tokens: Tokens, credited: Tokens) {
        let Some(quota) = self.quota.as_ref() else {
            return;
        };
        // After the clock was set back the later window goes on: none opens twice.
        self.latest = self.latest.max(quota.period.counts_until(now));
        let until = self.latest;
        match self.record.parts.last_mut() {
            Some(part) if part.until >= until => {
                part.used = part.used.saturating_add(tokens);
                part.credited = part.credited.saturating_add(credited);
            }
            _ => {
                let part = UsedPart {
                    until,
                    used: tokens,
                    credited,
                };
                // A calendar has one.
                if self.record.parts.is_empty() {
                    self.record.parts.reserve_exact(1);
                }
                self.record.parts.push(part);
            }
        }
    }

    /// Takes back `tokens` that were granted and are not spent.
    pub(super) fn give_back(&mut self, tokens: Tokens) {
        take_back(self.record.parts.iter_mut().rev(), tokens);
    }

    /// Takes back `tokens` that were spent from `taken_at` on, as long as they count: those first that would not count for
    /// much longer.
    pub(super) fn refund(&mut self, now: WallTime, taken_at: WallTime, tokens: Tokens) {
        let period = self.quota.as_ref().map(|quota| &quota.period);
        if period.is_none_or(|period| period.counts_until(taken_at) <= now) {
            return;
        }
        take_back(self.record.parts.iter_mut(), tokens);
    }

    /// Makes a change at `now`, while clients hold `held`.
    ///
    /// # Errors
    /// If there is no room for a credit, or it is none.
    pub(super) fn change(
        &mut self,
        now: WallTime,
        held: Tokens,
        request: &QuotaChangeRequest,
    ) -> Result<(), QuotaError> {
        let (credit, tokens) = match &request.change {
            QuotaChange::SetUsed(tokens) => {
                self.record.parts.clear();
                self.carried = Default::default();
                self.stored = None;
                self.count(now, tokens.saturating_add(held), Tokens::ZERO);
                (None, *tokens)
            }
            QuotaChange::Credit { id, amount, until } => {
                if !self.add_credit(now, id, *amount, *until)? {
                    return Ok(());
                }
                (Some(id.clone()), *amount)
            }
            QuotaChange::Withdraw { id } => {
                let credits = &mut self.record.credits;
                let known = credits.iter().position(|credit| credit.id == *id);
                credits.remove(known.ok_or(QuotaError::NoCredit)?);
                (Some(id.clone()), Tokens::ZERO)
            }
        };
        let events = &mut self.record.events;
        events.push(QuotaEvent {
            at: now,
            by: request.by.clone(),
            credit,
            tokens,
        });
        let surplus = events.len().saturating_sub(CHANGES_MAX);
        events.drain(..surplus);
        self.is_rest_stored = false;
        Ok(())
    }

    /// Adds a credit. Returns whether it is new.
    fn add_credit(
        &mut self,
        now: WallTime,
        id: &str,
        amount: Tokens,
        until: Option<WallTime>,
    ) -> Result<bool, QuotaError> {
        let credits = &mut self.record.credits;
        if let Some(known) = credits.iter().find(|credit| credit.id == id) {
            // Its end may be told as a time from now.
            let is_same = known.amount == amount;
            return is_same.then_some(false).ok_or(QuotaError::CreditDiffers);
        }
        let quota = self.quota.as_ref().ok_or(QuotaError::Unknown)?;
        let until = until.unwrap_or_else(|| quota.period.counts_until(now).max(self.latest));
        if until <= now {
            return Err(QuotaError::Expired);
        }
        if credits.len() >= CREDITS_MAX {
            return Err(QuotaError::TooManyCredits);
        }
        credits.push(QuotaCredit {
            id: id.to_owned(),
            amount,
            left: amount,
            until,
        });
        credits.sort_by_key(|credit| credit.until);
        Ok(true)
    }

    /// Tokens that are used, credits included.
    pub(super) fn used(&self) -> Tokens {
        let used = self.record.parts.iter().map(|part| part.used);
        used.fold(Tokens::ZERO, Tokens::saturating_add)
    }

    /// Tokens that are left of all credits.
    pub(super) fn credit(&self) -> Tokens {
        let left = self.record.credits.iter().map(|credit| credit.left);
        left.fold(Tokens::ZERO, Tokens::saturating_add)
    }

    /// Tokens that are left; none if it bounds nothing.
    pub(super) fn left(&self) -> Option<Tokens> {
        Some(self.left_of_window()?.saturating_add(self.credit()))
    }

    /// The same without credits.
    fn left_of_window(&self) -> Option<Tokens> {
        let quota = self.quota.as_ref()?;
        let credited = self.record.parts.iter().map(|part| part.credited);
        let credited = credited.fold(Tokens::ZERO, Tokens::saturating_add);
        let counted = self.used().saturating_sub(credited);
        Some(quota.amount.saturating_sub(counted))
    }

    /// Time from `now` until `need` tokens are left, or all of a smaller amount; none if they are, or never will be.
    pub(super) fn opens_in(&self, now: WallTime, need: Tokens) -> Option<Duration> {
        let need = need.min(self.quota.as_ref()?.amount);
        let mut left = self.left()?;
        for part in &self.record.parts {
            if left >= need {
                return None;
            }
            left = left.saturating_add(part.used.saturating_sub(part.credited));
            if left >= need {
                return Some(part.until.saturating_since(now));
            }
        }
        None
    }

    /// Time until which it is remembered: of a calendar a window can be exported for a while after its end.
    pub(super) fn lasts_until(&self) -> Option<WallTime> {
        let quota = self.quota.as_ref().filter(|_| self.is_of_calendar());
        let exported_for = quota.and_then(|quota| quota.period.length().checked_div(EXPORT_PART));
        let exported_for = exported_for.unwrap_or_default();
        let counts_until = self.record.parts.last().map(|part| part.until);
        let window_until = self.record.ended.last().map(|window| window.end);
        let exported_until = counts_until.max(window_until);
        let exported_until = exported_until.map(|until| until.saturating_add(exported_for));
        let credit_until = self.record.credits.last().map(|credit| credit.until);
        exported_until.max(credit_until)
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
            name: self.record.name.clone(),
            percent,
        })
    }

    /// Tokens that a store may say are used beside those that are, in whole ones.
    fn ahead(&self) -> Tokens {
        let amount = self.quota.as_ref().map_or(0, |quota| quota.amount.whole());
        let ahead = Tokens::from_whole(amount.checked_div(AHEAD_PART).unwrap_or(0));
        ahead.min(self.left_of_window().unwrap_or(Tokens::ZERO))
    }

    /// Whether a store says that less is used than is, or much more.
    pub(super) fn is_beyond_stored(&self) -> bool {
        let ahead = self.ahead().saturating_add(self.ahead());
        let is_last_beyond = self.record.parts.last().is_some_and(|last| {
            let stored = self.stored.filter(|stored| stored.until == last.until);
            let most = last.used.saturating_add(ahead);
            stored.is_none_or(|stored| stored.used < last.used || stored.used > most)
        });
        is_last_beyond || !self.is_rest_stored
    }

    /// Returns what is to be stored, so that the next tokens need no write.
    pub(super) fn store(&mut self) -> QuotaRecord {
        let ahead = self.ahead();
        let mut record = self.record.clone();
        if let Some(last) = record.parts.last_mut() {
            last.used = last.used.saturating_add(ahead);
        }
        self.stored = record.parts.last().copied();
        self.is_rest_stored = true;
        record
    }

    /// Notes that the store does not have it.
    pub(super) fn not_stored(&mut self) {
        self.stored = None;
        self.is_rest_stored = false;
    }
}

// === free functions ===

/// Takes `tokens` back from what is used of `parts`, of the first ones first.
fn take_back<'a>(parts: impl Iterator<Item = &'a mut UsedPart>, tokens: Tokens) {
    let mut rest = tokens;
    for part in parts {
        let back = part.used.min(rest);
        part.used = part.used.saturating_sub(back);
        part.credited = part.credited.min(part.used);
        rest = rest.saturating_sub(back);
    }
}
