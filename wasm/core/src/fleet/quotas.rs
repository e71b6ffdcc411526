//! Quotas of a limit, as the whole fleet uses them.
//!
//! A token counts from when it is granted until the end of its window, and those that clients hold at that end count in
//! the next one. So clients spend no more in a window than its amount, whenever they spend what they were granted.

use alloc::string::String;
use alloc::vec::Vec;
use core::iter;
use core::time::Duration;

mod account;
mod change;

use self::account::QuotaAccount;
pub use self::change::{QuotaChange, QuotaChangeRequest, QuotaCredit, QuotaError, QuotaEvent};
use crate::quota::{Quota, QuotaWindow, Quotas};
use crate::units::{Instant, Tokens, WallClock, WallTime};

/// Part of a quota that a client may be granted beside what it needs: a killed one loses it.
const AHEAD_PART: u64 = 32 * 1024;

/// Parts of a quota, in percent, of which people are told that they are used.
const THRESHOLDS: [u64; 2] = [80, 100];

/// The most windows that have ended of which the use is remembered.
const ENDED_MAX: usize = 12;

/// Quotas of a limit, with what is used of them.
#[derive(Debug, Default)]
pub(crate) struct FleetQuotas {
    accounts: Vec<QuotaAccount>,
    clock: WallClock,
    /// Tokens that clients may hold by the word of a store, beside those that are known here, and the time until which
    /// they may.
    restored: (Tokens, Instant),
    /// Time since which all windows are those of now, as far as is known.
    turned_at: Option<Instant>,
}

/// Use of a quota, in a store or a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaRecord {
    /// The name of its period.
    pub name: String,
    /// Tokens that are used, by the times until which they count, in order.
    pub parts: Vec<UsedPart>,
    /// Its credits, in the order of their ends.
    pub credits: Vec<QuotaCredit>,
    /// The last windows of a calendar that have ended, and in which something was used, in order.
    pub ended: Vec<EndedWindow>,
    /// The last changes that people made, in order.
    pub events: Vec<QuotaEvent>,
}

/// Use of a window that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedWindow {
    /// Its start.
    pub start: WallTime,
    /// Its end.
    pub end: WallTime,
    /// The tokens that were used.
    pub used: Tokens,
}

/// Tokens that are used of a quota, and count for the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedPart {
    /// End of that time.
    pub until: WallTime,
    /// The tokens.
    pub used: Tokens,
    /// The part of them that was paid by credits.
    pub credited: Tokens,
}

/// Usage of a quota, for reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Tokens of a window.
    pub amount: Tokens,
    /// Tokens of the window that were granted, those that clients hold included.
    pub used: Tokens,
    /// The part of these that clients hold, as far as is known.
    pub held: Tokens,
    /// Tokens that nobody has, credits included.
    pub left: Tokens,
    /// The window of now.
    pub window: QuotaWindow,
    /// Now, by the wall clock.
    pub time: WallTime,
    /// Its name, credits, earlier windows and changes.
    pub record: QuotaRecord,
}

/// Quota that is nearest to its end, as a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLevel {
    /// Tokens of a window.
    pub amount: Tokens,
    /// Tokens that nobody has.
    pub left: Tokens,
    /// Usual length of a window.
    pub length: Duration,
    /// Time until some of what is used does not count any more.
    pub resets_in: Duration,
}

/// Threshold that the usage of a quota has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaThreshold {
    /// The name of its period.
    pub name: String,
    /// Percent of the amount that are used now: 80 or 100.
    pub percent: u64,
}

// === impl QuotaRecord ===

impl QuotaRecord {
    /// Takes what another record says is used, where that is more.
    pub(crate) fn merge(&mut self, other: &Self) {
        for more in &other.parts {
            match self.parts.iter_mut().find(|part| part.until == more.until) {
                Some(part) if part.used >= more.used => {}
                Some(part) => *part = *more,
                None => self.parts.push(*more),
            }
        }
        self.parts.sort_unstable_by_key(|part| part.until);
        for credit in &other.credits {
            match self.credits.iter_mut().find(|known| known.id == credit.id) {
                Some(known) => known.left = known.left.min(credit.left),
                None => self.credits.push(credit.clone()),
            }
        }
        self.credits.sort_by_key(|credit| credit.until);
        let last_end = |record: &Self| record.ended.last().map(|window| window.end);
        if last_end(self) < last_end(other) {
            self.ended.clone_from(&other.ended);
        }
        let last_change = |record: &Self| record.events.last().map(|event| event.at);
        if last_change(self) < last_change(other) {
            self.events.clone_from(&other.events);
        }
    }
}

// === impl QuotaLevel ===

impl QuotaLevel {
    /// Whether a limit of so many micro-tokens a second bounds nothing beside the quota: such a limit was written
    /// without a rate.
    pub fn bounds_alone(&self, limit: u64) -> bool {
        limit >= self.amount.as_micros()
    }
}

// === impl FleetQuotas ===

impl FleetQuotas {
    /// Those of a limit that is new: nothing has been spent yet.
    pub(crate) fn new(quotas: &Quotas) -> Self {
        let mut new = Self::default();
        new.set(quotas);
        new.turned_at = Some(Instant::ZERO);
        new
    }

    /// Whether nothing bounds, or is remembered.
    fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    fn bounding(&self) -> impl Iterator<Item = (&QuotaAccount, &Quota)> {
        let accounts = self.accounts.iter();
        accounts.filter_map(|account| Some((account, account.quota.as_ref()?)))
    }

    /// Whether a quota bounds the limit.
    pub(crate) fn has_any(&self) -> bool {
        self.bounding().next().is_some()
    }

    /// Takes the quotas of the limit. What is used of one stays while its window lasts, also while the limit is
    /// without it.
    pub(crate) fn set(&mut self, quotas: &Quotas) {
        if self.is_empty() && quotas.is_empty() {
            return;
        }
        let before: Vec<_> = self
            .accounts
            .iter_mut()
            .map(|account| account.quota.take())
            .collect();
        for quota in quotas.iter() {
            let new = QuotaAccount::new(quota);
            match self.find_mut(new.name()) {
                Some(old) => old.quota = new.quota,
                None => self.push(new),
            }
        }
        let before = before
            .iter()
            .map(Option::is_some)
            .chain(iter::repeat(false));
        let mut accounts = before.zip(&self.accounts);
        if accounts.any(|(bounded, account)| !bounded && account.quota.is_some()) {
            // Nothing that was spent before counts.
            self.turned_at = None;
        }
        let time = self.clock.time(self.clock.read_at());
        self.drop_unused(time);
    }

    fn find_mut(&mut self, name: &str) -> Option<&mut QuotaAccount> {
        let mut accounts = self.accounts.iter_mut();
        accounts.find(|account| account.name() == name)
    }

    fn push(&mut self, account: QuotaAccount) {
        // Most limits have one, and there are many of them.
        self.accounts.reserve_exact(1);
        self.accounts.push(account);
    }

    fn drop_unused(&mut self, now: WallTime) {
        let is_used = |account: &QuotaAccount| account.lasts_until() > Some(now);
        self.accounts
            .retain(|account| account.quota.is_some() || is_used(account));
    }

    /// Begins at `now`, by `clock`, the windows that are due, with the tokens that clients `hold`.
    pub(crate) fn advance(&mut self, now: Instant, clock: WallClock, holds: Tokens) {
        if self.is_empty() {
            return;
        }
        self.clock = clock;
        let holds = self.held(now, holds);
        let time = clock.time(now);
        for account in &mut self.accounts {
            if account.expire(time, holds) {
                self.turned_at = None;
            }
        }
        self.turned_at.get_or_insert(now);
        self.drop_unused(time);
    }

    /// Tokens that clients hold, of which `known` are known here.
    fn held(&self, now: Instant, known: Tokens) -> Tokens {
        let (restored, until) = self.restored;
        if now < until {
            known.saturating_add(restored)
        } else {
            known
        }
    }

    /// Tokens that are left of all; as many as can be if nothing bounds.
    pub(crate) fn left(&self) -> Tokens {
        let left = self.accounts.iter().filter_map(QuotaAccount::left).min();
        left.unwrap_or(Tokens::MAX)
    }

    /// The most that a client may be granted beside what it needs.
    pub(crate) fn ahead_max(&self) -> Tokens {
        let least = self.bounding().map(|(_, quota)| quota.amount.whole()).min();
        let ahead = least.map(|least| least.checked_div(AHEAD_PART).unwrap_or(0));
        ahead.map_or(Tokens::MAX, Tokens::from_whole)
    }

    /// Takes tokens that a client is granted.
    pub(crate) fn charge(&mut self, now: Instant, tokens: Tokens) {
        let time = self.clock.time(now);
        for account in &mut self.accounts {
            account.charge(time, tokens);
        }
    }

    /// Takes what a store says is used, where that is more.
    pub(crate) fn merge(&mut self, records: &[QuotaRecord]) {
        self.turned_at = None;
        for record in records {
            match self.find_mut(&record.name) {
                Some(known) => known.merge(record),
                None => self.push(QuotaAccount::of(record.clone())),
            }
        }
    }

    /// Makes a change, while clients hold `held` that are known here.
    ///
    /// # Errors
    /// If it is unknown, or there is no room for a credit, or it is none.
    pub(crate) fn change(
        &mut self,
        now: Instant,
        held: Tokens,
        request: &QuotaChangeRequest,
    ) -> Result<(), QuotaError> {
        let time = self.clock.time(now);
        let held = self.held(now, held);
        // Nothing that was spent before is known to count.
        self.turned_at = Some(now);
        let account = self.find_mut(&request.quota);
        let account = account.filter(|account| account.quota.is_some());
        account
            .ok_or(QuotaError::Unknown)?
            .change(time, held, request)
    }

    /// Notes that a client has spent `tokens` that it was granted, the last of them `age` before `now`.
    pub(crate) fn note_spent(&mut self, now: Instant, age: Duration, tokens: Tokens) {
        let spent_at = self.clock.time(now).saturating_sub(age);
        for account in &mut self.accounts {
            account.note_spent(spent_at, tokens);
        }
    }

    /// Takes back tokens that a client has not spent.
    pub(crate) fn give_back(&mut self, tokens: Tokens) {
        for account in &mut self.accounts {
            account.give_back(tokens);
        }
    }

    /// Takes back tokens that clients spent from `taken_at` on. In a window that has begun since they do not count, and so
    /// do not come back.
    pub(crate) fn refund(&mut self, now: Instant, taken_at: Instant, tokens: Tokens) {
        if self
            .turned_at
            .is_some_and(|turned_at| turned_at <= taken_at)
        {
            // The clock knows no time before it was read.
            let time = self.clock.time(now);
            let taken_at = time.saturating_sub(now.saturating_since(taken_at));
            for account in &mut self.accounts {
                account.refund(time, taken_at, tokens);
            }
        }
    }

    /// Time until `need` tokens are left of all; none if they are.
    pub(crate) fn opens_in(&self, now: Instant, need: Tokens) -> Option<Duration> {
        let time = self.clock.time(now);
        let accounts = self.accounts.iter();
        accounts
            .filter_map(|account| account.opens_in(time, need))
            .max()
    }

    /// Time at which nothing is used any more, unless nothing is.
    pub(crate) fn unused_at(&self) -> Option<Instant> {
        let until = self.accounts.iter().filter_map(QuotaAccount::lasts_until);
        Some(self.clock.instant(until.max()?))
    }

    /// The quota that is nearest to its end.
    pub(crate) fn strictest(&self, now: Instant) -> Option<QuotaLevel> {
        let time = self.clock.time(now);
        let levels = self.bounding().filter_map(|(account, quota)| {
            let resets_in = account.opens_in(time, quota.amount);
            let left = account.left()?;
            Some(QuotaLevel {
                amount: quota.amount,
                left,
                length: quota.period.length(),
                resets_in: resets_in.unwrap_or_else(|| {
                    let end = quota.period.counts_until(time);
                    end.saturating_since(time)
                }),
            })
        });
        levels.min_by_key(|level| (level.left, core::cmp::Reverse(level.resets_in)))
    }

    /// The usage of each, while clients hold `held` that are known here.
    pub(crate) fn usage(&self, now: Instant, held: Tokens) -> Vec<QuotaUsage> {
        let time = self.clock.time(now);
        let held = self.held(now, held);
        let usage = self.bounding().map(|(account, quota)| {
            // It may not have been asked for since its window ended.
            let mut account = account.clone();
            account.expire(time, held);
            QuotaUsage {
                amount: quota.amount,
                used: account.used(),
                held: held.min(account.used()),
                left: account.left().unwrap_or_default(),
                window: quota.period.window(time),
                time,
                record: account.into_record(),
            }
        });
        usage.collect()
    }

    /// Takes the thresholds that have been reached since the last call.
    pub(crate) fn take_thresholds(&mut self) -> Vec<QuotaThreshold> {
        let accounts = self.accounts.iter_mut();
        accounts.filter_map(QuotaAccount::take_threshold).collect()
    }

    /// Whether a store says that less is used than is, or much more.
    pub(crate) fn are_beyond_stored(&self) -> bool {
        self.accounts.iter().any(QuotaAccount::is_beyond_stored)
    }

    /// Returns what is to be stored.
    pub(crate) fn store(&mut self) -> Vec<QuotaRecord> {
        let accounts = self.accounts.iter_mut();
        accounts.map(QuotaAccount::store).collect()
    }

    /// Returns what is used, for another coordinator.
    pub(crate) fn records(&self) -> Vec<QuotaRecord> {
        let records = self.accounts.iter().map(QuotaAccount::record);
        records.cloned().collect()
    }

    /// Begins with what a store or another coordinator says is used, of which clients may hold `held` until then.
    pub(crate) fn restore(&mut self, records: &[QuotaRecord], held: (Tokens, Instant)) {
        self.merge(records);
        self.restored = held;
    }

    /// Notes that the store does not have them.
    pub(crate) fn not_stored(&mut self) {
        for account in &mut self.accounts {
            account.not_stored();
        }
    }
}

#[cfg(test)]
mod tests;
