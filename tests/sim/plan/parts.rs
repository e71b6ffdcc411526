//! Parts that plans of all kinds have.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tollgate_core::lease::Unit;
use tollgate_core::limit::{Limit, Part, SafeCapacity};
use tollgate_core::units::{Capacity, Tokens};
use tollgate_sim::random::Random;
use tollgate_sim::scenario::{
    Amount, Arrivals, Bulky, CoordinatorSpec, Cut, DemandSpec, Direction, EnvoyGroup, EventSpec,
    NetworkSpec, NoLease, Program, Scenario, Selection, Share, Span,
};

use super::{Plan, Work};
use crate::history::History;
use crate::limits::LimitsFile;

/// Shortest time that a message takes.
const DELAY_MIN: Duration = Duration::from_micros(50);
/// Time by which requests may be decided late, and the shortest interval of ticks: Envoy's may be
/// faster, which takes the simulator longer.
const RESOLUTION: Span = Span::from_millis(5);
/// The least time in which everything settles after the last fault, besides one lease and learning:
/// the longest back-off, half a second of demand, and refreshes.
pub(super) const SETTLING: Duration = Duration::from_secs(10);

/// Everything that a plan is made of.
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) duration: Duration,
    pub(super) settings: ProcessSettings,
    pub(super) network: NetworkSpec,
    /// Whether a process that starts again has the id of the one before.
    pub(super) keeps_ids: bool,
    pub(super) coordinators: Vec<CoordinatorSpec>,
    pub(super) clients: Vec<Client>,
    pub(super) events: Vec<EventSpec>,
    pub(super) limits: Vec<LimitsFile>,
    /// Ids of the resources that all share.
    pub(super) resources: Vec<String>,
}

/// Process: the coordinator that it asks, its requests per second for some scopes, and its priority.
pub(super) struct Client {
    pub(super) coordinator: String,
    pub(super) scopes: Vec<String>,
    pub(super) rate: u64,
    pub(super) priority: u8,
}

/// Settings that all processes of a fleet share.
pub(super) struct ProcessSettings {
    work: Work,
    safe: u64,
    group: EnvoyGroup,
}

// === impl Draft ===

impl Draft {
    pub(super) fn finish(mut self) -> Plan {
        let (work, settings) = (self.settings.work, &mut self.settings);
        if self.keeps_ids {
            self.network.late_copies = Share(0.1);
            settings.group.keeps_id = true;
        }
        let (mut envoys, mut demand) = (Vec::new(), Vec::new());
        for (envoy, client) in self.clients.iter().enumerate() {
            envoys.push(settings.group(envoy, client));
            demand.extend(settings.demand(envoy, client, self.network.calm_from));
        }
        self.events.sort_by_key(|event| event.at);
        let duration = Span(self.duration);
        let scenario = Scenario {
            name: self.name,
            duration,
            seed: self.seed,
            sample: duration,
            envoys,
            coordinators: self.coordinators,
            network: self.network,
            nudges: self.seed % 4 == 2,
            demand,
            events: self.events,
            ..Scenario::default()
        };
        let sources: Vec<_> = self.limits.iter().map(LimitsFile::source).collect();
        Plan {
            history: History::new(&scenario, &sources, work.unit(), &self.resources),
            scenario,
            limits: self.limits,
            sources,
            work,
        }
    }
}

// === impl ProcessSettings ===

impl ProcessSettings {
    /// Returns random settings for clients of `limit`.
    pub(super) fn new(random: &mut Random, limit: &Limit, work: Work) -> Self {
        let modes = [
            NoLease::Safe,
            NoLease::Safe,
            NoLease::Optimistic,
            NoLease::Pessimistic,
        ];
        let timeout = ms(random.between(100, 1000));
        let group = EnvoyGroup {
            no_lease: random.pick(&modes),
            first_lease_wait: Span::from_millis(random.pick(&[0, 50])),
            call_timeout: Span(timeout.min(whole(limit.lease / 4))),
            idle_after: Span::from_secs(random.between(1, 10)),
            max_debt: Span::from_millis(random.pick(&[200, 1000, 10_000])),
            workers: random.between(1, 4) as u32,
            interleaving: percent(random.pick(&[0, 1, 5, 25])),
            gives_up: percent(2),
            max_scopes: 8,
            resolution: RESOLUTION,
            ..EnvoyGroup::default()
        };
        Self {
            work,
            safe: random.between(1, 20),
            group,
        }
    }

    /// Returns the group of the Envoy at an index.
    fn group(&self, envoy: usize, client: &Client) -> EnvoyGroup {
        let safe = self.safe as f64;
        // Where other units are counted, requests have no limit, and are not to get one when the
        // coordinators are away.
        let requests = match self.work {
            Work::Requests | Work::Waiting { .. } => safe,
            Work::Bytes { .. } | Work::InFlight { .. } => Amount::MAX.0,
        };
        EnvoyGroup {
            name: name(envoy),
            coordinator: Some(client.coordinator.clone()),
            priority: client.priority,
            safe: Amount(requests),
            safe_bytes: Amount(safe * self.work.usual() as f64),
            safe_concurrency: Amount(safe),
            max_wait: match self.work {
                Work::Waiting { max_wait, .. } => Span(max_wait),
                _ => Span::default(),
            },
            ..self.group.clone()
        }
    }

    /// Returns the demand of an Envoy, of which a few bodies are large until `calm_from`.
    fn demand(&self, envoy: usize, client: &Client, calm_from: Span) -> Vec<DemandSpec> {
        let (scopes, rate) = (&client.scopes, client.rate);
        let usual = self.work.usual();
        let bulky = Bulky {
            chance: percent(2),
            until: calm_from,
        };
        let of_scope = |scope: &String| DemandSpec {
            scope: Some(scope.clone()),
            envoys: selection(envoy),
            each: Some(Program::Constant(Amount(rate as f64 / scopes.len() as f64))),
            arrivals: Arrivals::Even,
            takes: match self.work {
                Work::InFlight { takes } => Span(takes),
                _ => Span::default(),
            },
            bulky: (usual > 1).then_some(bulky),
            bytes: match self.work.unit() {
                Unit::RequestBytes => [usual, 0],
                Unit::ResponseBytes => [0, usual],
                _ => [0; 2],
            },
            ..DemandSpec::default()
        };
        scopes.iter().map(of_scope).collect()
    }
}

// === free functions ===

/// Returns the name of the group of the Envoy at an index.
fn name(envoy: usize) -> String {
    format!("envoy-{envoy}")
}

fn percent(part: u64) -> Share {
    Share(part as f64 / 100.0)
}

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn selection(envoy: usize) -> Selection {
    Selection {
        group: Some(name(envoy)),
        count: None,
    }
}

/// Returns a duration in whole milliseconds, as configurations have them.
pub(super) fn whole(time: Duration) -> Duration {
    ms(time.as_millis() as u64)
}

/// Returns a network with faults until `calm_from`.
pub(super) fn network(random: &mut Random, calm_from: Duration) -> NetworkSpec {
    NetworkSpec {
        latency: Span(DELAY_MIN),
        between_regions: Span(DELAY_MIN),
        loss: percent(random.pick(&[0, 0, 2, 10, 40])),
        duplication: percent(random.pick(&[0, 0, 5, 30])),
        jitter: Span::from_millis(random.pick(&[1, 5, 50, 400])),
        late_copies: Share(0.0),
        unreported: Share(0.5),
        calm_from: Span(calm_from),
    }
}

/// Returns a limit with random times.
pub(super) fn limit(random: &mut Random, capacity: u64) -> Limit {
    let mut limit = Limit::new(Capacity::from_whole(capacity));
    limit.burst = Tokens::from_whole(random.between(1, 2 * capacity));
    limit.lease = ms(random.between(1000, 6000));
    limit.learning = limit.lease;
    limit.refresh = whole(limit.lease / random.between(3, 10) as u32);
    limit.min_refresh = ms(random.between(20, 100));
    limit.headroom = random.pick(&[Part::NONE, Part::HALF, Part::ALL]);
    if random.chance(50) {
        limit.safe = SafeCapacity::Fixed(Capacity::from_whole(random.between(0, capacity.min(20))));
    }
    limit
}

/// Multiplies the capacity of a limit by `times`.
pub(super) fn scale(limit: &mut Limit, times: u64) {
    let more = |capacity: Capacity| Capacity::from_micros(capacity.as_micros() * times);
    limit.capacity = more(limit.capacity);
    limit.burst = Tokens::from_micros(limit.burst.as_micros() * times);
    if let SafeCapacity::Fixed(safe) = &mut limit.safe {
        *safe = more(*safe);
    }
}

/// Returns work that is not requests refused beyond the limit.
pub(super) fn work(random: &mut Random) -> Work {
    let unit = random.pick(&[Unit::RequestBytes, Unit::ResponseBytes]);
    let waiting = Work::Waiting {
        max_wait: ms(random.pick(&[20, 500, 5000])),
        members: random.pick(&[1, 1, 1, 2, 4]),
    };
    let bytes = Work::Bytes { unit, usual: 1000 };
    let takes = ms(random.pick(&[20, 200, 1500]));
    random.pick(&[waiting, bytes, Work::InFlight { takes }])
}

/// Returns a random priority; most demand is of one priority.
pub(super) fn priority(random: &mut Random) -> u8 {
    random.pick(&[0, 0, 0, 0, 7, 15])
}

/// Returns requests per second at a process.
pub(super) fn rate(random: &mut Random, capacity: u64) -> u64 {
    random.pick(&[0, 1, 5, 20, 80, 300, capacity])
}

/// Returns a random time until `end`.
pub(super) fn time(random: &mut Random, end: Duration) -> Span {
    Span::from_millis(random.between(0, end.as_millis() as u64))
}

/// Returns a cut in one direction or both, for at most so many milliseconds.
pub(super) fn cut(random: &mut Random, longest: u64) -> Cut {
    let directions = [Direction::Out, Direction::In, Direction::Both];
    Cut {
        direction: random.pick(&directions),
        lasts: Span::from_millis(random.between(50, longest)),
        ..Cut::default()
    }
}

/// Returns an event as users write it.
pub(super) fn event(at: Span, change: &str, how: impl Serialize) -> EventSpec {
    let event = json!({"at": at, change: how});
    serde_json::from_value(event).expect("an event")
}

/// Returns the limits from the start and after each of `changes`, and adds an event for each of these.
pub(super) fn limits_over_time<C>(
    mut present: LimitsFile,
    mut changes: Vec<(Span, C)>,
    events: &mut Vec<EventSpec>,
    mut apply: impl FnMut(&mut LimitsFile, C),
) -> Vec<LimitsFile> {
    let mut files = vec![present.clone()];
    changes.sort_by_key(|(at, _)| *at);
    for (at, change) in changes {
        apply(&mut present, change);
        events.push(event(at, "limits", files.len()));
        files.push(present.clone());
    }
    files
}

/// Returns the event that a coordinator loses its masters, for so many milliseconds.
pub(super) fn crash(at: Span, coordinator: &str, millis: u64) -> EventSpec {
    let how = json!({"coordinator": coordinator, "for": Span::from_millis(millis)});
    event(at, "crash", how)
}

/// Returns the event that a process dies and a new one starts at once in its place.
pub(super) fn restart(at: Span, envoy: usize) -> EventSpec {
    event(at, "kill", json!({"envoys": selection(envoy)}))
}

/// Returns the event that a worker of a process traps.
pub(super) fn trap(at: Span, envoy: usize) -> EventSpec {
    event(at, "trap", json!({"envoys": selection(envoy)}))
}

/// Returns the event that a process is cut off, for at most so many milliseconds.
pub(super) fn cut_off(random: &mut Random, at: Span, envoy: usize, longest: u64) -> EventSpec {
    let envoys = Some(selection(envoy));
    let cut = cut(random, longest);
    event(at, "cut", Cut { envoys, ..cut })
}

/// Returns the event that the demand of a process changes, for one of so many scopes each.
pub(super) fn demand_change(at: Span, envoy: usize, (rate, scopes): (u64, usize)) -> EventSpec {
    let set = Amount(rate as f64 / scopes as f64);
    event(
        at,
        "demand",
        json!({"envoys": selection(envoy), "set": set}),
    )
}

/// Returns processes that die soon after they have started, several times, until `end`.
pub(super) fn crash_loops(random: &mut Random, processes: u64, end: Duration) -> Vec<EventSpec> {
    let mut restarts = Vec::new();
    for _ in 0..random.between(1, 4) {
        let process = random.between(0, processes - 1) as usize;
        let mut at = random.between(0, end.as_millis() as u64);
        for _ in 0..random.between(1, 6) {
            restarts.push(restart(Span::from_millis(at), process));
            at += random.between(20, 1500);
        }
    }
    restarts.retain(|restart| restart.at.0 < end);
    restarts
}
