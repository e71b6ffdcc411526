//! Total cost of a request, where that is known only at its end: tokens of a language model, rows of a
//! query, seconds of a job.
//!
//! The obvious way is to read a header of the response in its own callback. That costs an entry into
//! the VM for each stream, whether its rule asks for it or not. A proxy's own filters put headers and
//! parts of bodies into the stream's metadata, which can still be read when the stream has ended. The
//! request takes its tokens at the beginning like any other, so none passes while there is a debt. Its end settles: the
//! remainder becomes a debt that is bounded as that of bytes is, and what was too much comes back.

use core::time::Duration;

use tollgate_core::units::{Instant, Tokens};

use super::meters::smoothed;
use super::request::attempts;
use super::{Admission, Entry, Request, Target, entry};
use crate::host::Host;
use crate::process::Process;
use crate::rules::Rules;
use crate::shared_table::TableError;

/// Time after which the shared table is told again that requests go on which may give tokens back.
const OPEN_AGAIN: Duration = Duration::from_secs(3);

/// Costs of one scope's requests in one worker that are known only at the end.
#[derive(Debug, Default)]
pub(super) struct FinalCosts {
    /// Tokens that a request usually turns out to have cost.
    usual: u32,
    /// Attempts that were counted for requests that cost less: the next ones count for so many less.
    overcounted: u32,
    /// Requests that go on and may give tokens back.
    pub(super) open: u32,
    /// The last time that the shared table was told of these.
    open_told_at: Instant,
    /// The most that a request can take, by the last look at the shared table.
    most: Option<Tokens>,
    /// Tokens that could not be given back yet, and the first time at which any of them were taken.
    refunds: (Tokens, Instant),
}

/// Tokens of one scope that a request has had, when its end tells what it has cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    /// Those that it was charged, in all passes.
    pub(crate) charged: Tokens,
    /// The part that can come back.
    pub(crate) taken: Tokens,
    /// The time at which that was taken.
    pub(crate) taken_at: Instant,
}

// === impl FinalCosts ===

impl FinalCosts {
    /// Notes that so many attempts were counted in vain.
    fn overcount(&mut self, attempts: u32) {
        self.overcounted = self.overcounted.saturating_add(attempts);
    }

    /// Whether there is something that the shared table should be told, at some time.
    pub(super) fn is_unsettled(&self) -> bool {
        self.open > 0 || self.refunds.0 > Tokens::ZERO
    }

    fn keep_refund(&mut self, tokens: Tokens, taken_at: Instant) {
        let (known, first) = self.refunds;
        let first = if known == Tokens::ZERO {
            taken_at
        } else {
            first.min(taken_at)
        };
        self.refunds = (known.saturating_add(tokens), first);
    }
}

// === impl Reserved ===

impl Reserved {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        charged: Tokens::ZERO,
        taken: Tokens::ZERO,
        taken_at: Instant::ZERO,
    };

    /// Returns the tokens that come back of a request that has cost `cost`.
    pub(super) fn surplus(&self, cost: Tokens) -> Tokens {
        self.charged.saturating_sub(cost).min(self.taken)
    }
}

// === impl Request ===

impl Request {
    /// Returns what the request, which goes on at `now`, has had of its target at `index`. What an earlier pass took comes
    /// back with the end of that, if at all.
    pub(super) fn reserved_at(&self, index: usize, now: Instant) -> Reserved {
        let target = self.targets().get(index);
        let can_come_back = self.has_taken_tokens(index);
        Reserved {
            charged: target.map_or(self.cost, |target| self.whole_cost(target.rule)),
            taken: if can_come_back {
                self.cost_at(index)
            } else {
                Tokens::ZERO
            },
            taken_at: now,
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Returns the tokens that a request usually turns out to have cost; 0 if that is not known.
    pub(super) fn usual_cost(&self) -> u32 {
        self.costs.as_ref().map_or(0, |costs| costs.usual)
    }

    /// Returns `tokens`, or the most that a request can take, if that is less.
    pub(super) fn capped(&self, tokens: Tokens) -> Tokens {
        let most = self.costs.as_ref().and_then(|costs| costs.most);
        most.map_or(tokens, |most| tokens.min(most))
    }

    /// Notes the most that a request can take; none of it is known of a bucket that holds less than a token.
    pub(super) fn note_most(&mut self, most: Tokens) {
        if let Some(costs) = &mut self.costs {
            costs.most = Some(most).filter(|most| *most >= Tokens::ONE);
        }
    }

    /// Counts a request that counts for so many `attempts`, less those that were counted before for requests that cost
    /// less; one at least, for it takes tokens until its end.
    pub(super) fn count_request(&mut self, attempts: u32) {
        let before = self.attempts;
        self.count(attempts);
        self.attempts = self.attempts.max(before.saturating_add(attempts.min(1)));
    }

    /// Counts `attempts`, less those that were counted before for requests that cost less.
    pub(super) fn count(&mut self, attempts: u32) {
        let overcounted = self.costs.as_mut().map(|costs| &mut costs.overcounted);
        let less = overcounted.map_or(0, |overcounted| {
            let less = attempts.min(*overcounted);
            *overcounted = overcounted.saturating_sub(less);
            less
        });
        self.attempts = self.attempts.saturating_add(attempts.saturating_sub(less));
    }

    /// A request goes on that has had `reserved`.
    pub(super) fn open(&mut self, reserved: Option<Reserved>) {
        if reserved.is_some_and(|reserved| reserved.taken > Tokens::ZERO) {
            let costs = self.costs.get_or_insert_default();
            costs.open = costs.open.saturating_add(1);
        }
    }

    /// Such a request has ended.
    fn close(&mut self, reserved: Reserved) {
        let costs = self.costs.as_mut();
        if let Some(costs) = costs.filter(|_| reserved.taken > Tokens::ZERO) {
            costs.open = costs.open.saturating_sub(1);
        }
    }

    /// Whether the shared table is to be told at `now` that requests go on which may give tokens back.
    pub(super) fn tells_open(&self, now: Instant) -> bool {
        self.costs.as_ref().is_some_and(|costs| {
            costs.open > 0 && now.saturating_since(costs.open_told_at) >= OPEN_AGAIN
        })
    }

    /// Returns whether requests go on which may give tokens back; the shared table is told of them at `now`.
    pub(super) fn take_open(&mut self, now: Instant) -> bool {
        let costs = self.costs.as_mut().filter(|costs| costs.open > 0);
        costs.is_some_and(|costs| {
            costs.open_told_at = now;
            true
        })
    }
}

// === impl Admission ===

impl Admission {
    /// Counts a refused request as much as it would usually have cost, for so much is wanted.
    #[cold]
    pub(super) fn count_final_cost(&mut self, rules: &Rules, request: &Request) {
        for (index, target) in request.targets().iter().enumerate() {
            if rules.final_cost(target.rule).is_none() {
                continue;
            }
            let counted = request.attempts_at(index);
            let Some(entry) = entry(&mut self.tables, *target) else {
                continue;
            };
            let usual = entry.usual_cost();
            if usual > 0
                && let Some(costs) = &mut entry.costs
            {
                costs.overcount(counted.saturating_sub(usual));
            }
            self.count_attempts_of(*target, usual.saturating_sub(counted));
        }
    }

    /// Ends a request that has had `reserved`, and settles its `cost`, if that is known.
    pub(super) fn end_cost<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        cost: Option<Tokens>,
        reserved: Reserved,
    ) {
        if let Some(entry) = entry(&mut self.tables, target) {
            entry.close(reserved);
        }
        let Some(cost) = cost else { return };
        if target.is_own() {
            let stats = &mut process.stats;
            let charged = cost.saturating_sub(reserved.charged);
            stats.tokens_charged.add(charged.whole());
            stats.tokens_refunded.add(reserved.surplus(cost).whole());
        }
        self.settle_cost(process, target, cost, reserved);
    }

    /// Charges the cost of a request that has ended beyond what it has had, or gives back what was too much.
    pub(crate) fn settle_cost<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        cost: Tokens,
        reserved: Reserved,
    ) {
        let Some(entry) = entry(&mut self.tables, target) else {
            return;
        };
        let costs = entry.costs.get_or_insert_default();
        // One that costs nothing says nothing of the others.
        if cost > Tokens::ZERO {
            costs.usual = attempts(Tokens::from_whole(smoothed(
                costs.usual.into(),
                cost.whole(),
            )));
        }
        let surplus = reserved.surplus(cost);
        if surplus > Tokens::ZERO {
            costs.overcount(attempts(surplus));
            costs.keep_refund(surplus, reserved.taken_at);
            if let Err(error) = self.refund(process, target) {
                process.fail(&error);
            }
            return;
        }
        let more = cost.saturating_sub(reserved.charged);
        // The worker's own tokens first: otherwise they would let requests pass while there is a debt.
        let from_cache = entry.cache.left().min(more);
        entry.cache.take(from_cache);
        self.count_attempts_of(target, attempts(more));
        let owed = more.saturating_sub(from_cache);
        if owed > Tokens::ZERO
            && let Err(error) = self.owe(process, target, owed)
        {
            process.fail(&error);
        }
    }

    /// Gives tokens back that requests have not cost. Those that cannot be given back now are in the next round. The time
    /// of the last refusal does not include them.
    pub(super) fn refund<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
    ) -> Result<(), TableError> {
        let costs = entry(&mut self.tables, target).and_then(|entry| entry.costs.as_mut());
        let refunds = costs.map(|costs| core::mem::take(&mut costs.refunds));
        let Some((tokens, taken_at)) = refunds.filter(|(tokens, _)| *tokens > Tokens::ZERO) else {
            return Ok(());
        };
        let now = process.host.now();
        let refunded = self.change_scope(process, target, now, |scope_state, policy| {
            scope_state.requests.refund(now, policy, taken_at, tokens);
        });
        let Some(entry) = entry(&mut self.tables, target) else {
            return Ok(());
        };
        match refunded {
            Err(TableError::Contention(_)) => {
                let costs = entry.costs.get_or_insert_default();
                costs.keep_refund(tokens, taken_at);
                self.enqueue(target);
                Ok(())
            }
            // Its slot was taken over, which none is whose bucket is not full.
            Err(TableError::Full) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                entry.denial = None;
                Ok(())
            }
        }
    }

    /// Takes tokens from the process's bucket, which may then owe them.
    fn owe<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        owed: Tokens,
    ) -> Result<(), TableError> {
        let now = process.host.now();
        let attempts = entry(&mut self.tables, target).map_or(0, |entry| entry.attempts);
        let changed = self.change_scope(process, target, now, |scope_state, policy| {
            scope_state.requests.pay(now, policy, attempts.into(), owed);
            scope_state.requests.is_drawing()
        })?;
        // Tokens that nobody has drawn are asked for at once.
        if changed.due_changed && changed.result {
            self.ask_soon(target, changed.slot);
        }
        if let Some(entry) = entry(&mut self.tables, target) {
            entry.attempts = entry.attempts.saturating_sub(attempts);
            entry.seen = now;
            // The time of the last refusal does not include this debt.
            entry.denial = None;
        }
        Ok(())
    }
}
