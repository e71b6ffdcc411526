//! Nudges: what a coordinator names is asked for at once, without regard to its interval. What is named
//! again and again has the interval of a demand that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate_core::client::NudgeEffect;
use tollgate_core::early::EarlyAllowance;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_client::NUDGED;
use tollgate_core::units::Instant;

use super::calls::{Reason, ScopeRequest};
use super::{LeaseSync, REQUESTS_PER_ROUND};
use crate::host::Host;
use crate::process::Process;
use crate::shared_table::TableError;

/// Resources by slot and unit, with their scopes.
pub(super) type Named = BTreeMap<(u32, Unit), Arc<str>>;

/// Nudges of one worker that have an effect later. There is no more than one for each unit of each
/// slot.
#[derive(Debug, Default)]
pub(super) struct Nudges {
    /// Those that came while an answer was awaited, or too soon after another.
    waiting: Named,
    /// Allowances of nudged requests, by slot; those that are whole are forgotten.
    early: BTreeMap<u32, EarlyAllowance>,
}

// === impl Nudges ===

impl Nudges {
    /// Forgets all, as when another worker leads.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn is_too_soon(&self, now: Instant, slot: u32) -> bool {
        let early = self.early.get(&slot);
        early.is_some_and(|early| early.next_at(now, NUDGED) > now)
    }

    /// Takes out the nudges of the slots of `requests`.
    fn take_of(&mut self, requests: &[ScopeRequest]) -> Named {
        if self.waiting.is_empty() {
            return Named::new();
        }
        let slots: BTreeSet<u32> = requests.iter().map(|request| request.slot).collect();
        let waiting = core::mem::take(&mut self.waiting).into_iter();
        let (taken, left) = waiting.partition(|((slot, _), _)| slots.contains(slot));
        self.waiting = left;
        taken
    }

    /// Takes out as many nudges as are looked at in one round.
    fn take_round(&mut self, now: Instant) -> Named {
        self.early.retain(|_, early| !early.is_whole(now));
        let last = self.waiting.keys().nth(REQUESTS_PER_ROUND).copied();
        let left = last.map(|last| self.waiting.split_off(&last));
        core::mem::replace(&mut self.waiting, left.unwrap_or_default())
    }
}

// === impl LeaseSync ===

impl LeaseSync {
    /// Asks for what a coordinator has named. A resource that the process does not use is ignored.
    pub(crate) fn handle_nudge<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        resources: Vec<ResourceId>,
    ) {
        let mut named = Named::new();
        for ResourceId { scope, unit } in resources {
            process.stats.nudges.add_one();
            let Ok(slots) = process.table.slots() else {
                return;
            };
            match slots.find(&process.host, &scope) {
                Ok(Some(slot)) => {
                    named.insert((slot, unit), scope);
                }
                Ok(None) => {}
                Err(error) => process.fail(&error),
            }
        }
        self.ask_named(process, now, named);
    }

    /// Asks again for what was named while the answers to `requests` were awaited.
    pub(super) fn ask_named_meanwhile<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        requests: &[ScopeRequest],
    ) {
        let named = self.nudges.take_of(requests);
        self.ask_named(process, now, named);
    }

    /// Forgets what was named while the answers to `requests` were awaited: none has come, and the next
    /// request has its time.
    pub(super) fn forget_named_meanwhile(&mut self, requests: &[ScopeRequest]) {
        self.nudges.take_of(requests);
    }

    /// Asks for what was named too soon, or while another worker awaited the answer.
    pub(super) fn ask_named_before<H: Host>(&mut self, process: &mut Process<H>, now: Instant) {
        let named = self.nudges.take_round(now);
        self.ask_named(process, now, named);
    }

    /// Returns how many nudges have an effect later.
    #[cfg(test)]
    pub(crate) fn nudges_kept(&self) -> usize {
        self.nudges.waiting.len()
    }

    fn ask_named<H: Host>(&mut self, process: &mut Process<H>, now: Instant, named: Named) {
        let mut due = BTreeSet::new();
        for ((slot, unit), scope) in named {
            // The units of a slot that are named together are asked for together.
            if self.nudges.is_too_soon(now, slot) {
                self.nudges.waiting.insert((slot, unit), scope);
                continue;
            }
            match nudge(process, now, (slot, unit), &scope) {
                Ok(NudgeEffect::Due) => {
                    due.insert(slot);
                }
                Ok(NudgeEffect::Awaited) | Err(TableError::Contention(_)) => {
                    self.nudges.waiting.insert((slot, unit), scope);
                }
                Ok(NudgeEffect::Ignored) | Err(TableError::Gone) => {}
                Err(error) => process.fail(&error),
            }
        }
        for slot in &due {
            let early = self.nudges.early.entry(*slot).or_default();
            early.take(now, NUDGED, 1);
            if let Some(schedule) = &mut self.schedule {
                // For the next round, if the budget does not suffice.
                schedule.set_due(*slot, Some(now));
            }
        }
        let mut due = due.into_iter();
        self.ask(process, now, Reason::Nudged, |_| due.next());
    }
}

// === free functions ===

fn nudge<H: Host>(
    process: &Process<H>,
    now: Instant,
    (slot, unit): (u32, Unit),
    scope: &str,
) -> Result<NudgeEffect, TableError> {
    let slots = process.table.slots()?;
    slots.update(&process.host, slot, scope, |scope_state| {
        scope_state.nudge(now, unit)
    })
}
