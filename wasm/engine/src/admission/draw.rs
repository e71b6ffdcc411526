//! Draws of tokens from a process's bucket, for a worker whose token cache has too few.

use core::time::Duration;

use tollgate_core::client::{self, AwaitAction, BucketLevel, LeaseState, Policy, RateLimiter};
use tollgate_core::fleet::QuotaLevel;
use tollgate_core::lease::Unit;
use tollgate_core::units::{Capacity, Instant, Rate, RatePeriod, Tokens};

use super::{Admission, Entry, Request, Target, entry, is_overflow_key};
use crate::config::Overflow;
use crate::host::Host;
use crate::process::Process;
use crate::refusal::{Denial, LimitStatus, QuotaPolicy};
use crate::shared_table::TableError;

/// Scopes that have not been used for this long make room for new ones.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// Result of one bucket for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrawResult {
    /// The worker has what the request needs.
    Ready,
    /// The first lease is awaited.
    Pending,
    /// The bucket has too little.
    Denied(Denial),
}

/// Draw of tokens for a request.
#[derive(Clone, Copy)]
struct Draw {
    now: Instant,
    cost: Tokens,
    action: AwaitAction,
    /// Whether admitted requests are told how the bucket stands.
    reports: bool,
}

/// State of a rate limiter after a draw.
pub(super) struct Reading {
    pub(super) draw: client::DrawResult,
    expiry: Option<Instant>,
    limit: u64,
    period: Option<RatePeriod>,
    rate: Rate,
    pub(super) expected_rate: Option<Rate>,
    state: LeaseState,
    is_awaited: bool,
    /// The most that a request can take.
    most: Tokens,
    level: BucketLevel,
    quota: Option<QuotaLevel>,
    wants: Capacity,
}

// === impl Reading ===

impl Reading {
    /// Returns the state of a limiter after `draw`.
    pub(super) fn new(
        limiter: &RateLimiter,
        now: Instant,
        policy: &Policy,
        draw: client::DrawResult,
    ) -> Self {
        let (rate, _) = limiter.flow(now, policy);
        Self {
            draw,
            expiry: limiter.lease_expiry(),
            limit: limit_told(limiter.capacity(), || rate.as_micros()),
            period: limiter.period(),
            rate,
            expected_rate: limiter.expected_rate(now),
            state: limiter.state(now),
            is_awaited: limiter.is_awaited(now),
            most: limiter.most(now),
            level: limiter.level(now),
            quota: limiter.quota(now),
            wants: limiter.wants(),
        }
    }

    fn limit_status(&self) -> LimitStatus {
        LimitStatus {
            limit: self.limit,
            period: self.period,
            left: self.level.left,
            full_in: self.level.full_in,
            quota: self.quota,
        }
    }

    /// Returns the denial of a draw that failed; it holds until `soon` at most.
    pub(super) fn denial(&self, unit: Unit, need: Tokens, soon: Instant) -> Denial {
        let retry_at = match self.draw {
            client::DrawResult::Denied { retry_at } => retry_at,
            _ => None,
        };
        let most = match self.draw {
            client::DrawResult::ExceedsBurst { burst } => Some(burst),
            _ => None,
        };
        let is_requests = unit == Unit::Requests;
        let refusing = self.quota.as_ref().filter(|quota| quota.left < need);
        Denial {
            retry_at,
            limit: self.limit,
            period: self.period,
            without_lease: self.state != LeaseState::Leased,
            need,
            // One byte lets all requests go on.
            rate: if is_requests {
                self.rate
            } else {
                Rate::UNLIMITED
            },
            expected_rate: self.expected_rate,
            most,
            never: is_requests && most.is_some() && self.expected_rate.is_none(),
            quota: refusing.map(QuotaPolicy::from),
            ..Denial::new(unit, retry_at.map_or(soon, |at| at.min(soon)))
        }
    }
}

// === impl Admission ===

impl Admission {
    /// Draws for one target of a request, or for its rule's overflow if no slot is left for it, which
    /// then takes its place among the targets.
    #[cold]
    pub(super) fn draw<H: Host>(
        &mut self,
        process: &mut Process<H>,
        request: &mut Request,
        index: usize,
    ) -> Result<DrawResult, TableError> {
        let drawn = self.draw_or_fail(process, request, index);
        drawn.or_else(|error| contended(process, Unit::Requests, request.cost_at(index), error))
    }

    fn draw_or_fail<H: Host>(
        &mut self,
        process: &mut Process<H>,
        request: &mut Request,
        index: usize,
    ) -> Result<DrawResult, TableError> {
        let Some(target) = request.targets().get(index).copied() else {
            return Ok(DrawResult::Ready);
        };
        let result = self.draw_once(process, request, index)?;
        let DrawResult::Denied(denial) = &result else {
            return Ok(result);
        };
        // An estimate is no reason to refuse what may be cheap.
        let is_less = denial
            .most
            .is_some_and(|most| request.reserve_less(target.rule, most));
        if !is_less {
            return Ok(result);
        }
        self.draw_once(process, request, index)
    }

    fn draw_once<H: Host>(
        &mut self,
        process: &mut Process<H>,
        request: &mut Request,
        index: usize,
    ) -> Result<DrawResult, TableError> {
        let Some(target) = request.targets().get(index).copied() else {
            return Ok(DrawResult::Ready);
        };
        let cost = request.cost_at(index);
        if entry(&mut self.tables, target).is_some_and(|entry| entry.cache.left() >= cost) {
            return Ok(DrawResult::Ready);
        }
        let draw = Draw {
            now: process.host.now(),
            cost,
            action: request.action(&process.rules, target),
            reports: request.root.reports_limits,
        };
        if let Some(result) = self.cached_result(target, draw) {
            return Ok(result);
        }
        if self.may_search(target) {
            match self.draw_from_table(process, target, draw) {
                Err(TableError::Full) if !self.is_overflow(target) => self.search_failed(),
                result => return result,
            }
        }
        let target = self.fall_to_overflow(process, target)?;
        request.replace(index, target);
        match process.rules.on_overflow(target.table) {
            Overflow::Share => {}
            Overflow::Pass => return Ok(DrawResult::Ready),
            Overflow::Refuse => return Ok(DrawResult::Denied(Denial::overflow(draw.now))),
        }
        if let Some(result) = self.cached_result(target, draw) {
            return Ok(result);
        }
        match self.draw_from_table(process, target, draw) {
            Err(TableError::Full) => Ok(DrawResult::Denied(Denial::overflow(draw.now))),
            result => result,
        }
    }

    /// Returns the result of a draw if it is known without a look at the shared table.
    fn cached_result(&mut self, target: Target, draw: Draw) -> Option<DrawResult> {
        let entry = entry(&mut self.tables, target)?;
        if entry.cache.left() >= draw.cost {
            return Some(DrawResult::Ready);
        }
        let is_pending = entry.pending_until.is_some_and(|until| draw.now < until);
        if draw.action == AwaitAction::Hold && is_pending {
            return Some(DrawResult::Pending);
        }
        let denial = entry.denial.as_deref();
        let denial = denial.filter(|denial| draw.now < denial.until && draw.cost == denial.need);
        denial.map(|denial| DrawResult::Denied(*denial))
    }

    fn draw_from_table<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        draw: Draw,
    ) -> Result<DrawResult, TableError> {
        let known = entry(&mut self.tables, target).ok_or(TableError::Gone)?;
        let (attempts, repeated) = (u64::from(known.attempts), u64::from(known.repeated));
        let tokens = draw.cost.saturating_sub(known.cache.left());
        let (now, workers) = (draw.now, process.table.worker_count());
        let changed = self.change_scope(process, target, now, |scope_state, policy| {
            let limiter = &mut scope_state.requests;
            limiter.count(now, attempts);
            limiter.count_again(now, repeated);
            let result = match draw.action {
                AwaitAction::Hold => limiter.draw(now, policy, tokens, workers),
                AwaitAction::Refuse => limiter.draw_at_once(now, policy, tokens, workers),
                AwaitAction::Admit => limiter.draw_on_credit(now, policy, tokens, workers),
            };
            Reading::new(limiter, now, policy, result)
        })?;
        let reading = changed.result;
        let entry = entry(&mut self.tables, target).ok_or(TableError::Gone)?;
        (entry.attempts, entry.repeated) = (0, 0);
        entry.counted(now, reading.wants);
        entry.expiry = reading.expiry;
        entry.note_most(reading.most);
        if draw.reports || entry.limit_status.is_some() {
            entry.limit_status = Some(Box::new(reading.limit_status()));
        }
        entry.denial = None;
        match reading.draw {
            client::DrawResult::Tokens(tokens) => {
                if !reading.is_awaited {
                    entry.pending_until = None;
                }
                entry.cache.add(tokens);
                // The entry of a request that was held may have left the queue; its token cache must
                // go back one day.
                self.enqueue(target);
                // The request is not held, but the first lease is still to be asked for at once.
                if changed.due_changed && draw.action != AwaitAction::Hold {
                    self.ask_soon(target, changed.slot);
                }
                Ok(DrawResult::Ready)
            }
            client::DrawResult::Pending { until } => {
                entry.needs_known = entry.needs_known.saturating_add(draw.cost);
                self.await_first_lease(target, changed.slot, until);
                Ok(DrawResult::Pending)
            }
            client::DrawResult::Denied { .. } | client::DrawResult::ExceedsBurst { .. } => {
                let soon = now.saturating_add(process.config.tick);
                let denial = reading.denial(Unit::Requests, draw.cost, soon);
                entry.denial = Some(Box::new(denial));
                // The request cannot wait for the tokens that are asked for.
                let is_drawing = reading.is_awaited && reading.state == LeaseState::Leased;
                if changed.due_changed && is_drawing {
                    self.ask_soon(target, changed.slot);
                }
                Ok(DrawResult::Denied(denial))
            }
        }
    }

    /// Moves a request from its scope to an overflow scope, with the attempts of its own, for it is the
    /// overflow scope that asks for a lease.
    fn fall_to_overflow<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
    ) -> Result<Target, TableError> {
        process.stats.overflow.add_one();
        self.move_to_overflow(process, target)
    }

    /// Counts the attempts of a scope as those of the overflow scope that it shares with others, which
    /// is returned.
    pub(super) fn move_to_overflow<H: Host>(
        &mut self,
        process: &Process<H>,
        target: Target,
    ) -> Result<Target, TableError> {
        let own = entry(&mut self.tables, target).ok_or(TableError::Gone)?;
        let attempts = core::mem::take(&mut own.attempts);
        let key = String::from_utf8_lossy(own.key()).into_owned();
        let overflow = Target {
            rule: target.rule,
            ..self.overflow(process, target.table, &key)?
        };
        self.count_attempts_of(overflow, attempts);
        Ok(overflow)
    }

    /// Returns the limits of a request's buckets, as the worker's last draw found them less what it
    /// has spent since: to look again would cost a read of shared data per request.
    pub(crate) fn limit_status(&self, target: Target) -> Option<LimitStatus> {
        let entry = self.scopes(target.table)?.get(target.index)?;
        let drawn = entry.limit_status.as_deref()?;
        Some(LimitStatus {
            left: drawn.left.saturating_add(entry.cache.left()),
            ..*drawn
        })
    }
}

// === free functions ===

/// Turns a race for a bucket that was lost again and again into its denial for a moment. The bucket
/// may have nothing, so its request must not go on as if the host had failed.
pub(super) fn contended<H: Host>(
    process: &mut Process<H>,
    unit: Unit,
    need: Tokens,
    error: TableError,
) -> Result<DrawResult, TableError> {
    let TableError::Contention(_) = error else {
        return Err(error);
    };
    process.stats.contended.add_one();
    let denial = Denial::contended(unit, need, process.host.now());
    Ok(DrawResult::Denied(denial))
}

/// Returns the time since which a scope must have been used to stay.
pub(super) fn idle_since(now: Instant) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(IDLE_AFTER.as_nanos() as u64))
}

pub(super) fn is_overflow(entry: &Entry) -> bool {
    is_overflow_key(entry.key())
}

/// Returns the limit to tell, in millionths: of the whole resource if it is known, else what passes.
pub(super) fn limit_told(whole: Option<Capacity>, passes: impl FnOnce() -> u64) -> u64 {
    let whole = whole.filter(|capacity| !capacity.is_unlimited());
    whole.map_or_else(passes, Capacity::as_micros)
}
