//! Rules in shadow mode: their refusals have no effect, for all requests or for some.
//!
//! Such a rule decides like any other: it draws, asks for leases and counts. Only its refusals have no
//! effect but a counter and what the embedder reports of them.

use std::hash::BuildHasher;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use super::{Admission, Request};
use crate::config::RuleId;
use crate::refusal::Refusal;
use crate::rules::Rules;

/// Dice that fall the same way for the same request and rule.
#[derive(Debug)]
pub(super) struct Dice(SeedableRandomState);

// === impl Dice ===

impl Dice {
    /// Returns dice; `seed` is random.
    pub(super) fn new(seed: u64) -> Self {
        let fixed = SharedSeed::global_fixed();
        Self(SeedableRandomState::with_seed(seed, fixed))
    }

    /// Returns a number from 0 to 99, always the same for one request and one rule: a request that
    /// one rule lets go on and that waits for another rule's tokens still goes on at its turn.
    fn roll(&self, stream: u32, rule: RuleId) -> u64 {
        (self.0.hash_one((stream, rule.index())) >> 32) % 100
    }
}

/// Refusals of a request that have no effect: the last one in shadow mode, and the last one that is a mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shadowed {
    pub(crate) by_shadow: Option<Refusal>,
    pub(crate) by_mark: Option<Refusal>,
}

// === impl Shadowed ===

impl Shadowed {
    pub(crate) const NONE: Self = Self {
        by_shadow: None,
        by_mark: None,
    };

    pub(crate) fn add(&mut self, rules: &Rules, refusal: Refusal) {
        let marks = refusal.told_by().is_some_and(|rule| rules.marks(rule));
        if marks {
            self.by_mark = Some(refusal)
        } else {
            self.by_shadow = Some(refusal)
        }
    }

    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.by_shadow.is_some() || self.by_mark.is_some()
    }
}

// === impl Admission ===

impl Admission {
    /// Counts the refusal of a request before any bucket was looked at, and returns whether it has
    /// no effect.
    pub(crate) fn shadow_early(
        &self,
        rules: &mut Rules,
        request: &mut Request,
        refusal: Refusal,
    ) -> bool {
        let rule = refusal.rule();
        let is_shadowed = rule.is_some_and(|rule| self.is_shadowed(rules, rule, request.stream));
        if is_shadowed {
            rules.count_shadowed(refusal);
            request.shadowed_early.add(rules, refusal);
            request.shadowed = request.shadowed_early;
        } else {
            rules.count_refused(refusal)
        }
        is_shadowed
    }

    /// Returns whether refusals of `rule` have no effect on the request of `stream`.
    pub(crate) fn is_shadowed(&self, rules: &Rules, rule: RuleId, stream: u32) -> bool {
        match rules.enforced(rule.0) {
            100.. => false,
            0 => true,
            percent => self.dice.roll(stream, rule) >= u64::from(percent),
        }
    }
}
