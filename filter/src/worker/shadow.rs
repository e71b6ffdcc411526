//! Rules that only pretend to refuse, all the time or for some of the requests.
//!
//! A rule in shadow mode decides like any other: it draws, asks for leases and counts. Only its
//! refusals have no effect but a counter, a note in the access log, and now and then a line in
//! Envoy's log.

use std::hash::BuildHasher;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use super::tick::COMPLAINT_INTERVAL;
use super::{Verdict, Worker};
use crate::host::{Host, Level};
use crate::refusal::Refusal;
use tollgate_core::units::Instant;

/// What is remembered of refusals without effect.
#[derive(Debug)]
pub(super) struct Shadow {
    dice: SeedableRandomState,
    /// What would have refused the request at hand.
    pretended: Option<Refusal>,
    last_logged: Option<Instant>,
}

// === impl Shadow ===

impl Shadow {
    /// Nothing so far; `seed` is random.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            dice: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            pretended: None,
            last_logged: None,
        }
    }

    /// Nothing was pretended of the request at hand.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.pretended = None;
    }

    /// The request at hand has waited, and that was pretended of it when it came.
    pub(super) fn restore(&mut self, pretended: Option<Refusal>) {
        self.pretended = pretended;
    }

    /// A number from 0 to 99, always the same for one request and one rule: who was spared by a rule
    /// and waits for another one's tokens is still spared at its turn.
    fn roll(&self, stream: u32, rule: usize) -> u64 {
        (self.dice.hash_one((stream, rule)) >> 32) % 100
    }
}

// === impl Worker ===

impl<H: Host> Worker<H> {
    /// Whether a rule lets the request of `stream` go on that it would refuse; counts the refusal, or
    /// that it was only pretended.
    pub(super) fn spares(&mut self, refusal: Refusal, stream: u32) -> bool {
        let spared = self.is_spared(refusal.rule().unwrap_or(usize::MAX), stream);
        match spared {
            true => {
                self.count_shadowed(refusal);
                self.pretend(refusal);
            }
            false => self.count_refused(refusal),
        }
        spared
    }

    /// Whether `rule` only pretends to refuse the request of `stream`.
    pub(super) fn is_spared(&self, rule: usize, stream: u32) -> bool {
        match self.tables.get(rule).map_or(100, |rule| rule.enforced) {
            100.. => false,
            0 => true,
            percent => self.shadow.roll(stream, rule) >= u64::from(percent),
        }
    }

    /// Remembers what would have refused the request at hand.
    pub(super) fn pretend(&mut self, refusal: Refusal) {
        self.shadow.pretended = Some(refusal);
    }

    /// Counts a refusal that is only pretended.
    pub(super) fn count_shadowed(&mut self, refusal: Refusal) {
        let rule = refusal.rule().and_then(|rule| self.tables.get_mut(rule));
        if let Some(table) = rule {
            table.stats.shadowed.of(refusal).add_one();
        }
    }

    /// Counts a refusal that is one.
    pub(super) fn count_refused(&mut self, refusal: Refusal) {
        let rule = refusal.rule().and_then(|rule| self.tables.get_mut(rule));
        if let Some(table) = rule {
            table.stats.refused.of(refusal).add_one();
        }
    }

    /// Whether no refusal of a rule has any effect, so that its requests are not to be held either.
    pub(super) fn is_shadow(&self, table: u16) -> bool {
        let table = self.tables.get(usize::from(table));
        table.is_some_and(|table| table.enforced == 0)
    }

    /// Leaves what would have refused the stream at hand to the access log if it goes on.
    #[inline]
    pub(super) fn tell_pretended(&mut self, verdict: Verdict) {
        if let Some(refusal) = self.shadow.pretended.take()
            && verdict == Verdict::Pass
        {
            self.note_pretended(refusal);
        }
    }

    #[cold]
    fn note_pretended(&mut self, refusal: Refusal) {
        let reason = refusal.reason(self.refuser(refusal).rule);
        self.host.note("tollgate.shadow", &reason);
        let now = self.host.now();
        let fresh = |last| now.saturating_since(last) >= COMPLAINT_INTERVAL;
        if self.shadow.last_logged.is_none_or(fresh) {
            self.shadow.last_logged = Some(now);
            let message = format!("tollgate: {reason} would refuse requests (shadow)");
            self.host.log(Level::Warn, &message);
        }
    }
}
