//! Total cost of a request, where that is known only at its end: tokens of a language model, rows of a
//! query, seconds of a job.
//!
//! The obvious way is to read a header of the response in its own callback. That costs an entry into
//! the VM for each stream, whether its rule asks for it or not. A proxy's own filters put headers and
//! parts of bodies into the stream's metadata, which can still be read when the stream has ended. The
//! request takes its tokens at the beginning like any other, so none passes while there is a debt;
//! the remainder becomes a debt that is bounded as that of bytes is.

use tollgate_core::units::Tokens;

use super::meters::smoothed;
use super::{Admission, Request, Target, entry};
use crate::host::Host;
use crate::process::Process;
use crate::rules::Rules;
use crate::shared_table::TableError;

impl Admission {
    /// Counts a refused request as much as it would usually have cost, for so much is wanted.
    #[cold]
    pub(super) fn count_final_cost(&mut self, rules: &Rules, request: &Request) {
        for (index, target) in request.targets().iter().enumerate() {
            if !rules.has_final_cost(target.rule) {
                continue;
            }
            let usual = entry(&mut self.tables, *target).map_or(0, |entry| entry.usual_cost);
            let counted = request.attempts_at(Some(index));
            self.count_attempts_of(*target, usual.saturating_sub(counted));
        }
    }

    /// Charges the cost of a stream that has ended beyond what it has `paid`.
    pub(crate) fn charge_final_cost<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        cost: Tokens,
        paid: Tokens,
    ) {
        let Some(entry) = entry(&mut self.tables, target) else {
            return;
        };
        entry.usual_cost = saturated(smoothed(entry.usual_cost.into(), cost.whole()));
        let more = cost.saturating_sub(paid);
        // The worker's own tokens first: otherwise they would let requests pass while there is a debt.
        let from_cache = entry.cache.left().min(more);
        entry.cache.take(from_cache);
        self.count_attempts_of(target, saturated(more.whole()));
        let owed = more.saturating_sub(from_cache);
        if owed > Tokens::ZERO
            && let Err(error) = self.owe(process, target, owed)
        {
            process.fail(&error);
        }
    }

    /// Takes tokens from the process's bucket, which may then owe them.
    fn owe<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        owed: Tokens,
    ) -> Result<(), TableError> {
        let now = process.host.now();
        let attempts = entry(&mut self.tables, target).map_or(0, |entry| entry.attempts);
        let changed = self.change_scope(process, target, now, |scope_state, policy| {
            scope_state.requests.pay(now, policy, attempts.into(), owed);
            scope_state.requests.is_drawing()
        })?;
        // Tokens that nobody has drawn are asked for at once.
        if changed.due_changed && changed.result {
            self.ask_soon(target, changed.slot);
        }
        if let Some(entry) = entry(&mut self.tables, target) {
            entry.attempts = entry.attempts.saturating_sub(attempts);
            entry.seen = now;
            // The time of the last refusal does not include this debt.
            entry.denial = None;
        }
        Ok(())
    }
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
