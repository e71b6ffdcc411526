//! What a request has cost in all, where that is known only at its end: tokens of a language model,
//! rows of a query, seconds of a job.
//!
//! The obvious way is to read a header of the response in its own callback. That costs an entry into
//! the VM for each stream, whether its rule asks for it or not. Envoy's own filters put headers, and
//! what stands in bodies, into the stream's metadata, and Envoy still says what is in it when the
//! stream has ended. The request takes its tokens at the beginning as any other, so none passes
//! while there is a debt; the rest becomes a debt that is bounded as that of bytes is.

use tollgate_core::units::Tokens;

use super::{Engine, Request, Target, entry};
use crate::host::Host;
use crate::meters::smoothed;
use crate::shared_table::TableError;

impl<H: Host> Engine<H> {
    /// Whether what a request costs at `target` is known only at its end.
    pub(super) fn is_priced_late(&self, target: Target) -> bool {
        let table = self.tables.get(usize::from(target.rule));
        table.is_some_and(|table| table.config.final_cost)
    }

    /// Counts a refused request for what it would have turned out to cost, for so much is wanted.
    #[cold]
    pub(super) fn count_what_it_would_cost(&mut self, targets: &Request) {
        let counted = targets.attempts();
        for target in targets.as_slice() {
            if !self.is_priced_late(*target) {
                continue;
            }
            let usual = entry(&mut self.tables, *target).map_or(0, |entry| entry.usual_cost);
            self.count_attempts_of(*target, usual.saturating_sub(counted));
        }
    }

    /// Charges what a stream that has ended has cost beyond what it has `paid`.
    pub(super) fn charge_final_cost(&mut self, target: Target, cost: Tokens, paid: Tokens) {
        let Some(entry) = entry(&mut self.tables, target) else {
            return;
        };
        entry.usual_cost = saturated(smoothed(entry.usual_cost.into(), cost.whole()));
        let more = cost.saturating_sub(paid);
        // The worker's own tokens first: what is left of them would pass while there is a debt.
        let from_cache = entry.cache.left().min(more);
        entry.cache.take(from_cache);
        self.count_attempts_of(target, saturated(more.whole()));
        let owed = more.saturating_sub(from_cache);
        if owed > Tokens::ZERO
            && let Err(error) = self.owe(target, owed)
        {
            self.complain(&error);
        }
    }

    /// Takes what no token cache has paid from the process's bucket, which may then owe it.
    fn owe(&mut self, target: Target, owed: Tokens) -> Result<(), TableError> {
        let now = self.host.now();
        let attempts = entry(&mut self.tables, target).map_or(0, |entry| entry.attempts);
        let (due_changed, slot) = self.with_scope_state(target, now, |scope_state, policy| {
            let due = scope_state.due();
            scope_state.requests.pay(now, policy, attempts.into(), owed);
            scope_state.due() != due
        })?;
        if due_changed {
            self.dirty.add(slot);
        }
        if let Some(entry) = entry(&mut self.tables, target) {
            entry.attempts = entry.attempts.saturating_sub(attempts);
            entry.seen = now;
            // What the last refusal said of the time did not know of this.
            entry.denial = None;
        }
        Ok(())
    }
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
