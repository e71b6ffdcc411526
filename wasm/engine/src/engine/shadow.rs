//! Rules that only pretend to refuse, all the time or for some of the requests.
//!
//! A rule in shadow mode decides like any other: it draws, asks for leases and counts. Only its
//! refusals have no effect but a counter and what the embedder tells of them.

use std::hash::BuildHasher;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use super::{Engine, RuleId};
use crate::host::Host;
use crate::refusal::Refusal;

/// What is remembered of refusals without effect.
#[derive(Debug)]
pub(super) struct Shadow {
    dice: SeedableRandomState,
    /// What would have refused the request at hand.
    shadowed: Option<Refusal>,
}

// === impl Shadow ===

impl Shadow {
    /// Nothing so far; `seed` is random.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            dice: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            shadowed: None,
        }
    }

    /// Nothing was shadowed of the request at hand.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.shadowed = None;
    }

    /// The request at hand has waited, and that was shadowed of it when it came.
    pub(super) fn restore(&mut self, shadowed: Option<Refusal>) {
        self.shadowed = shadowed;
    }

    /// Whether something was shadowed of the request at hand.
    #[inline]
    pub(super) fn is_pretended(&self) -> bool {
        self.shadowed.is_some()
    }

    /// What was shadowed of the request at hand.
    pub(super) fn take(&mut self) -> Option<Refusal> {
        self.shadowed.take()
    }

    /// A number from 0 to 99, always the same for one request and one rule: who was shadowed by a rule
    /// and waits for another one's tokens is still shadowed at its turn.
    fn roll(&self, stream: u32, rule: RuleId) -> u64 {
        (self.dice.hash_one((stream, rule.index())) >> 32) % 100
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Whether a rule lets the request of `stream` go on that it would refuse; counts the refusal, or
    /// that it was only shadowed.
    pub(super) fn spares(&mut self, refusal: Refusal, stream: u32) -> bool {
        let shadowed = refusal
            .rule()
            .is_some_and(|rule| self.is_spared(rule, stream));
        match shadowed {
            true => {
                self.count_shadowed(refusal);
                self.pretend(refusal);
            }
            false => self.count_refused(refusal),
        }
        shadowed
    }

    /// Whether `rule` only pretends to refuse the request of `stream`.
    pub(super) fn is_spared(&self, rule: RuleId, stream: u32) -> bool {
        match self
            .tables
            .get(rule.index())
            .map_or(100, |rule| rule.config.enforced)
        {
            100.. => false,
            0 => true,
            percent => self.shadow.roll(stream, rule) >= u64::from(percent),
        }
    }

    /// Remembers what would have refused the request at hand.
    pub(super) fn pretend(&mut self, refusal: Refusal) {
        self.shadow.shadowed = Some(refusal);
    }

    /// Counts a refusal that is only shadowed.
    pub(super) fn count_shadowed(&mut self, refusal: Refusal) {
        let rule = refusal
            .rule()
            .and_then(|rule| self.tables.get_mut(rule.index()));
        if let Some(table) = rule {
            table.stats.shadowed.of(refusal).add_one();
        }
    }

    /// Counts a refusal that is one.
    pub(super) fn count_refused(&mut self, refusal: Refusal) {
        let rule = refusal
            .rule()
            .and_then(|rule| self.tables.get_mut(rule.index()));
        if let Some(table) = rule {
            table.stats.refused.of(refusal).add_one();
        }
    }

    /// Whether no refusal of a rule has any effect, so that its requests are not to be held either.
    pub(super) fn is_shadow(&self, table: u16) -> bool {
        let table = self.tables.get(usize::from(table));
        table.is_some_and(|table| table.config.enforced == 0)
    }
}
