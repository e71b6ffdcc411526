//! Takes the coordinator's answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::lease::Unit;
use tollgate_core::units::Instant;
use tollgate_proto::response::{ScopeAnswer, UnitAnswer};

use super::StreamState;

// === impl StreamState ===

impl StreamState {
    /// Takes the answers to the requests for `asked`, each a scope and its sequence. A scope without
    /// an answer, or with an error, is asked for again; returns their number.
    pub(in crate::rlqs) fn handle_answers(
        &mut self,
        now: Instant,
        asked: &[(Arc<str>, u64)],
        answers: &[ScopeAnswer],
    ) -> usize {
        let by_scope: BTreeMap<&str, &ScopeAnswer> = answers
            .iter()
            .map(|answer| (&*answer.scope, answer))
            .collect();
        let mut failed = 0;
        for (scope, sequence) in asked {
            let answer = by_scope.get(&**scope).copied();
            if !self.handle_answer(now, scope, *sequence, answer) {
                failed += 1;
            }
            self.queue_scope(scope.clone());
        }
        failed
    }

    /// Applies the answer for one scope. False if there is none of use.
    fn handle_answer(
        &mut self,
        now: Instant,
        scope: &Arc<str>,
        sequence: u64,
        answer: Option<&ScopeAnswer>,
    ) -> bool {
        let Some(lease) = self.scopes.get_mut(scope) else {
            return true;
        };
        let units = answer.and_then(|answer| Some((answer, answer.outcome.as_ref().ok()?)));
        let unit = units.and_then(|(answer, units)| Some((answer, of_requests(units, sequence)?)));
        let Some((answer, unit)) = unit else {
            lease.handle_failure(now, sequence, self.last_bucket);
            return false;
        };
        if lease.handle_answer(now, sequence, answer.origin, &unit.answer) {
            self.dirty.insert(scope.clone());
            let canonical = (answer.canonical != *scope).then(|| answer.canonical.clone());
            self.link(now, scope, canonical);
        }
        true
    }

    /// Notes the scope whose capacity the buckets of `scope` use as well.
    fn link(&mut self, now: Instant, scope: &Arc<str>, canonical: Option<Arc<str>>) {
        let Some(lease) = self.scopes.get_mut(scope) else {
            return;
        };
        if lease.canonical == canonical {
            return;
        }
        let before = std::mem::replace(&mut lease.canonical, canonical.clone());
        // Other buckets may lead here as their canonical scope; theirs is not this one's.
        let own = |id: &&u64| {
            let bucket = self.buckets.get(id);
            bucket.is_some_and(|bucket| bucket.scope == *scope)
        };
        let buckets: Vec<u64> = lease.buckets.iter().filter(own).copied().collect();
        for bucket in buckets {
            if let Some(before) = &before {
                self.leave(now, before, bucket);
            }
            if let Some(canonical) = &canonical {
                self.join(now, canonical.clone(), bucket);
            }
        }
    }
}

// === free functions ===

fn of_requests(units: &[UnitAnswer], sequence: u64) -> Option<&UnitAnswer> {
    let mut units = units.iter();
    units.find(|unit| unit.unit == Unit::Requests && unit.sequence == sequence)
}
