//! Order in which requests that wait for the same tokens get them.
//!
//! Within a member, such as a tenant of a group, requests go in the order of their arrival. Between
//! members it is self-clocked fair queueing (Golestani, INFOCOM 1994): each request has a *finish*,
//! the tokens that its member will have had when it has gone, and the least finish goes first. A
//! member that begins to wait is counted as having had as much as the request that went last.
//!
//! So two members that both wait get the same number of tokens, to within the cost of one request
//! of each, over any stretch of time; with requests of one token they take turns. To let them take
//! turns whatever the cost would give a member whose requests cost a hundred tokens a hundred times
//! as much. Nothing is kept of a member that does not wait, and none that waits here starves: each
//! newcomer that goes before moves the count on.
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

/// Waiting requests, in the order in which they go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FairOrder {
    members: BTreeMap<u64, MemberQueue>,
    /// The members by the turns of their first requests.
    next: BTreeMap<Turn, u64>,
    /// The finish of the request that went last.
    clock: u128,
    /// The next place behind all others.
    end: u64,
    len: usize,
    cost: Tokens,
}

/// Turn of a request: its finish in millionths of a token; then the member that has waited longer.
type Turn = (u128, u64);

/// Waiting requests of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MemberQueue {
    /// Place among the members in the order in which they began to wait.
    place: u64,
    /// The finish of its last request, or the clock when it began to wait.
    served: u128,
    /// By arrival.
    waiters: BTreeMap<u64, Waiter>,
    cost: Tokens,
}

// === impl FairOrder ===

impl FairOrder {
    /// Adds a request, at the place in its member that its arrival gives it.
    pub fn insert(&mut self, waiter: Waiter) {
        let newcomer = MemberQueue {
            place: self.end,
            served: self.clock,
            ..MemberQueue::default()
        };
        let member = self.members.entry(waiter.member).or_insert(newcomer);
        if let Some(turn) = member.turn() {
            self.next.remove(&turn);
        } else {
            self.end = self.end.saturating_add(1);
        }
        if member.waiters.insert(waiter.arrival, waiter).is_none() {
            member.cost = member.cost.saturating_add(waiter.cost);
            self.cost = self.cost.saturating_add(waiter.cost);
            self.len = self.len.saturating_add(1);
        }
        if let Some(turn) = member.turn() {
            self.next.insert(turn, waiter.member);
        }
    }

    /// Returns the request that goes next.
    pub fn first(&self) -> Option<Waiter> {
        let (_, member) = self.next.first_key_value()?;
        self.members.get(member)?.first()
    }

    /// Takes out the request that goes next, and counts its tokens as had by its member.
    pub fn pop_first(&mut self) -> Option<Waiter> {
        let (&(finish, _), &member) = self.next.first_key_value()?;
        let arrival = self.members.get(&member)?.first()?.arrival;
        self.clock = self.clock.max(finish);
        self.take(member, arrival, Some(finish))
    }

    /// Takes out the request of `arrival`, wherever it is. False if it does not wait.
    pub fn remove(&mut self, member: u64, arrival: u64) -> bool {
        self.take(member, arrival, None).is_some()
    }

    /// Takes out a request of a member that has been `served` by then, if that has changed.
    fn take(&mut self, number: u64, arrival: u64, served: Option<u128>) -> Option<Waiter> {
        let member = self.members.get_mut(&number)?;
        let turn = member.turn()?;
        let waiter = member.waiters.remove(&arrival)?;
        self.next.remove(&turn);
        member.cost = member.cost.saturating_sub(waiter.cost);
        member.served = served.unwrap_or(member.served);
        if let Some(turn) = member.turn() {
            self.next.insert(turn, number);
        } else {
            self.members.remove(&number);
        }
        self.cost = self.cost.saturating_sub(waiter.cost);
        self.len = self.len.saturating_sub(1);
        Some(waiter)
    }

    /// Cost of all requests that go before one of `member` that comes now and costs `cost`.
    pub fn ahead_of(&self, member: u64, cost: Tokens) -> Tokens {
        let own = self.members.get(&member);
        let (before, place) = match own {
            Some(own) => (own.served.saturating_add(micros(own.cost)), own.place),
            None => (self.clock, u64::MAX),
        };
        let turn = (before.saturating_add(micros(cost)), place);
        let others = self.members.iter().filter(|(other, _)| **other != member);
        let costs = others.map(|(_, other)| other.cost_before(turn));
        let own = own.map_or(Tokens::ZERO, |own| own.cost);
        costs.fold(own, Tokens::saturating_add)
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
        let first = member.and_then(MemberQueue::first);
        first.is_some_and(|first| first.arrival < arrival)
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
    fn first(&self) -> Option<Waiter> {
        self.waiters.first_key_value().map(|(_, waiter)| *waiter)
    }

    /// Returns the turn of its first request.
    fn turn(&self) -> Option<Turn> {
        let finish = self.served.saturating_add(micros(self.first()?.cost));
        Some((finish, self.place))
    }

    /// Cost of its requests that go before `turn`.
    fn cost_before(&self, turn: Turn) -> Tokens {
        let mut cost = Tokens::ZERO;
        for waiter in self.waiters.values() {
            let all = cost.saturating_add(waiter.cost);
            if (self.served.saturating_add(micros(all)), self.place) > turn {
                break;
            }
            cost = all;
        }
        cost
    }
}

// === free functions ===

fn micros(tokens: Tokens) -> u128 {
    tokens.as_micros().into()
}

#[cfg(test)]
mod tests;
