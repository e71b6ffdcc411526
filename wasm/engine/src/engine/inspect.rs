//! Views of what a worker remembers, for tests.

use tollgate_core::client::Policy;
use tollgate_core::units::Tokens;

use super::Engine;
use crate::admission::Target;
use crate::host::Host;
use crate::rules::RuleId;

/// State of a scope in one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeView {
    /// Tokens that the worker has drawn ahead.
    pub left: Tokens,
    /// Attempts that the shared table does not know of.
    pub attempts: u32,
    /// Whether its attempts are to be counted.
    pub queued: bool,
    /// Whether it remembers the status of its limit.
    pub has_limit_status: bool,
    /// Bytes that have passed in both directions and that no token has paid.
    pub owed: Tokens,
    /// Permits that the worker holds.
    pub permits_held: u32,
    /// Permits of these that streams use.
    pub permits_used: u32,
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Returns what the worker remembers of a scope.
    pub fn scope(&self, rule: RuleId, key: &[u8]) -> Option<ScopeView> {
        let target = self.admission.find(rule, key)?;
        self.admission.view(target)
    }

    /// Settles a scope with the shared table, now.
    ///
    /// # Errors
    /// If the shared table fails; in words.
    pub fn settle_scope(&mut self, rule: RuleId, key: &[u8]) -> Result<(), String> {
        let target = self.admission.find(rule, key);
        let target = target.unwrap_or_else(|| Target::of(rule.0, 0));
        let now = self.process.host.now();
        let settled = self.admission.settle(&mut self.process, target, now);
        settled.map_err(|error| error.to_string())
    }

    /// Returns how many scopes of a rule the worker remembers.
    pub fn scopes_of(&self, rule: RuleId) -> usize {
        self.admission
            .scopes(rule.0)
            .map_or(0, |scopes| scopes.len())
    }

    /// Returns the policy of the rule that `scope` belongs to.
    pub fn policy(&self, scope: &str) -> Policy {
        self.process.rules.policy_of(scope)
    }

    /// Returns how many streams are remembered until they end.
    pub fn streams_open(&self) -> usize {
        self.admission.streams_open()
    }

    /// Returns how many requests wait for their turn.
    pub fn queued(&self) -> usize {
        self.queues.len()
    }

    /// Returns how many requests wait, for a first lease or for their turn.
    pub fn waiting(&self) -> usize {
        self.queues.len_in_all()
    }

    /// Returns how many workers of the process live, as far as this one knows.
    pub fn workers(&self) -> u32 {
        self.process.table.worker_count()
    }

    /// Returns how many permits of all scopes the workers of the process hold together.
    pub fn permits_held(&self) -> u32 {
        let Ok(slots) = self.process.table.slots() else {
            return 0;
        };
        let held = |slot| {
            let slot = slots.look(&self.process.host, slot).unwrap();
            let limiter = slot.and_then(|(_, scope_state)| scope_state.concurrency);
            limiter.map_or(0, |limiter| limiter.held())
        };
        (0..slots.slots_in_all()).map(held).sum()
    }
}
