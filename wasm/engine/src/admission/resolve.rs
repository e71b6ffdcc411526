//! Scopes of a request: those that the worker knows, and new ones, or their rule's overflow.

use std::borrow::Cow;

use tollgate_core::units::Instant;

use super::draw::is_overflow;
use super::{Admission, BucketId, Scopes, Target, entry, is_overflow_key};
use crate::config::{Overflow, RuleId};
use crate::host::{Host, Level};
use crate::process::Process;
use crate::refusal::Denial;
use crate::rules::{OVERFLOW, Rules, scope_id};
use crate::shared_table::TableError;

/// Fruitless searches for a place, beyond those with success, that one round of housekeeping allows.
/// Each takes up to 32 look-ups, and a flood of unseen keys must not make every request pay for them
/// where hardly any finds a place.
const SEARCHES_MAX: u32 = 32;

/// Beginning of the name of a request's key that begins as an overflow scope's; as long as that.
const OVERFLOW_NAME: &str = "~Overflow-";

/// Place of a new scope.
pub(crate) enum Place {
    /// It has a bucket.
    Bucket(Target),
    /// The rule does not apply to it, for want of a slot.
    Exempt,
    /// Its rule refuses it for want of a slot.
    Refused(Denial),
}

// === impl Admission ===

impl Admission {
    /// Finds a scope that this worker knows.
    #[inline]
    pub(crate) fn find(&self, rule: RuleId, key: &[u8]) -> Option<Target> {
        let index = self.tables.get(rule.index())?.find(key)?;
        Some(Target::of(rule.0, index))
    }

    /// Finds or makes a place for a scope of a request that has the targets `others` already. A key that
    /// is an overflow scope's has a name of its own: only the engine may choose such a scope.
    #[cold]
    pub(crate) fn place<H: Host>(
        &mut self,
        process: &mut Process<H>,
        rule: RuleId,
        key: &str,
        others: &[Target],
    ) -> Result<Place, TableError> {
        let key = name_of(key);
        let target = self.remember(process, rule.0, &key, others)?;
        if !self.is_overflow(target) {
            return Ok(Place::Bucket(target));
        }
        Ok(match process.rules.on_overflow(rule.0) {
            Overflow::Share => Place::Bucket(target),
            Overflow::Pass => Place::Exempt,
            Overflow::Refuse => Place::Refused(Denial::overflow(process.host.now())),
        })
    }

    /// Returns the bucket of a target, and that of the canonical scope it leads to, if that is known: a
    /// request's own targets come before its canonical ones, which are found when it is decided on.
    pub(crate) fn buckets(&self, rules: &Rules, target: Target) -> impl Iterator<Item = BucketId> {
        let canonical = self.canonical_bucket(rules, target);
        canonical.into_iter().chain([target.bucket()])
    }

    fn canonical_bucket(&self, rules: &Rules, target: Target) -> Option<BucketId> {
        let entry = self.scopes(target.table)?.get(target.index)?;
        let id = entry.meters.as_ref()?.canonical.as_deref()?;
        let (rule, key) = rules.of_canonical(id)?;
        Some(self.find(rule, key.as_bytes())?.bucket())
    }

    /// Returns the entry of a canonical scope: of the rule whose scope it is, or of the table for those
    /// of no rule, such as groups.
    pub(super) fn canonical_target<H: Host>(
        &mut self,
        process: &mut Process<H>,
        id: &str,
    ) -> Result<Target, TableError> {
        if let Some((rule, key)) = id.split_once('/')
            && let Some(rule) = process.rules.named(rule)
        {
            return self.remember(process, rule.0, key, &[]);
        }
        let rule = process.rules.canonical(process.config.rules.first());
        self.add_tables(process.rules.len());
        self.remember(process, rule.0, id, &[])
    }

    /// Returns the entry of a scope, or that of an overflow scope of its rule if there is no room for it.
    /// The entries of `others` stay where they are, as do those of requests that have been decided on.
    fn remember<H: Host>(
        &mut self,
        process: &mut Process<H>,
        rule: u16,
        key: &str,
        others: &[Target],
    ) -> Result<Target, TableError> {
        if let Some(target) = self.find(RuleId(rule), key.as_bytes()) {
            return Ok(target);
        }
        process.open()?;
        if is_overflow_key(key.as_bytes()) || self.searches_failed >= SEARCHES_MAX {
            return self.share_overflow(process, rule, key);
        }
        if !self.make_room(process.config.max_scopes as usize, others) {
            self.search_failed();
            return self.share_overflow(process, rule, key);
        }
        let now = process.host.now();
        let scope = scope_id(process.rules.name(rule), key);
        let policy = process.rules.policy(rule, &scope);
        let (host, policy) = (&process.host, policy.ok_or(TableError::Gone)?);
        let slot = match process.table.locate(host, now, &policy, (&scope, false)) {
            Ok(slot) => {
                self.searches_failed = self.searches_failed.saturating_sub(1);
                Some(slot)
            }
            // The draw looks for a slot again.
            Err(TableError::Contention(_)) => None,
            Err(TableError::Full) => {
                self.search_failed();
                return self.share_overflow(process, rule, key);
            }
            Err(error) => return Err(error),
        };
        self.insert(rule, key, slot, now)
    }

    /// Makes an entry of a scope that has none.
    fn insert(
        &mut self,
        rule: u16,
        key: &str,
        slot: Option<u32>,
        now: Instant,
    ) -> Result<Target, TableError> {
        let scopes = self.tables.get_mut(usize::from(rule));
        let scopes = scopes.ok_or(TableError::Gone)?;
        let index = scopes.insert(key.as_bytes(), slot, now);
        if let Some(entry) = scopes.get_mut(index) {
            entry.born = self.rounds;
        }
        Ok(Target::of(rule, index))
    }

    /// Makes room for an entry: the table with the most gives one up, or else any that has one to give.
    fn make_room(&mut self, max: usize, others: &[Target]) -> bool {
        let sizes = self.tables.iter().map(Scopes::len);
        if sizes.clone().sum::<usize>() < max {
            return true;
        }
        let largest = (0..).zip(sizes).max_by_key(|(_, len)| *len);
        let first = largest.map(|(table, _)| table);
        let all = 0..u16::try_from(self.tables.len()).unwrap_or(u16::MAX);
        first.into_iter().chain(all).any(|table| {
            let stays = |index| others.iter().any(|other| other.bucket() == (table, index));
            let scopes = self.tables.get_mut(usize::from(table));
            scopes.is_some_and(|scopes| scopes.make_room(stays))
        })
    }

    /// Returns the entry of the overflow scope that a scope shares with others, and counts its request.
    fn share_overflow<H: Host>(
        &mut self,
        process: &mut Process<H>,
        rule: u16,
        key: &str,
    ) -> Result<Target, TableError> {
        process.stats.overflow.add_one();
        self.overflow(process, rule, key)
    }

    /// Returns the entry of the overflow scope that a scope shares with others for want of a slot.
    pub(super) fn overflow<H: Host>(
        &mut self,
        process: &Process<H>,
        rule: u16,
        key: &str,
    ) -> Result<Target, TableError> {
        let name = process.rules.name(rule);
        if !self.overflow_logged {
            self.overflow_logged = true;
            let message = format!(
                "tollgate: more scopes in use than max_scopes: some share {name}/{OVERFLOW}* (logged once)"
            );
            process.host.log(Level::Warn, &message);
        }
        let number = process.table.slots()?.overflow_of(&scope_id(name, key));
        let key = format!("{OVERFLOW}{number}");
        let scopes = self.scopes(rule).ok_or(TableError::Gone)?;
        match scopes.find(key.as_bytes()) {
            Some(index) => Ok(Target::of(rule, index)),
            None => self.insert(rule, &key, None, process.host.now()),
        }
    }

    /// Returns whether an entry has a slot or may still look for one in this round.
    pub(super) fn may_search(&mut self, target: Target) -> bool {
        let entry = entry(&mut self.tables, target);
        let has_slot = entry.is_some_and(|entry| entry.slot.is_some() || is_overflow(entry));
        has_slot || self.searches_failed < SEARCHES_MAX
    }

    /// Counts a fruitless search for a slot against this round.
    pub(super) fn search_failed(&mut self) {
        self.searches_failed = self.searches_failed.saturating_add(1);
    }

    /// Returns whether `target` is its rule's overflow.
    pub(super) fn is_overflow(&mut self, target: Target) -> bool {
        entry(&mut self.tables, target).is_some_and(|entry| is_overflow(entry))
    }
}

// === free functions ===

/// Returns the name under which a request's key is known: no longer than the key, and no overflow
/// scope's.
fn name_of(key: &str) -> Cow<'_, str> {
    match key.strip_prefix(OVERFLOW) {
        Some(rest) => format!("{OVERFLOW_NAME}{rest}").into(),
        None => key.into(),
    }
}
