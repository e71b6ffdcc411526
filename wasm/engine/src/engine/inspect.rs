//! Views of what a worker remembers, for the simulator's checks.

use tollgate_core::units::{Instant, Tokens};

use super::Engine;
use crate::admission::Meters;
use crate::config::RuleId;
use crate::host::Host;

/// State of a scope in one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeView {
    /// Expiry of the lease under which the worker drew its last tokens.
    pub lease_expiry: Option<Instant>,
    /// Bytes that have passed in both directions and that no token has paid.
    pub owed: Tokens,
    /// Permits that the worker holds.
    pub permits_held: u32,
    /// Permits of these that streams use.
    pub permits_used: u32,
}

// === impl ScopeView ===

impl ScopeView {
    fn of(meters: &Meters) -> Self {
        let bytes = [&meters.request_bytes, &meters.response_bytes];
        let owed = bytes.into_iter().flatten().map(|meter| meter.owed);
        let permits = meters.permits.as_ref();
        Self {
            lease_expiry: None,
            owed: owed.fold(Tokens::ZERO, Tokens::saturating_add),
            permits_held: permits.map_or(0, |permits| permits.held),
            permits_used: permits.map_or(0, |permits| permits.in_use),
        }
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Returns what the worker remembers of a scope.
    pub fn scope(&self, rule: RuleId, key: &[u8]) -> Option<ScopeView> {
        let entry = self.admission.entry_of(rule, key)?;
        let meters = entry.meters.as_deref().map(ScopeView::of);
        Some(ScopeView {
            lease_expiry: entry.expiry,
            ..meters.unwrap_or_default()
        })
    }

    /// Returns how many requests wait, for a first lease or for their turn.
    pub fn waiting(&self) -> usize {
        self.queues.len_in_all()
    }
}
