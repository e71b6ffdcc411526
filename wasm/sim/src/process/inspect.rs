//! Looks of a process at its workers' observations, for laws.

use std::time::Duration;

use tollgate_core::client::{LeaseState, ScopeState};
use tollgate_core::lease::ResourceId;
use tollgate_core::units::Instant;
use tollgate_engine::SharedMemory;
use tollgate_engine::codec::decode_slot;

use super::Process;
use super::observations::{ObservedResource, Spent};
use super::view::{ClientState, ClientView};
use crate::scopes::ScopeTable;
use crate::simulation::reached::Case;

/// The most that an answer to a waiting request may be late beside two ticks.
const LATE: Duration = Duration::from_millis(1);

// === impl Process ===

impl Process {
    /// Collects the workers' observations, if there are any.
    pub(super) fn look(&mut self, local: Instant) {
        let Self {
            workers, clients, ..
        } = self;
        workers.observe(|seen| {
            let memory = workers.memory.borrow();
            for (client, seen) in clients.iter_mut().zip(&mut seen.resources) {
                client.take(seen, &memory);
                client.limit_is_all = limit_is_all(local, seen, &memory, &workers.scopes);
            }
            self.broken.clone_from(&seen.broken);
            self.tally = seen.tally;
            (self.trapped_at, self.missed_at) = (seen.trapped_at, seen.missed_at);
        });
    }

    /// Begins to count anew what is admitted between two events.
    pub(crate) fn forget_admitted(&mut self) {
        for client in &mut self.clients {
            client.spent = Spent::default();
        }
    }

    /// Returns views of the process, at the place `envoy`, as client of all inspected resources.
    pub(crate) fn views<'a>(
        &'a self,
        now: Instant,
        (envoy, name): (usize, &'a str),
    ) -> impl Iterator<Item = ClientView<'a>> {
        let clients = self.clients.iter().enumerate();
        clients.map(move |(place, client)| ClientView {
            envoy,
            name,
            now,
            process: self,
            client,
            place,
        })
    }

    /// Returns the bytes that have passed at workers and that the shared table does not know of.
    pub(super) fn owed(&self, resource: &ResourceId) -> f64 {
        let mut owed = 0.0;
        let scopes = &self.workers.scopes;
        if let Some(number) = scopes.find(&resource.scope) {
            self.workers.each(|worker| {
                owed += super::view::tokens(worker.scope(scopes, number).owed);
            });
        }
        owed
    }

    /// Checks that engines know the requests that wait, that none waits for longer than it may, and
    /// that each wait ends once.
    pub(super) fn check(&self, now: Instant) -> Result<(), String> {
        let kind = self.kind();
        let (local, mut waiting, mut broken) = (self.clock.at(now), 0, None);
        let most = kind.wait_max();
        let late = kind.config.tick + kind.resolution + LATE;
        self.workers.each(|worker| {
            let (known, waits) = (worker.known_waiting(), worker.waiting().len());
            waiting += waits as u64;
            if known != waits {
                broken = Some(format!("{waits} wait, the engine knows of {known}"));
            }
            let times = worker.waiting().filter_map(|stream| stream.waits_since);
            let mut times = times.map(|since| local.saturating_since(since));
            if let Some(time) = times.find(|time| *time > most + late) {
                broken = Some(format!("a request waits for {time:?}, not {most:?}"));
            }
        });
        if let Some(broken) = broken {
            return Err(broken);
        }
        let of = |case| self.tally.of(case);
        let ended = of(Case::WentOn) + of(Case::TimedOut) + of(Case::Left);
        match of(Case::Joined) == ended + waiting {
            true => Ok(()),
            false => Err(format!(
                "{ended} ended of those that waited, {waiting} wait"
            )),
        }
    }

    /// Returns the number of permits that workers hold; each that is used is of a request in flight.
    pub(super) fn check_permits(&self, resource: &ResourceId) -> Result<u32, String> {
        let scopes = &self.workers.scopes;
        let Some(number) = scopes.find(&resource.scope) else {
            return Ok(0);
        };
        let (mut held, mut broken) = (0, None);
        self.workers.each(|worker| {
            let scope = worker.scope(scopes, number);
            let (used, open) = (scope.permits_used, worker.counted_in_flight(number));
            held += scope.permits_held;
            if used as usize != open {
                broken = Some(format!("{open} are in flight with {used} permits"));
            }
        });
        broken.map_or(Ok(held), Err)
    }
}

// === impl ClientState ===

impl ClientState {
    /// Returns the state of a resource that has just begun to be observed.
    pub(super) fn new(seen: &ObservedResource) -> Self {
        Self {
            id: seen.of.id.clone(),
            demand: seen.demand.clone(),
            spent: Spent::default(),
            admitted_total: 0,
            limit_sent: None,
            scope_state: None,
            limit_is_all: false,
        }
    }

    fn take(&mut self, seen: &mut ObservedResource, memory: &SharedMemory) {
        let more = std::mem::take(&mut seen.spent);
        self.admitted_total += more.admitted;
        self.spent.admitted += more.admitted;
        self.spent.forgiven += more.forgiven;
        self.spent.together += more.together;
        self.spent.debt_cut |= more.debt_cut;
        self.limit_sent = seen.limit_sent;
        if std::mem::take(&mut seen.is_written) {
            let mut records = memory.records().map(|(_, record)| record);
            let own = records.find(|record| seen.is_own(record));
            self.scope_state = own.and_then(decode_slot).map(|(_, state)| state);
        }
    }
}

// === free functions ===

/// Returns whether all scopes that share the limit are known to do so, and none of them has a limit of
/// its own, as while the coordinators are away.
fn limit_is_all(
    now: Instant,
    seen: &ObservedResource,
    memory: &SharedMemory,
    scopes: &ScopeTable,
) -> bool {
    let id = &seen.of.id.scope;
    let own = seen.of.number;
    if seen.of.members.iter().all(|member| Some(*member) == own) {
        return true;
    }
    let members = seen.of.members.iter();
    let ids: Vec<_> = members.map(|number| &scopes.get(*number).id).collect();
    let mut known = 0;
    let uses_only_this = |scope: &str, state: &ScopeState| {
        scope == &**id || state.requests.state(now) == LeaseState::Leased
    };
    let slots = memory
        .records()
        .filter_map(|(_, record)| decode_slot(record));
    for (scope, state) in slots {
        if !ids.iter().any(|member| &***member == scope) {
            continue;
        }
        known += usize::from(state.canonical() == Some(id));
        if !uses_only_this(scope, &state) {
            return false;
        }
    }
    known == ids.len()
}
