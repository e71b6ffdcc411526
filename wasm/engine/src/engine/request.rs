//! Needs of a request: the buckets of its scopes, and what has been found out of it so far.

use tollgate_core::units::Tokens;

use crate::config::RULES_MAX;
use crate::refusal::Refusal;

/// Each rule's scope may use the capacity of another as well.
const TARGETS_MAX: usize = RULES_MAX * 2;

/// One of the buckets that a request needs: an entry of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) table: u16,
    /// The table of the rule that leads there: its own, but for canonical scopes.
    pub(super) rule: u16,
    pub(super) index: u32,
}

/// A request that is decided on: all buckets that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub(super) targets: [Target; TARGETS_MAX],
    pub(super) len: usize,
    /// How many of them are the rules' own; canonical scopes follow these.
    pub(super) own: usize,
    /// The stream whose request it is.
    pub(super) stream: u32,
    /// What spares it has been counted.
    pub(super) shadow_counted: bool,
    /// What it would have been refused for before any bucket was looked at.
    pub(super) shadowed: Option<Refusal>,
    /// Tokens of requests that it needs of each.
    pub(super) cost: Tokens,
    /// Some count requests in flight.
    pub(super) gauged: bool,
    /// In some the stream counts until it ends.
    pub(super) watched: bool,
    /// Of some it is known only at the end what the request costs.
    pub(super) priced_late: bool,
}

// === impl Target ===

impl Target {
    #[inline]
    pub(super) const fn of(table: u16, index: u32) -> Self {
        Self {
            table,
            rule: table,
            index,
        }
    }

    pub(super) fn is_same(self, other: Self) -> bool {
        (self.table, self.index) == (other.table, other.index)
    }
}

// === impl Request ===

impl Request {
    /// Nothing so far for the request of `stream`, at `cost` tokens of requests.
    #[inline]
    pub(super) const fn new(cost: Tokens, stream: u32) -> Self {
        Self {
            targets: [Target::of(0, 0); TARGETS_MAX],
            len: 0,
            own: 0,
            stream,
            shadow_counted: false,
            shadowed: None,
            cost,
            gauged: false,
            watched: false,
            priced_late: false,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, target: Target) {
        if let Some(place) = self.targets.get_mut(self.len) {
            *place = target;
            self.len = self.len.saturating_add(1);
        }
    }

    /// Adds a target that is not among them. False if it is.
    pub(super) fn push_new(&mut self, target: Target) -> bool {
        let new = !self.as_slice().iter().any(|other| other.is_same(target));
        if new {
            self.push(target);
        }
        new
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[Target] {
        self.targets.get(..self.len).unwrap_or_default()
    }

    /// What the request counts for in what is wanted.
    #[inline]
    pub(super) fn attempts(&self) -> u32 {
        u32::try_from(self.cost.whole()).unwrap_or(u32::MAX)
    }
}
