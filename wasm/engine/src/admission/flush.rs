//! Reports of a worker to the shared table: attempts since the last draw, so that the demand is known
//! even of scopes that live on a token cache or are refused, and unspent tokens.

use tollgate_core::units::{Capacity, Instant, Tokens};

use super::{Admission, Target, entry};
use crate::host::Host;
use crate::process::Process;
use crate::shared_table::{TableError, or_later};

/// Entries that report in one round. Each costs a change in shared data, and a worker with very many
/// busy scopes must have time for requests, too.
const FLUSHES_PER_ROUND: usize = 256;
/// Rounds after which an entry reports, unless it draws before: a fifth of a second at the default
/// tick. Each report is a change in shared data, which would be the dearest part of a tenant's
/// requests if it came much more often than the demand is judged.
const FLUSH_AFTER_ROUNDS: u64 = 10;

/// Part of an entry that is reported at once.
struct Part {
    attempts: u32,
    repeated: u32,
    refused: u32,
    unspent: Tokens,
    has_units: bool,
}

// === impl Part ===

impl Part {
    fn is_empty(&self) -> bool {
        let has_counts = self.attempts > 0 || self.repeated > 0 || self.refused > 0;
        !has_counts && self.unspent == Tokens::ZERO && !self.has_units
    }
}

// === impl Admission ===

impl Admission {
    /// Begins a round of housekeeping.
    pub(crate) fn start_round(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        self.searches_failed = 0;
    }

    /// Lets entries report that have waited for long enough.
    pub(crate) fn flush<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
    ) -> Result<(), TableError> {
        let ripe = self.rounds.saturating_sub(FLUSH_AFTER_ROUNDS);
        let is_ripe = |(_, queued): &mut (Target, u64)| *queued <= ripe;
        let mut left = FLUSHES_PER_ROUND;
        while left > 0
            && let Some((target, _)) = self.unreported.pop_front_if(is_ripe)
        {
            let known = entry(&mut self.tables, target);
            let reports = known.is_some_and(|entry| entry.has_report());
            left = left.saturating_sub(usize::from(reports));
            let refunded = self.refund(process, target);
            let settled = refunded.and_then(|()| self.settle(process, target, now));
            // Also after a failure: an entry that says that it is in the queue must be there.
            if entry(&mut self.tables, target).is_some_and(|entry| entry.queued) {
                self.unreported.push_back((target, self.rounds));
            }
            settled?;
        }
        Ok(())
    }

    /// Reports an entry's attempts, and gives its tokens back if there were none or its lease has ended.
    /// The entry then says whether it is to be queued again.
    pub(crate) fn settle<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        now: Instant,
    ) -> Result<(), TableError> {
        let (tick, me) = (process.config.tick, process.identity.worker);
        let Some(known) = entry(&mut self.tables, target) else {
            return Ok(());
        };
        let is_recent = now.saturating_since(known.seen) < tick.saturating_mul(2);
        let is_stale = known.attempts == 0 && known.repeated == 0 && !is_recent
            || known.expiry.is_some_and(|at| at <= now);
        let units = known.meters.as_ref().map(|meters| meters.unreported(me));
        let part = Part {
            attempts: known.attempts,
            repeated: known.repeated,
            refused: known.refused,
            unspent: if is_stale {
                known.cache.left()
            } else {
                Tokens::ZERO
            },
            has_units: units.is_some(),
        };
        if part.is_empty() && !known.tells_open(now) {
            // The estimator sees the end of demand only if it is told of no attempts.
            let left = known.quiet_reports.checked_sub(1);
            known.quiet_reports = left.unwrap_or(0);
            known.queued = known.is_unsettled() || known.quiet_reports > 0;
            if left.is_none() {
                return Ok(());
            }
        }
        known.queued = known.is_unsettled() || known.quiet_reports > 0;
        let is_open = known.take_open(now);
        let reported = if self.may_search(target) {
            self.change_scope(process, target, now, |scope_state, policy| {
                scope_state.requests.count(now, u64::from(part.attempts));
                scope_state
                    .requests
                    .count_again(now, u64::from(part.repeated));
                scope_state.requests.count_refused(u64::from(part.refused));
                if is_open {
                    scope_state.requests.await_refunds(now);
                }
                if part.unspent > Tokens::ZERO {
                    scope_state.requests.give_back(now, policy, part.unspent);
                }
                if let Some(units) = &units {
                    units.settle(scope_state, now, policy);
                }
                let limiter = scope_state.concurrency.as_ref();
                let has_silent = limiter.is_some_and(|limiter| limiter.has_silent(now, me));
                (has_silent, scope_state.requests.wants())
            })
        } else {
            Err(TableError::Full)
        };
        match reported {
            Ok(changed) => {
                let (has_silent, wants) = changed.result;
                if has_silent {
                    // The sync leader, which knows the workers that live, takes back the permits of
                    // those that do not.
                    process.table.note_dirty(changed.slot);
                }
                self.settled(target, now, &part, wants);
            }
            // The slot was taken over, which none is whose bucket is not full: there is nothing to
            // give tokens back to. The attempts are those of the overflow.
            Err(TableError::Full) => {
                self.search_failed();
                if part.attempts > 0 && !self.is_overflow(target) {
                    self.move_to_overflow(process, target)?;
                }
                self.settled(target, now, &part, Capacity::ZERO);
            }
            // All stays as it is, for the next round.
            Err(error) => return or_later(Err(error)),
        }
        Ok(())
    }

    /// Forgets the part of an entry that has been reported.
    fn settled(&mut self, target: Target, now: Instant, part: &Part, wants: Capacity) {
        let Some(entry) = entry(&mut self.tables, target) else {
            return;
        };
        if part.attempts > 0 || part.repeated > 0 {
            entry.counted(now, wants);
        }
        entry.attempts = entry.attempts.saturating_sub(part.attempts);
        entry.repeated = entry.repeated.saturating_sub(part.repeated);
        entry.refused = entry.refused.saturating_sub(part.refused);
        entry.cache.take(part.unspent);
        if let Some(meters) = entry.meters.as_mut().filter(|_| part.has_units) {
            meters.settled();
        }
        let attempts = part.attempts > 0 || part.repeated > 0;
        entry.queued = attempts || entry.is_unsettled() || entry.quiet_reports > 0;
    }
}
