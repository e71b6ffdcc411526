//! Synchronization of a process's leases with the coordinators: when each slot is due, calls and their
//! answers, nudges, and conditions that the operator is told of.
//!
//! One worker of the process, the sync leader, asks for the slots that are due. Every worker asks for
//! the scopes that it sees first.

use tollgate_core::client::LeaseState;
use tollgate_core::units::Instant;

use crate::admission::SlotMessages;
use crate::config::EngineConfig;
use crate::host::{Host, Level};
use crate::process::Process;
use crate::shared_table::{TableError, or_later};
use crate::stats::ProcessStats;

mod answers;
mod call_budget;
mod calls;
mod conditions;
mod failure;
mod nudges;
mod schedule;
mod upstreams;
mod watch;

use call_budget::CallBudget;
use calls::{Calls, Reason, ScopeRequest};
use conditions::Conditions;
use nudges::Nudges;
use schedule::Schedule;
use upstreams::{Upstream, Upstreams};
use watch::Watch;

/// Slots that are looked at in one round after the leader lock was taken.
const SCAN_PER_ROUND: u32 = 500;
/// Slots that are asked for in one round.
const REQUESTS_PER_ROUND: usize = 1000;

/// Lease synchronization of one worker.
#[derive(Debug)]
pub(crate) struct LeaseSync {
    upstreams: Upstreams,
    calls: Calls,
    conditions: Conditions,
    /// Deadlines of all slots; only while this worker leads.
    schedule: Option<Schedule>,
    watch: Watch,
    nudges: Nudges,
    /// Warning about the configuration, which the sync leader gives.
    warning: Option<String>,
    epoch_warnings: answers::EpochWarnings,
    ended: EndedCalls,
}

/// Slots of calls that have ended since the last look.
#[derive(Debug, Default)]
pub(crate) struct EndedCalls {
    /// Those with an answer, which may be a higher limit.
    pub(crate) answered: Vec<u32>,
    /// Those without.
    pub(crate) failed: Vec<u32>,
}

// === impl LeaseSync ===

impl LeaseSync {
    /// Returns the synchronization with the coordinators of `config`.
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            upstreams: Upstreams::new(&config.coordinator, &config.shards),
            calls: Calls::default(),
            conditions: Conditions::default(),
            schedule: None,
            watch: Watch::default(),
            nudges: Nudges::default(),
            warning: None,
            epoch_warnings: answers::EpochWarnings::default(),
            ended: EndedCalls::default(),
        }
    }

    /// Takes over the coordinators of a configuration.
    pub(crate) fn configure(&mut self, config: &EngineConfig) {
        self.upstreams = Upstreams::new(&config.coordinator, &config.shards);
        self.conditions = Conditions::default();
    }

    /// Leaves a warning to the worker of the process that leads.
    pub(crate) fn warn_once(&mut self, warning: String) {
        self.warning = Some(warning);
    }

    /// Returns the slots of calls that have ended since the last look.
    pub(crate) fn take_ended(&mut self) -> EndedCalls {
        core::mem::take(&mut self.ended)
    }

    /// Returns for how many scopes a first lease may be asked for now.
    pub(crate) fn first_requests_left(&self) -> usize {
        self.calls
            .budget(Reason::First, &self.upstreams)
            .left(Upstream::ANY)
    }

    /// Sends messages for scopes whose first lease is awaited, in as few calls as it takes. Any
    /// coordinator is asked, also for a scope that returns: the cluster of a shard that does not
    /// answer would cost it the lease.
    pub(crate) fn ask_first<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        all: Vec<SlotMessages>,
    ) {
        let mut requests = Vec::new();
        let mut releases = Vec::new();
        for messages in all {
            self.reschedule(process, messages.slot, messages.due, LeaseState::Pending);
            requests.extend(ScopeRequest::new(Upstream::ANY, messages, &mut releases));
        }
        self.refresh(process, now, Reason::First, requests);
        self.release(process, &releases);
    }

    /// Releases the leases of scopes that have lost their slots to others.
    pub(crate) fn release_of_lost_slots<H: Host>(&self, process: &mut Process<H>) {
        let releases = process.table.take_releases();
        self.release(process, &releases);
    }

    /// Takes, keeps or leaves the leader lock, and asks for the slots that are due while it has it.
    pub(crate) fn lead<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
    ) -> Result<(), TableError> {
        let leads = process
            .table
            .lead(&process.host, now, process.identity.worker)?;
        if let Some(warning) = self.warning.take().filter(|_| leads) {
            process.host.log(Level::Warn, &warning);
        }
        if !leads {
            self.schedule = None;
            self.nudges.clear();
            self.conditions = Conditions::default();
            return process.table.hand_dirty_over(&process.host);
        }
        let schedule = self.schedule.get_or_insert_default();
        schedule.take(process.table.take_dirty(), now);
        or_later(
            process
                .table
                .drain_dirty(&process.host)
                .map(|dirty| schedule.take(dirty, now)),
        )?;
        schedule.scan(&process.host, process.table.slots()?, now)?;
        process.table.read_heartbeats(&process.host, now)?;
        self.ask_named_before(process, now);
        self.ask(process, now, Reason::Due, |schedule| schedule.pop(now));
        or_later(self.tell_conditions(process, now))
    }

    /// Returns how the process stands, if this worker leads.
    pub(crate) fn process_stats<H: Host>(&self, process: &Process<H>) -> Option<ProcessStats> {
        let schedule = self.schedule.as_ref()?;
        let levels = || process.table.levels();
        let own = process.host.memory_bytes();
        Some(ProcessStats {
            safe_mode: schedule.without_lease(),
            missing_clusters: self.conditions.missing_count(),
            slots_used: schedule.used(),
            watch_streams: self.watch.open_count(),
            waiting: levels().map(|levels| u64::from(levels.waiting)).sum(),
            in_flight: levels().map(|levels| u64::from(levels.in_flight)).sum(),
            vm_memory_bytes: levels().fold(own, |most, levels| most.max(levels.memory)),
        })
    }

    /// Notes when a slot is due next, and its state: in the schedule, or in the dirty queue for the
    /// sync leader, which looks at the slot again.
    fn reschedule<H: Host>(
        &mut self,
        process: &mut Process<H>,
        slot: u32,
        due: Option<Instant>,
        state: LeaseState,
    ) {
        match &mut self.schedule {
            Some(schedule) => {
                schedule.set_due(slot, due);
                schedule.set_state(slot, state);
            }
            None => process.table.note_dirty(slot),
        }
    }

    /// Asks for slots that are due, of which `next` gives one after the other, as far as the budget
    /// goes.
    fn ask<H: Host>(
        &mut self,
        process: &mut Process<H>,
        now: Instant,
        reason: Reason,
        mut next: impl FnMut(&mut Schedule) -> Option<u32>,
    ) {
        let living: Vec<u64> = process.table.living().collect();
        let mut requests = Vec::new();
        let mut releases = Vec::new();
        let mut budget = self.calls.budget(reason, &self.upstreams);
        for _ in 0..REQUESTS_PER_ROUND {
            let schedule = self.schedule.as_mut().filter(|_| !budget.is_spent());
            let Some(slot) = schedule.and_then(&mut next) else {
                break;
            };
            match self.ask_slot(process, now, slot, (&living, &budget)) {
                Ok((to, state, messages)) => {
                    self.reschedule(process, slot, messages.due, state);
                    let request = ScopeRequest::new(to, messages, &mut releases);
                    if request.is_some() {
                        budget.take(to);
                    }
                    requests.extend(request);
                }
                Err(TableError::Gone) => self.note_vacant(slot),
                // A slot that was taken out must be looked at again.
                Err(error) => {
                    if let Some(schedule) = &mut self.schedule {
                        schedule.set_due(slot, Some(now));
                    }
                    process.fail(&error);
                    break;
                }
            }
        }
        self.refresh(process, now, reason, requests);
        self.release(process, &releases);
    }

    /// Returns the messages of a slot, if the budget allows, with their upstream and the slot's state.
    fn ask_slot<H: Host>(
        &self,
        process: &Process<H>,
        now: Instant,
        slot: u32,
        (living, budget): (&[u64], &CallBudget),
    ) -> Result<(Upstream, LeaseState, SlotMessages), TableError> {
        let slots = process.table.slots()?;
        slots.update_any(&process.host, slot, |scope, scope_state| {
            if let Some(limiter) = &mut scope_state.concurrency {
                limiter.sweep(now, living);
            }
            let to = self.upstreams.of(scope_state.shard());
            let (messages, due) = if budget.has(to) {
                let policy = process.rules.policy_of(scope);
                (scope_state.ask(now, &policy), scope_state.due())
            } else {
                (Vec::new(), Some(now.saturating_add(schedule::LOOK_AGAIN)))
            };
            let messages = SlotMessages {
                slot,
                scope: scope.into(),
                messages,
                due,
            };
            (to, scope_state.state(now), messages)
        })
    }

    fn note_vacant(&mut self, slot: u32) {
        if let Some(schedule) = &mut self.schedule {
            schedule.set_state(slot, LeaseState::Idle);
        }
    }
}
