//! The order in which requests that wait for the same tokens get them.
//!
//! Within a member, such as a tenant of a group, whoever came first goes first. Between members it is
//! one request each in turn, so that who sends a hundred at once does not keep the others waiting
//! for all of them. A member that begins to wait has its first turn after everybody who waits already.
//!
//! The obvious queue, one list with a flag on those that have gone, cannot give up a place in the
//! middle without a walk, and streams are closed at any time. Here each step is O(log n).

use alloc::collections::BTreeMap;

use crate::units::Tokens;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Whose request it is: those of one member go in the order of their arrival.
    pub member: u64,
    /// Its number in the order of arrival; no other request has it.
    pub arrival: u64,
    /// What the caller knows it by.
    pub stream: u32,
    /// Tokens that it takes.
    pub cost: Tokens,
}

/// Requests in the order of their turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    members: BTreeMap<u64, Member>,
    /// The members by their places: whose turn it is comes first.
    ring: BTreeMap<u64, u64>,
    /// The next place behind all others.
    end: u64,
    len: usize,
    cost: Tokens,
}

/// The requests of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Member {
    place: u64,
    /// By arrival.
    turns: BTreeMap<u64, Waiter>,
    cost: Tokens,
}

// === impl Turns ===

impl Turns {
    /// Adds a request, at the place in its member that its arrival gives it.
    pub fn insert(&mut self, turn: Waiter) {
        let end = self.end;
        let member = self.members.entry(turn.member).or_insert_with(|| {
            self.ring.insert(end, turn.member);
            self.end = end.saturating_add(1);
            Member {
                place: end,
                ..Member::default()
            }
        });
        if member.turns.insert(turn.arrival, turn).is_none() {
            member.cost = member.cost.saturating_add(turn.cost);
            self.cost = self.cost.saturating_add(turn.cost);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Whose turn it is.
    pub fn first(&self) -> Option<Waiter> {
        let (_, member) = self.ring.first_key_value()?;
        let (_, turn) = self.members.get(member)?.turns.first_key_value()?;
        Some(*turn)
    }

    /// Takes out whose turn it is; the next one of the same member comes after those of all others.
    pub fn pop_first(&mut self) -> Option<Waiter> {
        let turn = self.first()?;
        self.remove(turn.member, turn.arrival);
        if let Some(member) = self.members.get_mut(&turn.member) {
            self.ring.remove(&member.place);
            member.place = self.end;
            self.ring.insert(self.end, turn.member);
            self.end = self.end.saturating_add(1);
        }
        Some(turn)
    }

    /// Takes out the request of `arrival`, wherever it is. False if there is none.
    pub fn remove(&mut self, member: u64, arrival: u64) -> bool {
        let Some(known) = self.members.get_mut(&member) else {
            return false;
        };
        let Some(turn) = known.turns.remove(&arrival) else {
            return false;
        };
        known.cost = known.cost.saturating_sub(turn.cost);
        if known.turns.is_empty() {
            self.ring.remove(&known.place);
            self.members.remove(&member);
        }
        self.cost = self.cost.saturating_sub(turn.cost);
        self.len = self.len.saturating_sub(1);
        true
    }

    /// What those take together that go before a request of `member` that comes now.
    pub fn ahead_of(&self, member: u64) -> Tokens {
        let own = self.members.get(&member);
        let (rounds, place) = own.map_or((0, u64::MAX), |own| (own.turns.len(), own.place));
        let others = self.members.iter().filter(|(other, _)| **other != member);
        let before = others.map(|(_, other)| {
            let turns = match other.place < place {
                true => rounds.saturating_add(1),
                false => rounds,
            };
            other.cost_of(turns)
        });
        let own = own.map_or(Tokens::ZERO, |own| own.cost);
        before.fold(own, Tokens::saturating_add)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many of `member` wait.
    pub fn len_of(&self, member: u64) -> usize {
        let member = self.members.get(&member);
        member.map_or(0, |member| member.turns.len())
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What all who wait take together.
    pub fn cost(&self) -> Tokens {
        self.cost
    }
}

// === impl Member ===

impl Member {
    /// What the first `turns` take together.
    fn cost_of(&self, turns: usize) -> Tokens {
        if turns >= self.turns.len() {
            return self.cost;
        }
        let costs = self.turns.values().take(turns).map(|turn| turn.cost);
        costs.fold(Tokens::ZERO, Tokens::saturating_add)
    }
}

#[cfg(test)]
mod tests;
