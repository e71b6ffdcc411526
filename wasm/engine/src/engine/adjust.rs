//! Looks at scopes and changes of their balances outside of any request.

use tollgate_core::units::Tokens;

use super::Engine;
use crate::admission::{Place, Reserved};
use crate::config::RuleId;
use crate::decision::Target;
use crate::host::Host;
use crate::refusal::ScopeLevel;
use crate::shared_table::TableError;

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Returns how a scope stands: its own limit of requests, and then that of the scope whose
    /// capacity its requests use as well, if there is one. Draws nothing and counts no attempt. None if
    /// the scope has no place or the host fails.
    pub fn levels(&mut self, rule: RuleId, key: &str) -> Vec<ScopeLevel> {
        let mut levels = Vec::new();
        let result = self.each_of(rule, key, |engine, target| {
            let now = engine.process.host.now();
            levels.push(engine.admission.level(&mut engine.process, target, now)?);
            Ok(())
        });
        self.complain_of(result);
        levels
    }

    /// Gives tokens back to the buckets of a scope, up to their bursts. Tokens beyond are lost.
    pub fn give_back(&mut self, rule: RuleId, key: &str, tokens: Tokens) {
        let result = self.each_of(rule, key, |engine, target| {
            let now = engine.process.host.now();
            engine
                .admission
                .give_back(&mut engine.process, target, now, tokens)
        });
        self.complain_of(result);
    }

    /// Charges the buckets of a scope for tokens that have been spent already. Tokens beyond those
    /// that they have become a debt, which later requests wait for; debt beyond
    /// [`Policy::max_debt`](tollgate_core::client::Policy::max_debt) is forgiven.
    pub fn charge(&mut self, rule: RuleId, key: &str, tokens: Tokens) {
        let result = self.each_of(rule, key, |engine, target| {
            let process = &mut engine.process;
            engine
                .admission
                .settle_cost(process, target, tokens, Reserved::NONE);
            Ok(())
        });
        self.complain_of(result);
    }

    /// Calls `change` for the bucket of a scope and for that of its canonical scope.
    fn each_of(
        &mut self,
        rule: RuleId,
        key: &str,
        mut change: impl FnMut(&mut Self, Target) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let place = self.admission.place(&mut self.process, rule, key, &[])?;
        let Place::Bucket(target) = place else {
            return Ok(());
        };
        // First, for it brings the terms that name the canonical scope.
        change(self, target)?;
        let canonical = self.admission.canonical_of(&mut self.process, target)?;
        canonical.map_or(Ok(()), |canonical| change(self, canonical))
    }

    fn complain_of(&mut self, result: Result<(), TableError>) {
        if let Err(error) = result {
            self.process.fail(&error);
        }
    }
}
