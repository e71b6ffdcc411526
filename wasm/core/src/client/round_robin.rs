//! Order in which requests that wait for the same tokens get them.
//!
//! Within a member, such as a tenant of a group, requests go in the order of their arrival. Between
//! members it is one request each in turn, so that a member that sends a hundred at once does not
//! keep the others waiting for all of them. A member that begins to wait has its first turn after
//! all that wait already.
//!
//! The obvious queue, one list with a flag on those that have gone, cannot give up a place in the
//! middle without a walk, and streams are closed at any time. Here each step is O(log n).

use alloc::collections::BTreeMap;

use crate::units::Tokens;

/// Request that waits for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Member that the request is of; the requests of one member go in the order of their arrival.
    pub member: u64,
    /// Number in the order of arrival; no other request has it.
    pub arrival: u64,
    /// The caller's name for it.
    pub stream: u32,
    /// Tokens that it takes.
    pub cost: Tokens,
}

/// Waiting requests, member by member in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundRobin {
    members: BTreeMap<u64, MemberQueue>,
    /// The members by their places: the next one first.
    ring: BTreeMap<u64, u64>,
    /// The next place behind all others.
    end: u64,
    len: usize,
    cost: Tokens,
}

/// Waiting requests of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MemberQueue {
    place: u64,
    /// By arrival.
    waiters: BTreeMap<u64, Waiter>,
    cost: Tokens,
}

// === impl RoundRobin ===

impl RoundRobin {
    /// Adds a request, at the place in its member that its arrival gives it.
    pub fn insert(&mut self, waiter: Waiter) {
        let end = self.end;
        let member = self.members.entry(waiter.member).or_insert_with(|| {
            self.ring.insert(end, waiter.member);
            self.end = end.saturating_add(1);
            MemberQueue {
                place: end,
                ..MemberQueue::default()
            }
        });
        if member.waiters.insert(waiter.arrival, waiter).is_none() {
            member.cost = member.cost.saturating_add(waiter.cost);
            self.cost = self.cost.saturating_add(waiter.cost);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Returns the request that goes next.
    pub fn first(&self) -> Option<Waiter> {
        let (_, member) = self.ring.first_key_value()?;
        let (_, waiter) = self.members.get(member)?.waiters.first_key_value()?;
        Some(*waiter)
    }

    /// Takes out the request that goes next; the next one of the same member comes after those of
    /// all others.
    pub fn pop_first(&mut self) -> Option<Waiter> {
        let waiter = self.first()?;
        self.remove(waiter.member, waiter.arrival);
        if let Some(member) = self.members.get_mut(&waiter.member) {
            self.ring.remove(&member.place);
            member.place = self.end;
            self.ring.insert(self.end, waiter.member);
            self.end = self.end.saturating_add(1);
        }
        Some(waiter)
    }

    /// Takes out the request of `arrival`, wherever it is. False if it does not wait.
    pub fn remove(&mut self, member: u64, arrival: u64) -> bool {
        let Some(known) = self.members.get_mut(&member) else {
            return false;
        };
        let Some(waiter) = known.waiters.remove(&arrival) else {
            return false;
        };
        known.cost = known.cost.saturating_sub(waiter.cost);
        if known.waiters.is_empty() {
            self.ring.remove(&known.place);
            self.members.remove(&member);
        }
        self.cost = self.cost.saturating_sub(waiter.cost);
        self.len = self.len.saturating_sub(1);
        true
    }

    /// Cost of all requests that go before one of `member` that comes now.
    pub fn ahead_of(&self, member: u64) -> Tokens {
        let own = self.members.get(&member);
        let (rounds, place) = own.map_or((0, u64::MAX), |own| (own.waiters.len(), own.place));
        let others = self.members.iter().filter(|(other, _)| **other != member);
        let before = others.map(|(_, other)| {
            let waiters = match other.place < place {
                true => rounds.saturating_add(1),
                false => rounds,
            };
            other.cost_of(waiters)
        });
        let own = own.map_or(Tokens::ZERO, |own| own.cost);
        before.fold(own, Tokens::saturating_add)
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of requests of `member`.
    pub fn len_of(&self, member: u64) -> usize {
        let member = self.members.get(&member);
        member.map_or(0, |member| member.waiters.len())
    }

    /// Whether a request of `member` waits that came before `arrival`.
    pub fn has_before(&self, member: u64, arrival: u64) -> bool {
        let member = self.members.get(&member);
        let first = member.and_then(|member| member.waiters.first_key_value());
        first.is_some_and(|(first, _)| *first < arrival)
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Cost of all requests.
    pub fn cost(&self) -> Tokens {
        self.cost
    }
}

// === impl MemberQueue ===

impl MemberQueue {
    /// Cost of the first `waiters`.
    fn cost_of(&self, waiters: usize) -> Tokens {
        if waiters >= self.waiters.len() {
            return self.cost;
        }
        let costs = self
            .waiters
            .values()
            .take(waiters)
            .map(|waiter| waiter.cost);
        costs.fold(Tokens::ZERO, Tokens::saturating_add)
    }
}

#[cfg(test)]
mod tests;
