//! Outside observations of a process's workers, for laws; most of them of their writes. Workers have
//! them while they run, and the process between two events.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::client::{KnownLimit, LeaseState, ScopeState};
use tollgate_core::lease::{Answer, Origin, ResourceId, Unit, UnitAnswer};
use tollgate_core::message::Refreshed;
use tollgate_core::units::{Capacity, Instant};
use tollgate_engine::SharedMemory;
use tollgate_engine::codec::{decode_slot, split_slot};

use super::ProcessKind;
use super::view::{balance, debt_max};
use super::worker::{BULKY, OpenStream, Worker};
use crate::defect::Defect;
use crate::demand::RequestStream;
use crate::inspection::{InspectedResource, Inspection};
use crate::scopes::ScopeTable;
use crate::simulation::reached::{Case, Reached};

/// Time after which a worker of which nothing is heard counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(3);

/// Outside observations of the workers of one process.
#[derive(Debug)]
pub(super) struct Observations {
    pub(super) defect: Option<Defect>,
    pub(super) resources: Vec<ObservedResource>,
    /// The first broken invariant.
    pub(super) broken: Option<String>,
    pub(super) tally: Reached,
    pub(super) trapped_at: Option<Instant>,
    /// Time of the first request that can miss the permits of the worker that was lost last.
    pub(super) missed_at: Option<Instant>,
}

/// Observations of the use of one resource.
#[derive(Debug)]
pub(super) struct ObservedResource {
    pub(super) of: InspectedResource,
    /// Tokens of the requests that come.
    pub(super) demand: ResourceDemand,
    /// Answers that workers are being handed.
    handed: BTreeMap<u32, HandedAnswer>,
    /// Use since the last event, and all tokens that were spent.
    pub(super) spent: Spent,
    /// Tokens that came back since the last event, with the time since they were spent.
    pub(super) came_back: Vec<(Duration, u64)>,
    pub(super) admitted_total: u64,
    /// The limit of the last answer that was applied and told one.
    pub(super) limit_sent: Option<KnownLimit>,
    /// Whether the scope's record has been written since the last look.
    is_written: bool,
    /// That record.
    pub(super) scope_state: Option<ScopeState>,
    /// Whether all requests use the limit, and nothing but that.
    pub(super) limit_is_all: bool,
}

/// Use of one resource by one process for some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Tokens that were spent.
    pub admitted: u64,
    /// Bytes that passed and need not be paid: their worker was lost.
    pub forgiven: f64,
    /// Bytes of requests that went on together with others beyond one body each time.
    pub together: u64,
    /// Whether a debt was forgiven that was larger than may be owed.
    pub debt_cut: bool,
}

/// Tokens of one resource that the requests of one process take.
#[derive(Debug, Default)]
pub struct ResourceDemand {
    /// Parts of the process's streams that are for it.
    pub(super) parts: Vec<(usize, f64)>,
    /// Tokens of a usual request.
    pub usual: u64,
    /// Tokens of the largest.
    pub largest: u64,
    /// Time for which requests are in flight.
    pub takes: Duration,
}

/// Answer for one unit.
#[derive(Clone, Copy, Debug)]
struct HandedAnswer {
    origin: Origin,
    answer: UnitAnswer,
}

// === impl Observations ===

impl Observations {
    /// Returns the observations of a process with `streams`.
    pub(super) fn new(inspection: &Inspection, streams: &[RequestStream]) -> Self {
        let resources = inspection.resources.iter().filter_map(|resource| {
            let demand = ResourceDemand::new(resource, streams);
            (!demand.parts.is_empty()).then(|| ObservedResource::new(resource, demand))
        });
        Self {
            defect: inspection.defect,
            resources: resources.collect(),
            broken: None,
            tally: Reached::default(),
            trapped_at: None,
            missed_at: None,
        }
    }

    /// Notes that a worker is about to decide on a request.
    pub(super) fn note_request(&mut self, now: Instant) {
        let lost = self.trapped_at.map(|at| at.saturating_add(LOST_AFTER));
        if lost.is_some_and(|lost| now >= lost) {
            self.missed_at.get_or_insert(now);
        }
    }

    /// Notes that a worker is handed an answer.
    pub(super) fn begin_answer(&mut self, worker: u32, answer: &Refreshed) {
        for resource in &mut self.resources {
            if let Some(answer) = unit_answer(answer, &resource.of.id) {
                resource.handed.insert(worker, answer);
            }
        }
    }

    /// Notes that a worker has taken its answer.
    pub(super) fn end_answer(&mut self, worker: u32) {
        for resource in &mut self.resources {
            resource.handed.remove(&worker);
        }
    }

    /// Notes that a worker is lost.
    pub(super) fn lose(&mut self, now: Instant, number: u32, lost: &Worker, scopes: &ScopeTable) {
        self.end_answer(number);
        for resource in &mut self.resources {
            resource.spent.forgiven += resource.owed(lost, scopes);
        }
        self.tally.add(Case::Left, lost.waiting().len() as u64);
        self.tally.count(Case::Trapped);
        self.trapped_at = Some(now);
        self.missed_at = None;
    }

    /// Notes that a request goes on, and whether it is charged to the limit that its scope shares.
    pub(super) fn admit(&mut self, open: &OpenStream, is_shared: bool) {
        for resource in &mut self.resources {
            let tokens = match resource.of.id.unit {
                Unit::Requests => open.cost.into(),
                Unit::Concurrency => 1,
                Unit::RequestBytes | Unit::ResponseBytes => continue,
            };
            let is_own = resource.of.number == Some(open.scope);
            if is_own || is_shared && resource.of.members.contains(&open.scope) {
                resource.spend(tokens);
            }
        }
    }

    /// Notes that a request for `scope`, which went on `age` ago, has cost `tokens` less than it took.
    pub(super) fn come_back(&mut self, scope: u32, age: Duration, tokens: u64) {
        let resources = self.resources.iter_mut();
        let of_requests = resources.filter(|resource| resource.of.id.unit == Unit::Requests);
        for resource in of_requests.filter(|resource| resource.of.members.contains(&scope)) {
            resource.came_back.push((age, tokens));
        }
    }

    /// Notes that bytes of a stream for `scope` pass, of its request and of its response.
    pub(super) fn pass(&mut self, scope: u32, [sent, received]: [u64; 2]) {
        for resource in &mut self.resources {
            if resource.of.members.contains(&scope) {
                resource.spend(match resource.of.id.unit {
                    Unit::RequestBytes => sent,
                    Unit::ResponseBytes => received,
                    Unit::Requests | Unit::Concurrency => 0,
                });
            }
        }
    }

    /// Notes the requests that go on together after they have waited.
    pub(super) fn note_together(&mut self, resumed: &[OpenStream]) {
        for resource in &mut self.resources {
            let of = |open: &&OpenStream| resource.of.members.contains(&open.scope);
            let bytes = resumed.iter().filter(of).map(|open| {
                let [sent, received] = open.bytes;
                match resource.of.id.unit {
                    Unit::RequestBytes => sent,
                    Unit::ResponseBytes => received,
                    Unit::Requests | Unit::Concurrency => 0,
                }
            });
            resource.spent.together += bytes.sum::<u64>().saturating_sub(resource.demand.largest);
        }
    }

    /// Looks at the shared data when the workers have run.
    pub(super) fn look(&mut self, now: Instant, memory: &SharedMemory, scopes: &ScopeTable) {
        for resource in &mut self.resources {
            if std::mem::take(&mut resource.is_written) {
                let mut records = memory.records().map(|(_, record)| record);
                let own = records.find(|record| resource.is_own(record));
                resource.scope_state = own.and_then(state);
            }
            resource.limit_is_all = resource.is_all(now, memory, scopes);
        }
    }

    /// Returns whether a record is of the scope of an observed resource.
    pub(super) fn is_observed(&self, record: &[u8]) -> bool {
        let mut resources = self.resources.iter();
        resources.any(|resource| resource.is_own(record))
    }

    /// Checks a write of a worker.
    pub(super) fn see_write(
        &mut self,
        (now, worker): (Instant, u32),
        kind: &ProcessKind,
        memory: &SharedMemory,
        (before, after): (&[u8], &[u8]),
    ) {
        for resource in &mut self.resources {
            let (was_own, is_own) = (resource.is_own(before), resource.is_own(after));
            resource.is_written |= was_own || is_own;
            if is_own && !was_own {
                let mut slots = memory.records().filter(|(_, slot)| resource.is_own(slot));
                if slots.nth(1).is_none() {
                    // Another scope had the slot: all that the process knew is forgotten.
                    resource.limit_sent = None;
                }
            }
            if !was_own || !is_own {
                continue;
            }
            let handed = resource.handed.get(&worker).copied();
            if resource.of.id.unit == Unit::Requests && handed.is_none() {
                continue;
            }
            if let Some(mut before) = state(before)
                && let Some(after) = state(after)
            {
                let mut note = Note {
                    now,
                    kind,
                    broken: &mut self.broken,
                    tally: &mut self.tally,
                };
                resource.see(&mut note, handed, &mut before, &after);
            }
        }
    }
}

// === impl ObservedResource ===

/// Surroundings of a write that is checked.
struct Note<'a> {
    now: Instant,
    kind: &'a ProcessKind,
    broken: &'a mut Option<String>,
    tally: &'a mut Reached,
}

impl ObservedResource {
    fn new(of: &InspectedResource, demand: ResourceDemand) -> Self {
        Self {
            of: of.clone(),
            demand,
            handed: BTreeMap::new(),
            spent: Spent::default(),
            came_back: Vec::new(),
            admitted_total: 0,
            limit_sent: None,
            is_written: false,
            scope_state: None,
            limit_is_all: false,
        }
    }

    fn spend(&mut self, tokens: u64) {
        self.spent.admitted += tokens;
        self.admitted_total += tokens;
    }

    /// Returns whether all scopes that share the limit are known to do so, and none of them has a limit of
    /// its own, as while the coordinators are away.
    fn is_all(&self, now: Instant, memory: &SharedMemory, scopes: &ScopeTable) -> bool {
        let id = &self.of.id.scope;
        let members = self.of.members.iter();
        if { members.clone() }.all(|member| Some(*member) == self.of.number) {
            return true;
        }
        let ids: Vec<_> = members.map(|number| &*scopes.get(*number).id).collect();
        let mut known = 0;
        for (_, record) in memory.records() {
            let Some((scope, state)) = decode_slot(record) else {
                continue;
            };
            if ids.contains(&scope) {
                known += usize::from(state.canonical() == Some(id));
                if scope != &**id && state.requests.state(now) != LeaseState::Leased {
                    return false;
                }
            }
        }
        known == ids.len()
    }

    /// Returns the bytes that have passed at a worker and that the shared table does not know of.
    pub(super) fn owed(&self, worker: &Worker, scopes: &ScopeTable) -> f64 {
        let owed = self
            .of
            .number
            .map(|number| worker.scope(scopes, number).owed);
        owed.map_or(0.0, super::view::tokens)
    }

    pub(super) fn is_own(&self, record: &[u8]) -> bool {
        split_slot(record).is_some_and(|(scope, _)| scope == &*self.of.id.scope)
    }

    fn see(
        &mut self,
        note: &mut Note<'_>,
        handed: Option<HandedAnswer>,
        before: &mut ScopeState,
        after: &ScopeState,
    ) {
        see_permits(note, before, after);
        self.see_debt(note, before, after);
        if let Some(HandedAnswer { origin, answer }) = handed
            && before.handle_answer(note.now, note.kind.policy(), origin, &answer)
        {
            self.note_limit(&answer.answer);
            note.tally.count(Case::Applied);
        }
    }

    /// Notes the limit that an answer tells.
    fn note_limit(&mut self, answer: &Answer) {
        let Answer {
            lease,
            safe,
            capacity,
            burst,
            ..
        } = *answer;
        let unlimited = capacity.is_unlimited();
        let free = lease.is_some_and(|terms| terms.capacity.is_unlimited() && unlimited);
        // A coordinator that waits for its parent knows of no limit yet.
        if lease.is_some() || !unlimited || self.limit_sent.is_none() {
            self.limit_sent = Some(KnownLimit {
                capacity,
                burst,
                safe: safe.or_else(|| free.then_some(Capacity::UNLIMITED)),
            });
        }
    }

    /// Checks that the debt is within its limit.
    fn see_debt(&mut self, note: &mut Note<'_>, before: &mut ScopeState, after: &ScopeState) {
        let unit = self.of.id.unit;
        let mut after = after.clone();
        let (Some(before), Some(after)) = (before.rate_mut(unit), after.rate_mut(unit)) else {
            return;
        };
        if unit == Unit::Requests {
            return;
        }
        let (now, policy) = (note.now, note.kind.policy());
        let had = balance(before, now, policy);
        let (left, most) = (balance(after, now, policy), debt_max(after, now, policy));
        // One token for the rounding of the bucket's answers.
        let grows = left < had.min(0.0) - 1.0;
        // At another rate the same debt would be too large, and at none it cannot be seen. It seems to
        // grow when a lease of nothing is given back, after which the safe capacity shows it.
        let is_seen = most > 0.0 && most == debt_max(before, now, policy);
        if grows && left < -most - 1.0 && is_seen {
            let broken = || format!("{} of at most {most} owed", -left);
            note.broken.get_or_insert_with(broken);
        }
        // Also a debt from a higher rate is cut to what may be owed at the present one.
        let was_larger = had < -most - 1.0 && left > had + 1.0;
        if was_larger || grows && left <= -most + 1.0 {
            self.spent.debt_cut = true;
            note.tally.count(Case::DebtCut);
        }
    }
}

// === impl ResourceDemand ===

impl ResourceDemand {
    fn new(resource: &InspectedResource, streams: &[RequestStream]) -> Self {
        let mut demand = Self::default();
        for (place, stream) in streams.iter().enumerate() {
            let shape = &stream.shape;
            let (mut own, mut all) = (0.0, 0.0);
            for (scope, weight) in shape.weights() {
                all += weight;
                if resource.members.contains(&scope) {
                    own += weight;
                }
            }
            let usual = match resource.id.unit {
                Unit::Requests => shape.cost.into(),
                Unit::RequestBytes => shape.spec.bytes[0],
                Unit::ResponseBytes => shape.spec.bytes[1],
                Unit::Concurrency => 1,
            };
            if own == 0.0 || usual == 0 {
                continue;
            }
            let is_bytes = !matches!(resource.id.unit, Unit::Requests | Unit::Concurrency);
            let times = match &shape.spec.bulky {
                Some(_) if is_bytes => BULKY,
                _ => 1,
            };
            demand.parts.push((place, own / all));
            demand.usual = demand.usual.max(usual);
            demand.largest = demand.largest.max(usual * times);
            demand.takes = demand.takes.max(shape.spec.takes.0);
        }
        demand
    }
}

// === free functions ===

/// Checks that no more permits are given than there are.
fn see_permits(note: &mut Note<'_>, before: &ScopeState, after: &ScopeState) {
    let (Some(before), Some(after)) = (&before.concurrency, &after.concurrency) else {
        return;
    };
    let (held, limit) = (after.held(), after.limit(note.now, note.kind.policy()));
    if held > before.held() && held > limit {
        let broken = || format!("{held} permits are held of {limit}");
        note.broken.get_or_insert_with(broken);
    }
}

fn state(record: &[u8]) -> Option<ScopeState> {
    decode_slot(record).map(|(_, state)| state)
}

fn unit_answer(answer: &Refreshed, resource: &ResourceId) -> Option<HandedAnswer> {
    let mut scopes = answer.scopes.iter().flatten();
    let found = scopes.find(|answer| answer.scope == resource.scope)?;
    let units = found.outcome.as_ref().ok()?;
    Some(HandedAnswer {
        origin: found.origin,
        answer: *units.iter().find(|answer| answer.unit == resource.unit)?,
    })
}
