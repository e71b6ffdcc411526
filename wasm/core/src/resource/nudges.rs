//! Clients of a resource that should ask again because of what another one did.

use alloc::vec::Vec;

use super::Resource;
use crate::lease::ClientId;
use crate::pool::PoolLink;
use crate::units::Instant;

// === impl Resource ===

impl Resource {
    /// Whether [`Resource::nudges`] may find a client.
    pub(crate) fn is_stirred(&self) -> bool {
        self.allocation.stirred || self.round.is_under_way()
    }

    /// Has all clients looked at.
    pub(crate) fn stir(&mut self) {
        self.allocation.stirred = true;
    }

    /// Whether the client that asked last should ask again at once; asked once for each request.
    pub(crate) fn take_repeats(&mut self) -> bool {
        core::mem::take(&mut self.repeats)
    }

    /// Looks at the next clients, at most `most`, and returns those that should ask again now.
    pub(crate) fn nudges(
        &mut self,
        now: Instant,
        most: usize,
        pool: &mut PoolLink<'_>,
    ) -> Vec<ClientId> {
        if core::mem::take(&mut self.allocation.stirred) {
            self.round.start(self.clients.len());
        }
        self.allocation.report(now, pool);
        let (allocation, mut named) = (&self.allocation, Vec::new());
        let mut look_at = self.look_at;
        self.round.visit(&mut self.clients, most, |key, entry| {
            match allocation.should_refresh_at(now, entry) {
                Some(at) if at <= now => {
                    entry.nudged_at = Some(now);
                    named.push(key.id.clone());
                }
                Some(later) => look_at = Some(look_at.map_or(later, |at| at.min(later))),
                None => {}
            }
        });
        self.look_at = look_at;
        named
    }

    /// Has all clients looked at, if it is time for those that could not be named before.
    pub(super) fn stir_if_due(&mut self, now: Instant) {
        let is_due = self.look_at.take_if(|at| *at <= now).is_some();
        self.allocation.stirred |= is_due;
    }

    /// Has all clients looked at, if enough has been freed since leases summed to `had`.
    pub(super) fn stir_if_freed(&mut self, had: u128) {
        self.allocation.stirred |= self.allocation.frees(had);
    }
}
