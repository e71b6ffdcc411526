//! What becomes of a request, from all that it needs: it goes on, is held, waits or is refused.

use super::draw::Step;
use super::{Attempt, Decision, Engine, Outcome, Request, RuleId, Short, Target, entry};
use crate::host::Host;
use crate::refusal::Refusal;
use crate::shared_table::TableError;

// === impl Outcome ===

impl Outcome {
    pub(super) fn passes(&self) -> bool {
        !self.held && !self.is_denied()
    }

    pub(super) fn is_denied(&self) -> bool {
        self.denied.is_some() || self.short.is_some()
    }
}

// === impl Short ===

impl Short {
    /// The refusal that it comes to if the request does not wait.
    pub(super) fn refusal(self) -> Refusal {
        Refusal::Denied {
            rule: RuleId(self.place.table),
            by: RuleId(self.place.rule),
            denial: self.denial,
        }
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Charges every bucket or none. Those that have no slot of their own become their rule's
    /// overflow in `targets`.
    #[inline]
    pub(super) fn decide(
        &mut self,
        targets: &mut Request,
        attempt: Attempt,
    ) -> Result<Decision, TableError> {
        let mut outcome = Outcome {
            stream: targets.stream,
            counted: targets.shadow_counted,
            ..Outcome::default()
        };
        let mut index: usize = 0;
        while let Some(target) = targets.as_slice().get(index) {
            let usual = entry(&mut self.tables, *target);
            let usual = usual.filter(|entry| entry.meters.is_none());
            if usual.is_none_or(|entry| entry.cache.left() < targets.cost) {
                self.prepare(targets, index, attempt, &mut outcome)?;
            }
            index = index.saturating_add(1);
        }
        // Permits last: what is drawn of these and not used keeps others from going on.
        if targets.gauged && outcome.passes() {
            self.draw_permits(targets, attempt, &mut outcome)?;
        }
        targets.shadow_counted |= outcome.shadow_counted;
        if !outcome.passes() {
            let decision = self.put_off(&outcome);
            if targets.priced_late && matches!(decision, Decision::Refuse(_)) {
                self.count_what_it_would_cost(targets);
            }
            return Ok(decision);
        }
        for target in targets.as_slice() {
            if let Some(entry) = entry(&mut self.tables, *target) {
                entry.cache.take(targets.cost);
            }
        }
        if targets.gauged {
            self.take_permits(targets);
        }
        self.stats.allowed.add_one();
        Ok(Decision::Pass)
    }

    /// Decides on a request that has waited. One that a filter made wait which is switched off now
    /// goes on.
    pub(super) fn decide_again(
        &mut self,
        targets: &mut Request,
        attempt: Attempt,
    ) -> Result<Decision, TableError> {
        self.shadow.restore(targets.shadowed);
        if self.config.enabled {
            return self.decide(targets, attempt);
        }
        targets.count_nowhere();
        Ok(Decision::Pass)
    }

    /// What becomes of a request that does not pass now.
    fn put_off(&mut self, outcome: &Outcome) -> Decision {
        match (outcome.denied, outcome.short) {
            (Some(refusal), None) => Decision::Refuse(refusal),
            (Some(refusal), Some(short)) => {
                self.count_refused(short.refusal());
                Decision::Refuse(refusal.stricter(short.refusal()))
            }
            (None, _) if outcome.held => Decision::Hold,
            (None, Some(short)) => Decision::Wait(short),
            (None, None) => Decision::Hold,
        }
    }

    /// Adds what came of one target to what comes of the request.
    pub(super) fn note_step(&mut self, outcome: &mut Outcome, target: Target, step: Step) {
        let denial = match step {
            Step::Ready => return,
            Step::Cold => {
                outcome.held = true;
                return;
            }
            Step::Denied(denial) => denial,
        };
        let place = target;
        let short = Short { place, denial };
        let refusal = short.refusal();
        if self.is_spared(RuleId(target.rule), outcome.stream) {
            // Who is held or waits is decided on again and again, and counts once.
            if !outcome.counted {
                self.count_shadowed(refusal);
            }
            outcome.shadow_counted = true;
            self.pretend(refusal);
            return;
        }
        if self.shape_of(target.rule).is_some() && !denial.never {
            let longer = |other: Short| {
                let stricter = other.refusal().stricter(refusal);
                if stricter == refusal { short } else { other }
            };
            outcome.short = Some(outcome.short.map_or(short, longer));
            return;
        }
        self.count_refused(refusal);
        let stricter = outcome.denied.map(|other| other.stricter(refusal));
        outcome.denied = Some(stricter.unwrap_or(refusal));
    }

    /// Whether a request that is denied counts as such now, rather than when it has waited in vain.
    pub(super) fn counts_at_once(&self, target: Target, attempt: Attempt) -> bool {
        attempt != Attempt::Turn && self.shape_of(target.rule).is_none()
    }
}
