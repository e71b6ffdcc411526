//! Client's half of the bucket of the whole fleet: the tokens that it has drawn, and those that
//! requests wait for.

use core::time::Duration;

use crate::fleet::QuotaLevel;
use crate::lease::{DrawAnswer, DrawRequest};
use crate::units::{Capacity, Instant, Rate, Tokens};

/// Draws of one rate limiter; plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Draws {
    /// Tells it apart from those of the scope before: the time of its first request, in nanoseconds; 0
    /// before that.
    pub(super) account: u64,
    /// Whether the last answer let it draw.
    pub(super) offered: bool,
    /// All tokens that it was ever granted.
    pub(super) granted: Tokens,
    /// Tokens that are left of these; none while some are owed.
    pub(super) left: Tokens,
    /// Tokens that were spent and have not been drawn: those that come next pay them.
    pub(super) owed: Tokens,
    /// Tokens that requests wait for, and that have not been asked for.
    pub(super) needs: Tokens,
    /// The part of `owed` that was reported with the last request: its answer pays or forgives it.
    pub(super) reported: Tokens,
    /// Tokens that the first of these requests needs.
    pub(super) first: Tokens,
    /// Tokens that requests waited for when the last request to the coordinator was made.
    pub(super) requested: Tokens,
    /// Tokens of the last answer that requests have waited for, and have not taken yet.
    pub(super) reserved: Tokens,
    /// Tokens that the last request was to take; of bytes as many as a request usually has.
    pub(super) cost: Tokens,
    /// Time until which requests may be held for the next answer; none if no draw is under way.
    pub(super) held_until: Option<Instant>,
    /// Time before which there are too few tokens for a request that needs `next_for`.
    pub(super) next: Option<Instant>,
    pub(super) next_for: Tokens,
    /// Tokens that nobody had, by the last answer, and the time from which these grow: that of the answer, or when
    /// the fleet's bucket has paid what it owes.
    pub(super) fleet: Tokens,
    pub(super) grows_from: Instant,
    /// Capacity that may be used while it is cut off, until the lease ends.
    pub(super) standby: Capacity,
    /// Whether the last answer said nothing of draws, though it may draw.
    pub(super) is_unanswered: bool,
    /// Time at which the last token was spent.
    pub(super) spent_at: Instant,
    /// The part of `owed` that was spent while it was cut off.
    pub(super) on_credit: Tokens,
    /// The quota that is nearest to its end, by the last answer, if there is any.
    pub(super) quota: Option<KnownQuota>,
    /// Tokens that were spent and came back, and of which the coordinator has not been told.
    pub(super) refunds: Tokens,
    /// Time at which the first of these were taken.
    pub(super) refunds_from: Instant,
    /// Time until which requests that go on may bring some back.
    pub(super) settles_until: Instant,
}

/// Quota as a client knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownQuota {
    /// Tokens of a window.
    pub(super) amount: Tokens,
    /// Tokens that nobody had.
    pub(super) left: Tokens,
    /// Usual length of a window, in milliseconds.
    pub(super) length_ms: u64,
    /// Time from which some of what is used does not count any more.
    pub(super) resets_at: Instant,
    /// Tokens of safe capacity that were spent, and of which the coordinator has not been told.
    pub(super) uncounted: Tokens,
}

// === impl KnownQuota ===

impl KnownQuota {
    /// The quota at `now`: all is left when its window is over.
    pub(super) fn level(&self, now: Instant) -> QuotaLevel {
        let resets_in = self.resets_at.saturating_since(now);
        QuotaLevel {
            amount: self.amount,
            left: if resets_in.is_zero() {
                self.amount
            } else {
                self.left
            },
            length: Duration::from_millis(self.length_ms),
            resets_in,
        }
    }
}

// === impl Draws ===

impl Draws {
    /// Takes `need` tokens, or none if fewer are left. Returns whether it did.
    pub(super) fn take(&mut self, now: Instant, need: Tokens) -> bool {
        let is_enough = self.left >= need;
        if is_enough {
            self.spent_at = now;
            self.left = self.left.saturating_sub(need);
            self.reserved = self.reserved.saturating_sub(need);
        }
        is_enough
    }

    /// Takes as many of `most` tokens as are left; none if there is not a whole one. While the fleet's bucket is in debt
    /// those count alone that were drawn for requests: others, that came back, are to pay it.
    pub(super) fn take_part(&mut self, now: Instant, most: Tokens) -> Option<Tokens> {
        let usable = if now < self.grows_from {
            self.left.min(self.reserved)
        } else {
            self.left
        };
        let tokens = usable.min(most);
        if tokens < Tokens::ONE {
            return None;
        }
        self.take(now, tokens);
        // A request that takes less has what it waited for.
        self.reserved = self.reserved.saturating_sub(most.saturating_sub(tokens));
        Some(tokens)
    }

    /// Keeps `tokens`, but for those that are owed.
    fn keep(&mut self, tokens: Tokens) {
        let paid = self.owed.min(tokens);
        self.owed = self.owed.saturating_sub(paid);
        self.on_credit = self.on_credit.min(self.owed);
        self.left = self.left.saturating_add(tokens.saturating_sub(paid));
    }

    /// Keeps `tokens` that were not spent; no more than `burst` are left then. With them a request may pass
    /// that was to wait, unless the fleet's bucket is in debt.
    pub(super) fn give_back(&mut self, now: Instant, tokens: Tokens, burst: Tokens) {
        self.keep(tokens);
        self.left = self.left.min(burst);
        let is_in_debt = now < self.grows_from;
        self.next = self.next.filter(|_| is_in_debt || tokens == Tokens::ZERO);
    }

    /// Takes back `tokens` that were spent, the first of them at `taken_at`: they pay what is owed, and go to the
    /// fleet's bucket with the next request, `most` at most. With them a request may pass that was to wait, unless that
    /// bucket is in debt.
    pub(super) fn refund(&mut self, now: Instant, taken_at: Instant, tokens: Tokens, most: Tokens) {
        // Of a quota what is owed may be of a later window.
        let paid = if self.quota.is_none() {
            self.owed.min(tokens)
        } else {
            Tokens::ZERO
        };
        self.owed = self.owed.saturating_sub(paid);
        self.on_credit = self.on_credit.min(self.owed);
        let rest = tokens.saturating_sub(paid);
        if rest == Tokens::ZERO {
            return;
        }
        if self.refunds == Tokens::ZERO {
            self.refunds_from = taken_at;
        }
        self.refunds_from = self.refunds_from.min(taken_at);
        self.refunds = self.refunds.saturating_add(rest).min(most);
        let is_in_debt = now < self.grows_from;
        self.next = self.next.filter(|_| is_in_debt);
    }

    /// Whether tokens may come back at `now`, or are to be told of.
    pub(super) fn is_settling(&self, now: Instant) -> bool {
        self.refunds > Tokens::ZERO || now < self.settles_until
    }

    /// Begins with a balance of tokens, in millionths; less than none is owed.
    pub(super) fn begin(&mut self, balance: i64) {
        self.left = positive(balance);
        self.owed = debt(balance);
    }

    /// Notes that `tokens` have been spent. Those that are not left are owed, `most` at most.
    pub(super) fn owe(&mut self, now: Instant, tokens: Tokens, most: Tokens) {
        self.spent_at = now;
        let paid = self.left.min(tokens);
        self.left = self.left.saturating_sub(paid);
        let owed = self.owed.saturating_add(tokens.saturating_sub(paid));
        self.owed = owed.min(most.max(self.owed));
    }

    /// Time before which a request that needs `need` would draw in vain, if it is known at `now`. One that
    /// needs less than others that were refused may find as much.
    pub(super) fn next_at(&self, now: Instant, need: Tokens, level: i64) -> Option<Instant> {
        let is_short = need >= self.next_for || level < micros(need);
        self.next.filter(|next| now < *next && is_short)
    }

    /// Tokens that are left, in millionths; less than none if some are owed.
    pub(super) fn balance(&self) -> i64 {
        micros(self.left).saturating_sub(micros(self.owed))
    }

    /// Whether requests may wait for tokens at `now`.
    pub(super) fn is_under_way(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// Notes that requests wait for `tokens`, until `until` at most, or the later time until which others
    /// wait already. Returns that time.
    pub(super) fn need(&mut self, now: Instant, tokens: Tokens, until: Instant) -> Instant {
        if self.needs == Tokens::ZERO {
            self.first = tokens;
        }
        self.needs = self.needs.saturating_add(tokens);
        let held = self.held_until.filter(|until| now < *until);
        *self
            .held_until
            .insert(held.map_or(until, |held| held.max(until)))
    }

    /// The draw for a request to the coordinator at `now`. What is left beyond `keeps` is given back. Late costs may
    /// make the fleet's bucket lack `debt_max`. The request is under way for `call_timeout` at most.
    pub(super) fn request(
        &mut self,
        now: Instant,
        keeps: Tokens,
        debt_max: Tokens,
        call_timeout: Duration,
    ) -> DrawRequest {
        if self.account == 0 {
            self.account = now.as_nanos();
            self.spent_at = now;
        }
        if self.needs == Tokens::ZERO {
            self.first = self.cost;
        }
        if self.first > Tokens::ZERO {
            self.next_for = self.first;
        }
        if let Some(quota) = &mut self.quota {
            let uncounted = core::mem::take(&mut quota.uncounted);
            self.owed = self.owed.saturating_add(uncounted);
        }
        self.requested = core::mem::take(&mut self.needs);
        let reserved = self.reserved.min(self.left);
        let needs = self.requested.saturating_add(reserved);
        let returns = self.left.saturating_sub(keeps.max(needs));
        self.left = self.left.saturating_sub(returns);
        self.reported = self.owed;
        let refunds = core::mem::take(&mut self.refunds);
        DrawRequest {
            account: self.account,
            drawn: self.granted,
            holds: self.left,
            needs,
            first: core::mem::take(&mut self.first),
            returns,
            refunds,
            refunded_for: if refunds == Tokens::ZERO {
                Duration::ZERO
            } else {
                let age = now.saturating_since(self.refunds_from);
                age.saturating_add(call_timeout)
            },
            spent_for: now.saturating_since(self.spent_at),
            owed: self.owed,
            debt_max: debt_max.max(self.on_credit),
        }
    }

    /// Takes an answer, which came at `now`, about a limit of `rate`.
    pub(super) fn apply(&mut self, now: Instant, rate: Rate, answer: Option<&DrawAnswer>) {
        if answer.is_none() {
            self.needs = Tokens::ZERO;
        }
        // Requests that came meanwhile wait for the next one.
        if self.needs == Tokens::ZERO {
            self.held_until = None;
        }
        self.reserved = core::mem::take(&mut self.requested);
        self.offered = answer.is_some();
        self.is_unanswered = false;
        let Some(answer) = answer else {
            self.next = None;
            self.forget_quota();
            return;
        };
        self.note_quota(now, answer);
        let tokens = self.receive(answer);
        let forgiven = core::mem::take(&mut self.reported).saturating_sub(tokens);
        self.owed = self.owed.saturating_sub(forgiven);
        self.keep(tokens);
        self.reserved = self.reserved.min(self.left);
        self.standby = answer.standby;
        self.fleet = answer.left;
        let lacks_for = answer.next.zip(rate.time_for(self.next_for));
        let lacks_for = lacks_for.filter(|_| answer.left == Tokens::ZERO);
        let lacks_for = lacks_for.map(|(next, earned_in)| next.saturating_sub(earned_in));
        self.grows_from = now.saturating_add(lacks_for.unwrap_or_default());
        // An answer to a request that needs nothing does not name the time again.
        let known = self
            .next
            .filter(|next| now < *next && answer.left < Tokens::ONE);
        let next = answer.next.map(|next| now.saturating_add(next));
        self.next = next.or(known);
    }

    /// Forgets the quota, which is there no more. Safe capacity that was spent is still owed.
    fn forget_quota(&mut self) {
        if let Some(quota) = self.quota.take() {
            self.owed = self.owed.saturating_add(quota.uncounted);
        }
    }

    fn note_quota(&mut self, now: Instant, answer: &DrawAnswer) {
        let uncounted = self.quota.map_or(Tokens::ZERO, |quota| quota.uncounted);
        self.quota = answer.quota.map(|quota| KnownQuota {
            amount: quota.amount,
            left: quota.left,
            length_ms: u64::try_from(quota.length.as_millis()).unwrap_or(u64::MAX),
            resets_at: now.saturating_add(quota.resets_in),
            uncounted,
        });
    }

    /// Notes that `tokens` of safe capacity were spent. They count against a quota.
    pub(super) fn note_safe(&mut self, tokens: Tokens) {
        if let Some(quota) = &mut self.quota {
            quota.uncounted = quota.uncounted.saturating_add(tokens);
        }
    }

    /// Notes that `tokens` of safe capacity came back.
    pub(super) fn note_safe_back(&mut self, tokens: Tokens) {
        if let Some(quota) = &mut self.quota {
            quota.uncounted = quota.uncounted.saturating_sub(tokens);
        }
    }

    /// Returns the tokens of an answer that no answer before has told of.
    pub(super) fn receive(&mut self, answer: &DrawAnswer) -> Tokens {
        let tokens = answer.granted.saturating_sub(self.granted);
        self.granted = answer.granted;
        tokens
    }

    /// Takes an answer that says nothing of draws: of a coordinator that learns. Until the lease ends it is
    /// as if it had not come.
    pub(super) fn note_unanswered(&mut self) {
        self.needs = Tokens::ZERO;
        self.is_unanswered = true;
        self.fail();
    }

    /// Notes that an answer will not come.
    pub(super) fn fail(&mut self) {
        self.held_until = None;
    }

    /// Gives all tokens up, with the lease.
    pub(super) fn end(&mut self) {
        self.left = Tokens::ZERO;
        self.reserved = Tokens::ZERO;
        self.next = None;
        self.held_until = None;
    }

    /// Forgets all tokens: they ended with the lease, and no other one is there. Returns what is owed.
    pub(super) fn lapse(&mut self) -> Tokens {
        self.end();
        self.reported = Tokens::ZERO;
        (self.offered, self.is_unanswered) = (false, false);
        self.standby = Capacity::ZERO;
        self.on_credit = Tokens::ZERO;
        core::mem::take(&mut self.owed)
    }

    /// Tokens that are left here, and that nobody had by the last answer, if these have grown at `rate`, up
    /// to `burst`; less what is owed. In millionths.
    pub(super) fn level(&self, now: Instant, rate: Rate, burst: Tokens) -> i64 {
        let earned = rate.tokens_in(now.saturating_since(self.grows_from));
        let of_quota = self.quota.map(|quota| quota.level(now).left);
        let fleet = self.fleet.saturating_add(earned);
        let fleet = fleet.min(of_quota.unwrap_or(fleet));
        let level = fleet.saturating_add(self.left).min(burst);
        micros(level).saturating_sub(micros(self.owed))
    }
}

// === free functions ===

/// `tokens` as a balance counts them.
pub(super) fn micros(tokens: Tokens) -> i64 {
    i64::try_from(tokens.as_micros()).unwrap_or(i64::MAX)
}

/// Tokens of a balance in millionths; none if it is a debt.
pub(super) fn positive(balance: i64) -> Tokens {
    Tokens::from_micros(u64::try_from(balance).unwrap_or(0))
}

/// Debt of a balance in millionths.
pub(super) fn debt(balance: i64) -> Tokens {
    Tokens::from_micros(balance.min(0).unsigned_abs())
}
