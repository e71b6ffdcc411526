//! Which scope a rule gives a request: its key's, a default one, none, or a refusal.

use super::{BoundRule, Target, Worker};
use crate::config::{Missing, Overflow};
use crate::host::Host;
use crate::key::{self, Found, Key};
use crate::ledger::LedgerError;
use crate::refusal::Refusal;
use crate::scopes::Denial;

/// What a rule makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// It counts for this scope.
    Scope(Target),
    /// The rule does not apply.
    Skipped,
    /// It is turned away before any bucket is looked at, unless the rule only pretends to.
    Refused(Refusal),
}

impl<H: Host> Worker<H> {
    /// What `rule` makes of the request at hand.
    #[inline]
    pub(super) fn resolve(&mut self, rule: &BoundRule) -> Result<Resolved, LedgerError> {
        if let Some(when) = &rule.when
            && !when.holds(&self.host)?
        {
            return Ok(Resolved::Skipped);
        }
        // The most common key by far goes straight from the host to the map.
        if let Key::Header(name) = &rule.key {
            let value = self.host.request_header(name)?;
            return self.place(rule, value.as_deref().unwrap_or_default());
        }
        match rule.key.read(&self.host)? {
            Found::Value(value) => self.place(rule, &value),
            Found::Missing => self.without_key(rule, false),
            Found::Malformed => self.without_key(rule, true),
        }
    }

    #[inline]
    fn place(&mut self, rule: &BoundRule, value: &[u8]) -> Result<Resolved, LedgerError> {
        let key = key::trimmed(value);
        let table = rule.table;
        match self.scopes(table).and_then(|scopes| scopes.find(key)) {
            Some(index) => Ok(Resolved::Scope(Target::of(table, index))),
            None => self.place_stranger(rule, key),
        }
    }

    #[cold]
    fn place_stranger(&mut self, rule: &BoundRule, key: &[u8]) -> Result<Resolved, LedgerError> {
        match key::parsed(key) {
            Some(key) => self.place_new(rule.table, key),
            None => self.without_key(rule, !key.is_empty()),
        }
    }

    fn place_new(&mut self, table: u16, key: &str) -> Result<Resolved, LedgerError> {
        let target = self.remember(table, key)?;
        if !self.is_overflow(target) {
            return Ok(Resolved::Scope(target));
        }
        let place = self.tables.get(usize::from(table));
        match place.map_or(Overflow::Share, |table| table.on_overflow) {
            Overflow::Share => Ok(Resolved::Scope(target)),
            Overflow::Pass => Ok(Resolved::Skipped),
            Overflow::Refuse => {
                let denial = Denial::overflow(self.host.now());
                let rule = usize::from(table);
                let by = rule;
                Ok(Resolved::Refused(Refusal::Denied { rule, by, denial }))
            }
        }
    }

    fn without_key(&mut self, rule: &BoundRule, malformed: bool) -> Result<Resolved, LedgerError> {
        let policy = match malformed {
            true => &rule.malformed,
            false => &rule.missing,
        };
        let table = usize::from(rule.table);
        Ok(match (policy, malformed) {
            (Missing::Skip, _) => Resolved::Skipped,
            (Missing::Default(key), _) => return self.place_new(rule.table, key),
            (Missing::Deny, true) => Resolved::Refused(Refusal::Malformed { rule: table }),
            (Missing::Deny, false) => Resolved::Refused(Refusal::Missing { rule: table }),
        })
    }
}
