//! A look at what a worker remembers, for tests.

use tollgate_core::client::Policy;
use tollgate_core::units::Tokens;

use super::{Engine, RuleId, Target};
use crate::host::Host;

/// State of a scope in one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeView {
    /// Tokens that the worker has drawn ahead.
    pub left: Tokens,
    /// Attempts that the shared table does not know of.
    pub attempts: u32,
    /// Whether its attempts are to be counted.
    pub queued: bool,
    /// Whether it remembers how its bucket stands.
    pub has_limit_status: bool,
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Returns what the worker remembers of a scope.
    pub fn scope(&self, rule: RuleId, key: &[u8]) -> Option<ScopeView> {
        let scopes = self.scopes(rule.0)?;
        let entry = scopes.get(scopes.find(key)?)?;
        Some(ScopeView {
            left: entry.cache.left(),
            attempts: entry.attempts,
            queued: entry.queued,
            has_limit_status: entry.limit_status.is_some(),
        })
    }

    /// Settles a scope with the shared table, now.
    ///
    /// # Errors
    /// If the shared table fails; in words.
    pub fn settle_scope(&mut self, rule: RuleId, key: &[u8]) -> Result<(), String> {
        let index = self.scopes(rule.0).and_then(|scopes| scopes.find(key));
        let target = Target::of(rule.0, index.unwrap_or_default());
        let now = self.host.now();
        self.settle(target, now).map_err(|error| error.to_string())
    }

    /// Returns how many scopes of a rule the worker remembers.
    pub fn scopes_of(&self, rule: RuleId) -> usize {
        self.scopes(rule.0).map_or(0, |scopes| scopes.len())
    }

    /// Returns the policy of the rule that `scope` belongs to.
    pub fn policy(&self, scope: &str) -> Policy {
        self.policy_of(scope)
    }

    /// Returns how many streams are remembered until they end.
    pub fn streams_open(&self) -> usize {
        self.watched()
    }

    /// Returns how many requests wait for their turn.
    pub fn queued(&self) -> usize {
        self.lines.len()
    }

    /// Returns how many workers of the process live, as far as this one knows.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// Returns how many permits of all scopes the workers of the process hold together.
    pub fn permits_held(&self) -> u32 {
        let Some(shared_table) = &self.shared_table else {
            return 0;
        };
        let held = |slot| {
            let slot = shared_table.look(&self.host, slot).unwrap();
            let gauge = slot.and_then(|(_, scope_state)| scope_state.concurrency);
            gauge.map_or(0, |gauge| gauge.held())
        };
        (0..shared_table.slots_in_all()).map(held).sum()
    }
}
