//! Terms of a scope in the shared table: its units and its canonical scope, for a worker's memory.

use std::sync::Arc;

use tollgate_core::client::ScopeState;
use tollgate_core::lease::Unit;

use super::scopes::Entry;

/// Units of a scope with a limit, and the scope whose capacity is used as well.
#[derive(Debug)]
pub(super) struct ScopeTerms {
    request_bytes: bool,
    response_bytes: bool,
    concurrency: bool,
    /// If it has changed.
    canonical: Option<Option<Arc<str>>>,
}

// === impl ScopeTerms ===

impl ScopeTerms {
    pub(super) fn of(scope_state: &ScopeState, known: Option<&Arc<str>>) -> Self {
        let canonical = scope_state.canonical();
        Self {
            request_bytes: scope_state.has(Unit::RequestBytes),
            response_bytes: scope_state.has(Unit::ResponseBytes),
            concurrency: scope_state.has(Unit::Concurrency),
            canonical: (canonical != known).then(|| canonical.cloned()),
        }
    }

    /// Whether it has another canonical scope than was known, or none any more.
    pub(super) fn changes_canonical(&self) -> bool {
        self.canonical.is_some()
    }

    /// Brings what the worker remembers of the scope in line.
    pub(super) fn apply(self, entry: &mut Entry) {
        let bare = !self.request_bytes && !self.response_bytes && !self.concurrency;
        let Some(meters) = &mut entry.meters else {
            if !bare || matches!(self.canonical, Some(Some(_))) {
                entry.meters = Some(Box::default());
                self.apply(entry);
            }
            return;
        };
        if let Some(canonical) = self.canonical {
            meters.canonical = canonical;
        }
        keep(&mut meters.request_bytes, self.request_bytes);
        keep(&mut meters.response_bytes, self.response_bytes);
        if meters.permits.is_some() && !self.concurrency {
            entry.permits_lost = entry.permits_lost.wrapping_add(1);
        }
        keep(&mut meters.permits, self.concurrency);
        if bare && meters.canonical.is_none() && !meters.has_queue {
            entry.meters = None;
        }
    }
}

// === free functions ===

fn keep<T: Default>(place: &mut Option<T>, wanted: bool) {
    if wanted {
        place.get_or_insert_default();
    } else {
        *place = None
    }
}
