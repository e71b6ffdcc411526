//! The scopes of a request: those that the worker knows, new ones, and refusals for want of a key.

use super::{Engine, Request, RuleId, Target};
use crate::config::Overflow;
use crate::host::Host;
use crate::refusal::{Denial, Refusal, Verdict};
use crate::shared_table::TableError;

impl<H: Host> Engine<H> {
    /// Adds the scope of `key`, the second part of its id, to what a request needs. False if this
    /// worker does not know the scope: then [`Engine::add_new`] does.
    #[inline]
    pub fn add(&mut self, request: &mut Request, rule: RuleId, key: &[u8]) -> bool {
        let Some(table) = self.tables.get(rule.index()) else {
            return false;
        };
        let Some(index) = table.scopes.find(key) else {
            return false;
        };
        request.priced_late |= table.config.final_cost;
        request.push(Target::of(rule.0, index));
        true
    }

    /// Adds a scope that this worker may see for the first time. The key is printable, and not longer
    /// than a scope id allows.
    ///
    /// # Errors
    /// What is decided on the request at once, if the rule refuses it for want of a slot, or the host
    /// fails.
    #[cold]
    pub fn add_new(
        &mut self,
        request: &mut Request,
        rule: RuleId,
        key: &str,
    ) -> Result<(), Verdict> {
        match self.place_new(rule, key) {
            Ok(Some(target)) => {
                request.priced_late |= self.is_priced_late(target);
                request.push(target);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(Refused::Overflow(denial)) => {
                let by = rule;
                self.refuse(request, Refusal::Denied { rule, by, denial })
            }
            Err(Refused::SharedTable(error)) => Err(self.complain(&error)),
        }
    }

    /// Refuses a request before any bucket is looked at, such as for want of a key, unless the rule is
    /// in shadow mode.
    ///
    /// # Errors
    /// The refusal, if it has any effect.
    #[cold]
    pub fn refuse(&mut self, request: &mut Request, refusal: Refusal) -> Result<(), Verdict> {
        match self.spares(refusal, request.stream) {
            true => {
                request.shadowed = Some(refusal);
                Ok(())
            }
            false => Err(Verdict::Refuse(refusal)),
        }
    }

    fn place_new(&mut self, rule: RuleId, key: &str) -> Result<Option<Target>, Refused> {
        let target = self.remember(rule.0, key).map_err(Refused::SharedTable)?;
        if !self.is_overflow(target) {
            return Ok(Some(target));
        }
        let table = self.tables.get(rule.index());
        match table.map_or(Overflow::Share, |table| table.config.on_overflow) {
            Overflow::Share => Ok(Some(target)),
            Overflow::Pass => Ok(None),
            Overflow::Refuse => Err(Refused::Overflow(Denial::overflow(self.host.now()))),
        }
    }
}

/// Reason that a scope cannot be added.
enum Refused {
    /// There is no slot for it, and its rule refuses it then.
    Overflow(Denial),
    SharedTable(TableError),
}
