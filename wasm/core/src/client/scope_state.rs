//! State of one scope in one process: a limiter for each unit that has a limit, and the scope whose
//! capacity its requests use as well.
//!
//! Only the coordinator knows which units have a limit. Requests are asked for from the start; an
//! answer names the units of the scope that are limited, and from then on these are asked for in
//! the same call. A unit without a limit has no limiter and costs nothing.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::concurrency_limiter::ConcurrencyLimiter;
use super::policy::Policy;
use super::process_lease::{LeaseState, NudgeEffect, ProcessLease};
use super::rate_limiter::RateLimiter;
use crate::cluster::ShardId;
use crate::lease::{EpochError, ID_LEN_MAX, Origin, Unit, UnitAnswer};
use crate::lease_client::{KnownLimit, LeaseClient, LeaseMessage};
use crate::units::Instant;

/// A unit that is due within this time is asked for together with one that is due now: one call
/// for all units of a scope is worth more than a fraction of an interval.
const TOGETHER: Duration = Duration::from_millis(250);

/// State of one scope; plain data, see [`ScopeState::encode`]. What few scopes have is boxed, for a process
/// keeps thousands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeState {
    /// Requests per second: always limited, in case the coordinator says so.
    pub requests: RateLimiter,
    /// Bytes per second in bodies of requests.
    pub request_bytes: Option<Box<RateLimiter>>,
    /// Bytes per second in bodies of responses.
    pub response_bytes: Option<Box<RateLimiter>>,
    /// Requests in flight.
    pub concurrency: Option<Box<ConcurrencyLimiter>>,
    pub(super) canonical: Option<Arc<str>>,
}

// === impl ScopeState ===

impl ScopeState {
    /// The state of a scope that nothing is known of.
    pub fn new(now: Instant, policy: &Policy) -> Self {
        Self {
            requests: RateLimiter::new(now, policy),
            request_bytes: None,
            response_bytes: None,
            concurrency: None,
            canonical: None,
        }
    }

    /// The limiter of a unit that is counted per second, if it has a limit.
    pub fn rate_mut(&mut self, unit: Unit) -> Option<&mut RateLimiter> {
        match unit {
            Unit::Requests => Some(&mut self.requests),
            Unit::RequestBytes => self.request_bytes.as_deref_mut(),
            Unit::ResponseBytes => self.response_bytes.as_deref_mut(),
            Unit::Concurrency => None,
        }
    }

    /// Whether requests may wait at `now` for an answer about a unit that is counted per second.
    pub fn awaits_tokens(&self, now: Instant) -> bool {
        let bytes = [&self.request_bytes, &self.response_bytes];
        let mut bytes = bytes.into_iter().flatten();
        self.requests.is_awaited(now) || bytes.any(|limiter| limiter.is_awaited(now))
    }

    fn concurrency_mut(&mut self, unit: Unit) -> Option<&mut ConcurrencyLimiter> {
        self.concurrency
            .as_deref_mut()
            .filter(|_| unit.is_concurrency())
    }

    /// Whether there is a limiter for `unit`.
    pub fn has(&self, unit: Unit) -> bool {
        self.lease(unit).is_some()
    }

    pub(super) fn lease(&self, unit: Unit) -> Option<&ProcessLease> {
        let rate = match unit {
            Unit::Requests => Some(&self.requests),
            Unit::RequestBytes => self.request_bytes.as_deref(),
            Unit::ResponseBytes => self.response_bytes.as_deref(),
            Unit::Concurrency => return self.concurrency.as_ref().map(|limiter| &limiter.lease),
        };
        rate.map(|rate| &rate.lease)
    }

    fn leases(&self) -> impl Iterator<Item = &ProcessLease> {
        Unit::ALL.into_iter().filter_map(|unit| self.lease(unit))
    }

    /// The scope whose capacity requests of this scope use as well, if there is one.
    pub fn canonical(&self) -> Option<&Arc<str>> {
        self.canonical.as_ref()
    }

    /// Time at which [`ScopeState::ask`] has a message; none while all units are idle.
    pub fn due(&self) -> Option<Instant> {
        self.leases().filter_map(|lease| lease.client.due).min()
    }

    /// State of the scope's leases: without a lease if that is so for any unit in use.
    pub fn state(&self, now: Instant) -> LeaseState {
        let mut states = self.leases().map(|lease| lease.state(now));
        if states.any(|state| state == LeaseState::NoLease) {
            LeaseState::NoLease
        } else {
            self.requests.state(now)
        }
    }

    /// Limit of the scope's requests, by the last answer; none before the first one.
    pub fn known_limit(&self) -> Option<KnownLimit> {
        self.requests.lease.client.known_limit()
    }

    /// The shard whose master is worth asking next: the one that the last answer came from. None if
    /// that is not known, or the last call failed; then any coordinator is to be asked, which
    /// forwards the call.
    pub fn shard(&self) -> Option<ShardId> {
        let clients = self.leases().map(|lease| &lease.client);
        let asked_last = clients.max_by_key(|client| client.sequence);
        asked_last.and_then(LeaseClient::shard)
    }

    /// Returns the messages that are due, by unit. All of them must be sent: no other worker will.
    pub fn ask(&mut self, now: Instant, policy: &Policy) -> Vec<(Unit, LeaseMessage)> {
        let mut messages = Vec::new();
        if self.due().is_none_or(|due| due > now) {
            return messages;
        }
        for unit in Unit::ALL {
            let message = if let Some(rate) = self.rate_mut(unit) {
                rate.ask_early(now, policy, TOGETHER)
            } else if let Some(concurrency) = self.concurrency_mut(unit) {
                concurrency.ask_early(now, policy, TOGETHER)
            } else {
                continue;
            };
            if message != LeaseMessage::Nothing {
                messages.push((unit, message));
            }
        }
        messages
    }

    /// Makes the request for `unit` due at `now`, since a coordinator says that its share has changed.
    pub fn nudge(&mut self, now: Instant, unit: Unit) -> NudgeEffect {
        if let Some(rate) = self.rate_mut(unit) {
            return rate.lease.nudge(now);
        }
        let concurrency = self.concurrency_mut(unit);
        concurrency.map_or(NudgeEffect::Ignored, |limiter| limiter.lease.nudge(now))
    }

    /// Checks whether an answer from `origin` for one unit may be applied at `now`; [`ScopeState::handle_answer`]
    /// takes one that may not for a failure.
    ///
    /// # Errors
    /// If it may not.
    pub fn check_origin(&self, now: Instant, unit: Unit, origin: Origin) -> Result<(), EpochError> {
        let lease = self.lease(unit);
        lease.map_or(Ok(()), |lease| lease.client.check_origin(now, origin))
    }

    /// Applies the `answer` from `origin` for one unit. False if it was dropped.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        policy: &Policy,
        origin: Origin,
        answer: &UnitAnswer,
    ) -> bool {
        let UnitAnswer {
            unit,
            sequence,
            answer,
        } = answer;
        let (unit, sequence) = (*unit, *sequence);
        if let Some(rate) = self.rate_mut(unit) {
            return rate.handle_answer(now, policy, sequence, origin, answer);
        }
        self.concurrency_mut(unit)
            .is_some_and(|concurrency| concurrency.handle_answer(now, sequence, origin, answer))
    }

    /// Notes that the request of `sequence` for one unit failed.
    pub fn handle_failure(&mut self, now: Instant, unit: Unit, sequence: u64, seed: u64) {
        if let Some(rate) = self.rate_mut(unit) {
            rate.handle_failure(now, sequence, seed);
        } else if let Some(concurrency) = self.concurrency_mut(unit) {
            concurrency.handle_failure(now, sequence, seed);
        }
    }

    /// Takes the units that have a limit, and the scope whose capacity is used as well: a unit
    /// without a limit is forgotten, a new one starts anew.
    pub fn set_terms(
        &mut self,
        now: Instant,
        policy: &Policy,
        limited: &[Unit],
        canonical: Option<&Arc<str>>,
    ) {
        let rate = |limiter: &mut Option<Box<RateLimiter>>, unit| {
            let new = || Box::new(RateLimiter::of(unit, now, policy));
            *limiter = limited
                .contains(&unit)
                .then(|| limiter.take().unwrap_or_else(new));
        };
        rate(&mut self.request_bytes, Unit::RequestBytes);
        rate(&mut self.response_bytes, Unit::ResponseBytes);
        let is_limited = limited.contains(&Unit::Concurrency);
        let new = || Box::new(ConcurrencyLimiter::new(now));
        self.concurrency = is_limited.then(|| self.concurrency.take().unwrap_or_else(new));
        let fits = |id: &&Arc<str>| !id.is_empty() && id.len() <= ID_LEN_MAX;
        self.canonical = canonical.filter(fits).cloned();
    }

    /// Whether nothing would be lost with this state.
    pub fn is_reusable(&self, now: Instant) -> bool {
        let mut bytes = self.request_bytes.iter().chain(&self.response_bytes);
        let concurrency = self.concurrency.as_ref();
        self.requests.is_reusable(now)
            && bytes.all(|rate| rate.is_reusable(now))
            && concurrency.is_none_or(|concurrency| concurrency.is_reusable(now))
    }
}

#[cfg(test)]
mod tests;
