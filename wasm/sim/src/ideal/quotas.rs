//! Quotas beside an ideal limit: what it has used of each, and the fleet.

use std::collections::VecDeque;
use std::time::Duration;

use tollgate_core::quota::{Quota, QuotaPeriod, Quotas};
use tollgate_core::units::{Instant, Tokens, WallTime};

use crate::wall::wall_time;

/// Owner of a use.
#[derive(Clone, Copy, Debug)]
pub(super) enum User {
    Ideal,
    Fleet,
}

/// Quotas of one limit.
#[derive(Debug, Default)]
pub(super) struct IdealQuotas {
    quotas: Quotas,
    accounts: Vec<Account>,
}

#[derive(Debug)]
struct Account {
    quota: Quota,
    /// Tokens of the ideal limit and of the fleet, each with the end of the time for which they count.
    used: [VecDeque<(WallTime, Tokens)>; 2],
}

// === impl IdealQuotas ===

impl IdealQuotas {
    /// Takes the quotas that hold from now on; other ones begin with nothing used.
    pub(super) fn set(&mut self, quotas: &Quotas) {
        if self.quotas != *quotas {
            let account = |quota: &Quota| Account {
                quota: quota.clone(),
                used: Default::default(),
            };
            self.accounts = quotas.iter().map(account).collect();
            self.quotas = quotas.clone();
        }
    }

    /// Time until `need` tokens are left of each for the ideal limit; none if that will never be.
    pub(super) fn opens_in(&self, now: Instant, need: Tokens) -> Option<Duration> {
        let times = self
            .accounts
            .iter()
            .map(|account| account.opens_in(now, need));
        times
            .reduce(|a, b| Some(a?.max(b?)))
            .unwrap_or(Some(Duration::ZERO))
    }

    /// Counts `tokens`. Returns those beyond the amount of the strictest, in micro-tokens.
    pub(super) fn charge(&mut self, now: Instant, user: User, tokens: Tokens) -> u64 {
        let accounts = self.accounts.iter_mut();
        let beyond = accounts.map(|account| account.charge(now, user, tokens));
        beyond.max().unwrap_or(0)
    }

    /// Takes back `tokens` that were charged at `taken_at`, as far as they still count.
    pub(super) fn refund(&mut self, now: Instant, user: User, taken_at: Instant, tokens: Tokens) {
        for account in &mut self.accounts {
            account.refund(now, user, taken_at, tokens);
        }
    }
}

// === impl Account ===

impl Account {
    fn opens_in(&self, now: Instant, need: Tokens) -> Option<Duration> {
        let time = wall_time(now.saturating_since(Instant::ZERO));
        let used = self.used[User::Ideal as usize].iter();
        let counts = used.filter(|(until, _)| *until > time);
        let mut left = counts.clone().fold(self.quota.amount, |left, (_, used)| {
            left.saturating_sub(*used)
        });
        let mut opens_in = Duration::ZERO;
        for (until, used) in counts {
            if left >= need {
                break;
            }
            left = left.saturating_add(*used);
            opens_in = until.saturating_since(time);
        }
        (left >= need).then_some(opens_in)
    }

    fn counts_until(&self, at: Instant) -> WallTime {
        let time = wall_time(at.saturating_since(Instant::ZERO));
        match &self.quota.period {
            QuotaPeriod::Calendar(calendar) => calendar.window(time).end,
            QuotaPeriod::Rolling(length) => time.saturating_add(*length),
        }
    }

    fn refund(&mut self, now: Instant, user: User, taken_at: Instant, tokens: Tokens) {
        let time = wall_time(now.saturating_since(Instant::ZERO));
        let until = self.counts_until(taken_at);
        let mut used = self.used[user as usize].iter_mut();
        if let Some((_, used)) = used.find(|(of, _)| *of == until && until > time) {
            *used = used.saturating_sub(tokens);
        }
    }

    fn charge(&mut self, now: Instant, user: User, tokens: Tokens) -> u64 {
        let time = wall_time(now.saturating_since(Instant::ZERO));
        let until = self.counts_until(now);
        let used = &mut self.used[user as usize];
        while used.front().is_some_and(|(until, _)| *until <= time) {
            used.pop_front();
        }
        match used.back_mut() {
            Some((last, sum)) if *last == until => *sum = sum.saturating_add(tokens),
            _ => used.push_back((until, tokens)),
        }
        let all = used.iter().map(|(_, used)| *used);
        let all = all.fold(Tokens::ZERO, Tokens::saturating_add);
        all.saturating_sub(self.quota.amount).as_micros()
    }
}
