//! What one process holds of one scope: a state for each unit that has a limit, and whose capacity
//! its requests use as well.
//!
//! Which units have a limit only the coordinator knows. Requests are asked for from the start;
//! an answer names the units of the scope that are limited, and from then on these are asked for in
//! the same call. A unit without a limit has no state and costs nothing.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::borrower::{Borrower, State, Todo};
use super::gauge::Gauge;
use super::holder::Holder;
use super::policy::Policy;
use crate::cluster::ShardId;
use crate::lease::{Answer, EpochError, ID_LEN_MAX, Origin, Unit};
use crate::units::Instant;

/// A unit that is due within this time is asked for together with one that is due now: one call
/// for all units of a scope is worth more than a fraction of an interval.
const TOGETHER: Duration = Duration::from_millis(250);

/// A process's state for one scope; plain data, see [`Holding::encode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Requests per second: there is always a state for these.
    pub requests: Holder,
    /// Bytes per second in bodies of requests.
    pub request_bytes: Option<Holder>,
    /// Bytes per second in bodies of responses.
    pub response_bytes: Option<Holder>,
    /// Requests in flight.
    pub concurrency: Option<Gauge>,
    pub(super) canonical: Option<Arc<str>>,
}

// === impl Holding ===

impl Holding {
    /// A holding that nothing is known of.
    pub fn new(now: Instant, policy: &Policy) -> Self {
        Self {
            requests: Holder::new(now, policy),
            request_bytes: None,
            response_bytes: None,
            concurrency: None,
            canonical: None,
        }
    }

    /// The state of a unit that is counted per second, if it has a limit.
    pub fn rate_mut(&mut self, unit: Unit) -> Option<&mut Holder> {
        match unit {
            Unit::Requests => Some(&mut self.requests),
            Unit::RequestBytes => self.request_bytes.as_mut(),
            Unit::ResponseBytes => self.response_bytes.as_mut(),
            Unit::Concurrency => None,
        }
    }

    /// Whether there is a state for `unit`.
    pub fn has(&self, unit: Unit) -> bool {
        match unit {
            Unit::Requests => true,
            Unit::RequestBytes => self.request_bytes.is_some(),
            Unit::ResponseBytes => self.response_bytes.is_some(),
            Unit::Concurrency => self.concurrency.is_some(),
        }
    }

    /// The scope whose capacity requests of this scope use as well, if there is one.
    pub fn canonical(&self) -> Option<&Arc<str>> {
        self.canonical.as_ref()
    }

    /// When [`Holding::ask`] has something to say; none while all units are idle.
    pub fn due(&self) -> Option<Instant> {
        let gauge = self.concurrency.iter().filter_map(Gauge::due);
        let rates = self.rates().filter_map(Holder::due);
        rates.chain(gauge).min()
    }

    /// Where the process stands with the scope: without a lease if it is for any unit in use.
    pub fn state(&self, now: Instant) -> State {
        let gauge = self.concurrency.iter().map(|gauge| gauge.state(now));
        let mut states = self.rates().map(|rate| rate.state(now)).chain(gauge);
        let first = self.requests.state(now);
        match states.any(|state| state == State::NoLease) {
            true => State::NoLease,
            false => first,
        }
    }

    /// The shard whose master is worth asking next: the one that the last answer came from. None if
    /// that is not known, or the last call failed; then whoever knows the way is to be asked.
    pub fn shard(&self) -> Option<ShardId> {
        let rates = self.rates().map(|rate| &rate.borrower);
        let gauge = self.concurrency.iter().map(|gauge| &gauge.borrower);
        let asked_last = rates.chain(gauge).max_by_key(|borrower| borrower.sequence);
        asked_last.and_then(Borrower::shard)
    }

    /// What there is to say now, for each unit; empty if nothing is due. All of it must be said:
    /// nobody else will.
    pub fn ask(&mut self, now: Instant, policy: &Policy) -> Vec<(Unit, Todo)> {
        let mut todos = Vec::new();
        if self.due().is_none_or(|due| due > now) {
            return todos;
        }
        for unit in Unit::ALL {
            let todo = match (self.rate_mut(unit), unit) {
                (Some(rate), _) => rate.ask_early(now, policy, TOGETHER),
                (None, Unit::Concurrency) => match &mut self.concurrency {
                    Some(gauge) => gauge.ask_early(now, policy, TOGETHER),
                    None => Todo::Nothing,
                },
                (None, _) => Todo::Nothing,
            };
            if todo != Todo::Nothing {
                todos.push((unit, todo));
            }
        }
        todos
    }

    /// Checks whether an answer from `origin` for one unit may be applied; [`Holding::handle_answer`]
    /// takes one that may not for a failure.
    ///
    /// # Errors
    /// If it may not.
    pub fn check_origin(&self, unit: Unit, origin: Origin) -> Result<(), EpochError> {
        let borrower = match unit {
            Unit::Requests => Some(&self.requests.borrower),
            Unit::RequestBytes => self.request_bytes.as_ref().map(|rate| &rate.borrower),
            Unit::ResponseBytes => self.response_bytes.as_ref().map(|rate| &rate.borrower),
            Unit::Concurrency => self.concurrency.as_ref().map(|gauge| &gauge.borrower),
        };
        borrower.map_or(Ok(()), |borrower| origin.check_after(borrower.origin))
    }

    /// Applies the answer for one unit to the request of `sequence`. False if it was dropped.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        policy: &Policy,
        unit: Unit,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> bool {
        match (self.rate_mut(unit), unit) {
            (Some(rate), _) => rate.handle_answer(now, policy, sequence, origin, answer),
            (None, Unit::Concurrency) => self
                .concurrency
                .as_mut()
                .is_some_and(|gauge| gauge.handle_answer(now, sequence, origin, answer)),
            (None, _) => false,
        }
    }

    /// Notes that the request of `sequence` for one unit failed.
    pub fn handle_failure(&mut self, now: Instant, unit: Unit, sequence: u64, seed: u64) {
        if let Some(rate) = self.rate_mut(unit) {
            rate.handle_failure(now, sequence, seed);
        } else if let Some(gauge) = self.concurrency.as_mut().filter(|_| unit.is_gauge()) {
            gauge.handle_failure(now, sequence, seed);
        }
    }

    /// Takes over which units have a limit, and whose capacity is used as well: what is not limited
    /// any more is forgotten, what is now starts anew.
    pub fn set_terms(
        &mut self,
        now: Instant,
        policy: &Policy,
        limited: &[Unit],
        canonical: Option<&Arc<str>>,
    ) {
        for unit in [Unit::RequestBytes, Unit::ResponseBytes] {
            let place = match unit {
                Unit::RequestBytes => &mut self.request_bytes,
                _ => &mut self.response_bytes,
            };
            match limited.contains(&unit) {
                true => {
                    place.get_or_insert_with(|| Holder::of(unit, now, policy));
                }
                false => *place = None,
            }
        }
        match limited.contains(&Unit::Concurrency) {
            true => {
                self.concurrency.get_or_insert_with(|| Gauge::new(now));
            }
            false => self.concurrency = None,
        }
        let fits = |id: &&Arc<str>| !id.is_empty() && id.len() <= ID_LEN_MAX;
        self.canonical = canonical.filter(fits).cloned();
    }

    /// Whether nothing would be lost with this holding.
    pub fn is_reusable(&self, now: Instant) -> bool {
        let gauge = self.concurrency.as_ref();
        self.rates().all(|rate| rate.is_reusable(now))
            && gauge.is_none_or(|gauge| gauge.is_reusable(now))
    }

    fn rates(&self) -> impl Iterator<Item = &Holder> {
        [
            Some(&self.requests),
            self.request_bytes.as_ref(),
            self.response_bytes.as_ref(),
        ]
        .into_iter()
        .flatten()
    }
}

#[cfg(test)]
mod tests;
