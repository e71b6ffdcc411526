//! Rules that only pretend to refuse, all the time or for some of the requests.
//!
//! A rule in shadow mode decides like any other: it draws, asks for leases and counts. Only its
//! refusals have no effect but a counter, a note in the access log, and now and then a line in
//! Envoy's log.

use super::tick::COMPLAINT_INTERVAL;
use super::{Verdict, Worker};
use crate::host::{Host, Level};
use crate::refusal::Refusal;
use tollgate_core::units::Instant;

/// What is remembered of refusals without effect.
#[derive(Debug)]
pub(super) struct Shadow {
    dice: u64,
    /// What would have refused the request at hand.
    pretended: Option<Refusal>,
    last_logged: Option<Instant>,
}

// === impl Shadow ===

impl Shadow {
    /// Nothing so far; `seed` is random.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            // The generator would stay at zero for ever.
            dice: seed | 1,
            pretended: None,
            last_logged: None,
        }
    }

    /// Nothing was pretended of the request at hand.
    pub(super) fn clear(&mut self) {
        self.pretended = None;
    }

    /// A number from 0 to 99; xorshift, which is random enough to spread refusals evenly.
    fn roll(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 32) % 100
    }
}

// === impl Worker ===

impl<H: Host> Worker<H> {
    /// Whether a rule lets a request go on that it would refuse; counts the refusal, or that it was
    /// only pretended.
    pub(super) fn spares(&mut self, refusal: Refusal) -> bool {
        let rule = refusal.rule().unwrap_or(usize::MAX);
        let spared = self.pretends(rule, refusal);
        if !spared {
            self.count_refused(refusal);
        }
        spared
    }

    /// Whether `rule`, whose scope has led to the one that refuses, only pretends to; counts it if so.
    pub(super) fn pretends(&mut self, rule: usize, refusal: Refusal) -> bool {
        let enforced = self.tables.get(rule).map_or(100, |rule| rule.enforced);
        let Some(table) = refusal.rule().and_then(|rule| self.tables.get_mut(rule)) else {
            return false;
        };
        let spared = match enforced {
            100.. => false,
            0 => true,
            percent => self.shadow.roll() >= u64::from(percent),
        };
        if spared {
            table.stats.shadowed.of(refusal).add_one();
            self.shadow.pretended = Some(refusal);
        }
        spared
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
