//! Fleets below trees of coordinators: a root, regions, and below some of them leaves.

use std::time::Duration;

use serde_json::json;
use tollgate_core::limit::{Algorithm, Limit, SafeCapacity};
use tollgate_core::units::Capacity;
use tollgate_sim::random::Random;
use tollgate_sim::scenario::{CoordinatorSpec, Cut, EventSpec, Span};

use super::parts::{self, Client, Draft, ProcessSettings, ms};
use super::{Plan, Work};
use crate::limits::{GROUP, LimitsFile, set_capacity};

/// End of the time in which faults begin.
const FAULTS_END: Duration = Duration::from_secs(15);
/// The longest absence of a coordinator or a connection.
const AWAY_MAX: u64 = 8_000;
const TENANT: &str = "acme";

/// Coordinator of a plan.
struct Place {
    spec: CoordinatorSpec,
    level: u32,
    limit: Limit,
}

// === impl Plan ===

impl Plan {
    /// Returns the plan of `seed` with a tree of coordinators.
    pub(crate) fn of_trees(seed: u64) -> Self {
        new(seed, None)
    }

    /// Returns the plan of `seed` with a tree where shares depend on what processes use.
    pub(crate) fn of_usage_in_trees(seed: u64) -> Self {
        new(
            seed,
            Some([Algorithm::UsageShare, Algorithm::MaxRate][seed as usize % 2]),
        )
    }
}

// === free functions ===

fn new(seed: u64, algorithm: Option<Algorithm>) -> Plan {
    let random = &mut Random::new(seed);
    let capacity = random.between(20, 600);
    let mut limit = parts::limit(random, capacity);
    let work = if random.chance(40) {
        Work::Requests
    } else {
        parts::work(random)
    };
    // Requests in flight are no rates, and are not divided by usage.
    let algorithm = algorithm.filter(|_| !work.unit().is_concurrency());
    limit.algorithm = algorithm.unwrap_or_default();
    let settings = ProcessSettings::new(random, &limit, work);
    let usual = work.usual();
    parts::scale(&mut limit, usual);
    let places = places(random, &limit, usual);
    let clients = clients(random, &places, capacity, work);
    let (mut events, changes) = faults(random, &places, (clients.len(), work), usual);
    let keeps_ids = seed.is_multiple_of(3);
    if keeps_ids {
        let more = &mut Random::new(seed.rotate_left(48));
        events.extend(parts::crash_loops(more, clients.len() as u64, FAULTS_END));
    }
    let network = parts::network(random, FAULTS_END);
    let mut present = limit.clone();
    let file = |limit: &Limit| LimitsFile::of_all(limit, TENANT, work);
    let apply = |of: &mut LimitsFile, capacity| {
        set_capacity(&mut present, capacity);
        *of = file(&present);
    };
    let mut limits = parts::limits_over_time(file(&limit), changes, &mut events, apply);
    // Each coordinator below the root has limits of its own.
    let coordinators = places.into_iter().map(|place| {
        let mut spec = place.spec;
        if spec.parent.is_some() {
            spec.limits = Some(limits.len());
            limits.push(file(&place.limit));
        }
        spec
    });
    let coordinators = coordinators.collect();
    Draft {
        name: format!("Tree of seed {seed}"),
        seed,
        // Until all is back and has learned, at each level, and settled.
        duration: FAULTS_END + ms(AWAY_MAX) + 2 * limit.lease + parts::SETTLING,
        settings,
        network,
        keeps_ids,
        coordinators,
        clients,
        events,
        limits,
        resources: vec![match work.members() {
            1 => format!("tenant/{TENANT}"),
            _ => format!("group/{GROUP}"),
        }],
    }
    .finish()
}

/// Returns a root with one or two levels of coordinators below it.
fn places(random: &mut Random, limit: &Limit, scale: u64) -> Vec<Place> {
    let mut places = vec![Place {
        spec: CoordinatorSpec {
            name: "root".to_owned(),
            ..CoordinatorSpec::default()
        },
        level: 0,
        limit: limit.clone(),
    }];
    let levels = random.between(1, 2) as u32;
    for level in 1..=levels {
        let above = 0..places.len();
        let above: Vec<usize> = above.filter(|i| places[*i].level == level - 1).collect();
        for parent in above {
            for _ in 0..random.between(1, 3 - u64::from(level - 1)) {
                let parent = places[parent].spec.name.clone();
                let spec = CoordinatorSpec {
                    name: format!("coordinator-{}", places.len()),
                    parent: Some(parent),
                    call_timeout: Span::from_millis(random.pick(&[100, 300, 1000])),
                    ..CoordinatorSpec::default()
                };
                let limit = own_limit(random, limit, scale);
                places.push(Place { spec, level, limit });
            }
        }
    }
    places
}

/// Returns the limit of a coordinator below another.
fn own_limit(random: &mut Random, limit: &Limit, scale: u64) -> Limit {
    let mut own = limit.clone();
    own.capacity = if random.chance(15) {
        Capacity::from_whole(random.between(20, 600) * scale)
    } else {
        Capacity::UNLIMITED
    };
    if own.capacity.is_unlimited() {
        own.burst = Limit::new(own.capacity).burst;
    }
    let safe = Capacity::from_whole(random.between(0, 15) * scale);
    own.safe = random.pick(&[SafeCapacity::Client, SafeCapacity::Fixed(safe)]);
    own
}

/// Returns processes that ask leaves, and some that ask coordinators in the middle, or the root.
fn clients(random: &mut Random, places: &[Place], capacity: u64, work: Work) -> Vec<Client> {
    let scopes: Vec<String> = match work.members() {
        1 => vec![format!("tenant/{TENANT}")],
        count => (0..count).map(|k| format!("tenant/t{k}")).collect(),
    };
    let mut clients = Vec::new();
    // Limits of their own know no bands.
    let mut below = places.iter().skip(1);
    let plain = below.all(|place| place.limit.capacity.is_unlimited());
    let banded = plain && random.chance(30);
    for place in places {
        let name = Some(&place.spec.name);
        let is_leaf = !places
            .iter()
            .any(|below| below.spec.parent.as_ref() == name);
        let count = if is_leaf {
            random.between(1, 2)
        } else {
            random.between(0, 3) / 3
        };
        for _ in 0..count {
            let rate = parts::rate(random, capacity);
            let priority = if banded { parts::priority(random) } else { 0 };
            clients.push(Client {
                coordinator: place.spec.name.clone(),
                scopes: scopes.clone(),
                rate,
                priority,
            });
        }
    }
    clients
}

/// Returns faults, and changes of the root's capacity.
fn faults(
    random: &mut Random,
    places: &[Place],
    (processes, work): (usize, Work),
    scale: u64,
) -> (Vec<EventSpec>, Vec<(Span, Capacity)>) {
    let (mut events, mut changes) = (Vec::new(), Vec::new());
    for _ in 0..random.between(0, 14) {
        let at = parts::time(random, FAULTS_END);
        let index = random.between(0, places.len() as u64 - 1) as usize;
        let coordinator = &places[index].spec.name;
        let process = random.between(0, processes as u64 - 1) as usize;
        events.push(match random.between(0, 10) {
            0 | 1 => parts::crash(at, coordinator, random.between(1, AWAY_MAX)),
            2 => {
                let lasts = Span::from_millis(random.between(0, 2000));
                let how = json!({"coordinator": coordinator, "for": lasts});
                parts::event(at, "hand_over", how)
            }
            3..=5 => {
                let cut = Cut {
                    coordinator: Some(coordinator.clone()),
                    with_below: true,
                    ..parts::cut(random, AWAY_MAX)
                };
                parts::event(at, "cut", cut)
            }
            6 => parts::cut_off(random, at, process, AWAY_MAX),
            7 => parts::restart(at, process),
            8 => parts::trap(at, process),
            9 => {
                let capacity = Capacity::from_whole(random.between(0, 600) * scale);
                changes.push((at, capacity));
                continue;
            }
            _ => {
                let rate = (parts::rate(random, 600), work.members() as usize);
                parts::demand_change(at, process, rate)
            }
        });
    }
    (events, changes)
}
