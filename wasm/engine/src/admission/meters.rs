//! Meters of a scope in one worker, beyond its token cache of requests: units that few scopes have.
//!
//! Most scopes have none of this, and then it costs a request one look at an empty option.

use std::sync::Arc;

use tollgate_core::client::{PermitResult, Policy, ScopeState, WorkerUsage};
use tollgate_core::lease::Unit;
use tollgate_core::token_cache::TokenCache;
use tollgate_core::units::{Instant, Tokens};

use crate::refusal::Denial;

/// A scope's further units, and whose capacity its requests use as well.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    /// The id of the canonical scope.
    pub(crate) canonical: Option<Arc<str>>,
    pub(crate) request_bytes: Option<Meter>,
    pub(crate) response_bytes: Option<Meter>,
    pub(crate) permits: Option<Permits>,
    /// Requests wait for the scope's tokens, and others may not overtake them.
    pub(crate) has_queue: bool,
}

/// Bytes of one scope in one direction.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Bytes that the worker may let pass.
    pub(crate) cache: TokenCache,
    /// Bytes that have passed and that no token cache has paid.
    pub(crate) owed: Tokens,
    /// Bytes that have passed or would have, and that the shared table does not know of.
    pub(crate) attempts: u64,
    /// The most that may be owed before it is paid.
    pub(crate) owed_max: Tokens,
    /// Bytes that a stream usually has, if that is known; a refused one counts for as many.
    pub(crate) usual: Option<u64>,
    /// Bytes of the token cache that streams will use that go on.
    pub(crate) expected: u64,
    pub(crate) denial: Option<Denial>,
}

/// Requests in flight of one scope.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    /// Permits that this worker holds.
    pub(crate) held: u32,
    /// Those of them that are in use.
    pub(crate) in_use: u32,
    /// The most unused ones that it may keep.
    pub(crate) spare: u32,
    peak: u32,
    admitted: u32,
    refused: u32,
    turned_away: u32,
    pub(crate) denial: Option<Denial>,
}

/// Part of the meters that the shared table does not know of.
#[derive(Debug)]
pub(crate) struct Unreported {
    bytes: [Bytes; 2],
    usage: Option<WorkerUsage>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    attempts: u64,
    owed: Tokens,
    unspent: Tokens,
}

// === impl Meters ===

impl Meters {
    /// Returns the part that `worker` has to report: all bytes that have passed, token caches that none
    /// were taken from, and requests in flight.
    pub(crate) fn unreported(&self, worker: u64) -> Unreported {
        let bytes = [&self.request_bytes, &self.response_bytes];
        Unreported {
            bytes: bytes.map(|meter| {
                meter
                    .as_ref()
                    .map_or_else(Bytes::default, Meter::unreported)
            }),
            usage: self.permits.as_ref().map(|permits| permits.usage(worker)),
        }
    }

    /// The shared table has been told.
    pub(crate) fn settled(&mut self) {
        for meter in [&mut self.request_bytes, &mut self.response_bytes] {
            meter.iter_mut().for_each(Meter::settled);
        }
        if let Some(permits) = &mut self.permits {
            permits.settled(permits.in_use);
        }
    }

    /// A request that needed the unit was refused.
    pub(crate) fn refuse(&mut self, unit: Unit) {
        if let Some(meter) = self.meter(unit) {
            meter.refuse();
        }
        let permits = self.permits.as_mut().filter(|_| unit.is_concurrency());
        if let Some(permits) = permits {
            permits.refuse();
            permits.turn_away();
        }
    }

    /// Forgets the denials of all units.
    pub(crate) fn forget_denials(&mut self) {
        for meter in [&mut self.request_bytes, &mut self.response_bytes] {
            meter.iter_mut().for_each(|meter| meter.denial = None);
        }
        if let Some(permits) = &mut self.permits {
            permits.denial = None;
        }
    }

    pub(crate) fn meter(&mut self, unit: Unit) -> Option<&mut Meter> {
        match unit {
            Unit::RequestBytes => self.request_bytes.as_mut(),
            Unit::ResponseBytes => self.response_bytes.as_mut(),
            Unit::Requests | Unit::Concurrency => None,
        }
    }

    /// Returns whether streams of the scope must be remembered until they end.
    pub(crate) fn counts_streams(&self) -> bool {
        self.counts_bytes() || self.permits.is_some()
    }

    pub(crate) fn counts_bytes(&self) -> bool {
        self.request_bytes.is_some() || self.response_bytes.is_some()
    }

    /// Returns whether there is something that the shared table should be told.
    pub(crate) fn is_unsettled(&self) -> bool {
        let meters = [&self.request_bytes, &self.response_bytes];
        let unsettled = |meter: &Meter| !meter.is_settled();
        meters.into_iter().flatten().any(unsettled)
            || self
                .permits
                .as_ref()
                .is_some_and(|permits| permits.held > 0)
    }
}

// === impl Unreported ===

impl Unreported {
    /// Reports to the state of the scope.
    pub(crate) fn settle(&self, scope_state: &mut ScopeState, now: Instant, policy: &Policy) {
        for (unit, bytes) in [Unit::RequestBytes, Unit::ResponseBytes]
            .into_iter()
            .zip(self.bytes)
        {
            if let Some(rate) = scope_state.rate_mut(unit) {
                rate.pay(now, policy, bytes.attempts, bytes.owed);
                if bytes.unspent > Tokens::ZERO {
                    rate.give_back(now, policy, bytes.unspent);
                }
            }
        }
        if let (Some(gauge), Some(usage)) = (&mut scope_state.concurrency, &self.usage) {
            gauge.report(now, usage);
        }
    }
}

// === impl Meter ===

impl Meter {
    /// Counts bytes that have passed. True if so much is owed that it should be paid.
    pub(crate) fn charge(&mut self, bytes: u64) -> bool {
        self.attempts = self.attempts.saturating_add(bytes);
        let bytes = Tokens::from_whole(bytes);
        let paid = self.cache.left().min(bytes);
        self.cache.take(paid);
        self.owed = self.owed.saturating_add(bytes.saturating_sub(paid));
        self.owed > self.owed_max
    }

    /// Counts a request that was refused for want of bytes for what it would have brought.
    pub(crate) fn refuse(&mut self) {
        self.attempts = self.attempts.saturating_add(self.usual.unwrap_or(0));
    }

    /// A stream has ended that had `bytes` in all.
    pub(crate) fn learn(&mut self, bytes: u64) {
        self.usual = Some(smoothed(self.usual.unwrap_or(0), bytes));
    }

    /// Returns whether a request may go on without asking the shared table.
    pub(crate) fn is_ready(&self) -> bool {
        self.owed == Tokens::ZERO && self.spare() > Tokens::ZERO
    }

    /// Bytes of the token cache beyond those that streams will use that go on.
    fn spare(&self) -> Tokens {
        let expected = Tokens::from_whole(self.expected);
        self.cache.left().saturating_sub(expected)
    }

    /// Bytes that it keeps beside while some pass: those of a request, or of a token cache.
    fn kept(&self) -> Tokens {
        let usual = Tokens::from_whole(self.usual.unwrap_or(0));
        usual.max(self.owed_max)
    }

    /// A stream goes on, and is expected to have the bytes returned.
    pub(crate) fn expect(&mut self) -> u64 {
        let usual = self.usual.unwrap_or(0);
        self.expected = self.expected.saturating_add(usual);
        usual
    }

    /// A stream is expected to have so many bytes less: they have come, or will not.
    pub(crate) fn expect_less(&mut self, bytes: u64) {
        self.expected = self.expected.saturating_sub(bytes);
    }

    /// Forgets what has been paid; as much as `owed_max` may be owed before the next payment.
    pub(crate) fn paid(&mut self, owed_max: Tokens) {
        (self.attempts, self.owed) = (0, Tokens::ZERO);
        self.owed_max = owed_max;
    }

    fn unreported(&self) -> Bytes {
        let idle = self.attempts == 0 && self.owed == Tokens::ZERO;
        let unspent = if idle {
            self.spare()
        } else {
            self.spare().saturating_sub(self.kept())
        };
        Bytes {
            attempts: self.attempts,
            owed: self.owed,
            unspent,
        }
    }

    fn settled(&mut self) {
        let unspent = self.unreported().unspent;
        self.cache.take(unspent);
        (self.attempts, self.owed) = (0, Tokens::ZERO);
    }

    fn is_settled(&self) -> bool {
        self.attempts == 0 && self.owed == Tokens::ZERO && self.spare() == Tokens::ZERO
    }
}

// === impl Permits ===

impl Permits {
    pub(crate) fn is_ready(&self) -> bool {
        self.held > self.in_use
    }

    /// Applies the result of a draw; a denial before does not hold any more.
    pub(crate) fn apply(&mut self, result: PermitResult) {
        self.denial = None;
        let held = match result {
            PermitResult::Held { held, spare } => {
                self.spare = spare;
                held
            }
            PermitResult::Pending { .. } | PermitResult::Denied => self.in_use,
        };
        self.settled(held);
    }

    /// A request goes on.
    pub(crate) fn take(&mut self) {
        self.in_use = self.in_use.saturating_add(1);
        self.admitted = self.admitted.saturating_add(1);
        self.peak = self.peak.max(self.in_use);
    }

    /// A request is refused.
    pub(crate) fn turn_away(&mut self) {
        self.turned_away = self.turned_away.saturating_add(1);
    }

    /// A request does not go on, at least not now.
    pub(crate) fn refuse(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// `waiting` requests would go on if there were permits.
    pub(crate) fn await_by(&mut self, waiting: usize) {
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.peak = self.peak.max(self.in_use.saturating_add(waiting));
    }

    /// A request has ended. True if more permits are unused than may be kept.
    pub(crate) fn put_back(&mut self) -> bool {
        self.in_use = self.in_use.saturating_sub(1);
        self.denial = None;
        self.has_too_many()
    }

    pub(crate) fn has_too_many(&self) -> bool {
        self.held.saturating_sub(self.in_use) > self.spare
    }

    /// Returns `worker`'s use of its permits.
    pub(crate) fn usage(&self, worker: u64) -> WorkerUsage {
        WorkerUsage {
            worker,
            in_use: self.in_use,
            peak: self.peak,
            admitted: self.admitted,
            refused: self.refused,
            turned_away: self.turned_away,
        }
    }

    /// The shared table knows of all use, and of `held` permits of this worker.
    pub(crate) fn settled(&mut self, held: u32) {
        self.held = held;
        self.peak = self.in_use;
        (self.admitted, self.refused, self.turned_away) = (0, 0, 0);
    }
}

// === free functions ===

/// Returns the usual number when `new` has come after what was `usual` before.
pub(crate) fn smoothed(usual: u64, new: u64) -> u64 {
    match usual {
        0 => new,
        _ => usual.saturating_mul(7).saturating_add(new) / 8,
    }
}
