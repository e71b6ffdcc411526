use std::collections::BTreeSet;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ID_LEN_MAX};

use super::super::CLIENTS_MAX;
use super::super::sample::ResourceSample;
use super::*;

const ALL: WindowSelection = WindowSelection::Busiest(usize::MAX, None);

fn at(step: u64) -> Instant {
    start_of(step)
}

fn id(scope: &str) -> ResourceId {
    ResourceId::new(scope, Unit::Requests).unwrap()
}

fn client(name: &str, has: f32) -> (ClientId, f32) {
    (ClientId::new(name).unwrap(), has)
}

/// A busy resource of the first shard.
fn busy(has: f32, clients: &[(&str, f32)]) -> ResourceSample {
    ResourceSample {
        shard: ShardId(0),
        is_busy: true,
        at_most: 100.0,
        has,
        wants: 2.0 * has,
        waiting: 1.0,
        clients: clients
            .iter()
            .map(|(name, has)| client(name, *has))
            .collect(),
    }
}

/// A sample of the first shard.
fn sample(resources: &[(&str, ResourceSample)]) -> NodeSample {
    let has: f32 = resources.iter().map(|(_, resource)| resource.has).sum();
    let sums = ResourceStats {
        resources: resources.len(),
        capacity: 100.0 * resources.len() as f64,
        has: has.into(),
        ..ResourceStats::default()
    };
    let resources = resources.iter().cloned();
    NodeSample {
        shards: BTreeSet::from([ShardId(0)]),
        units: BTreeMap::from([(Unit::Requests, sums)]),
        resources: resources.map(|(scope, one)| (id(scope), one)).collect(),
    }
}

/// A sample of the first shard in which each of `scopes` is busy.
fn sample_of(scopes: impl Iterator<Item = String>) -> NodeSample {
    let scopes: Vec<String> = scopes.collect();
    let rows = scopes.iter().map(|scope| (scope.as_str(), busy(1.0, &[])));
    sample(&rows.collect::<Vec<_>>())
}

/// The last values of `values`, of which the others are gaps.
fn known(values: &[f32]) -> Vec<Option<f32>> {
    assert_eq!(values.len(), STEPS);
    let values = values
        .iter()
        .map(|value| (!value.is_nan()).then_some(*value));
    values.skip_while(Option::is_none).collect()
}

fn window_of(recorder: &Recorder, now: Instant, selection: &WindowSelection) -> HistoryWindow {
    recorder.part(selection).window(now, selection)
}

fn has(recorder: &Recorder, now: Instant, scope: &str) -> Vec<Option<f32>> {
    let window = window_of(recorder, now, &ALL);
    window
        .resources
        .get(&id(scope))
        .map_or_else(Vec::new, |resource| known(&resource.has))
}

#[test]
fn samples_are_read_in_their_order_with_gaps_between_them() {
    let mut recorder = Recorder::default();
    let a = |has| sample(&[("a", busy(has, &[]))]);
    recorder.record(at(10), &a(1.0));
    recorder.record(at(11), &a(2.0));
    // Twice in a step: the later counts.
    let late = at(11).saturating_add(std::time::Duration::from_millis(4999));
    recorder.record(late, &a(3.0));
    // The process stood still.
    recorder.record(at(14), &a(4.0));
    // A node without a shard knows nothing.
    recorder.record(at(15), &NodeSample::default());
    // A clock does not go back.
    recorder.record(at(12), &a(9.0));
    let want = [Some(1.0), Some(3.0), None, None, Some(4.0)];
    assert_eq!(has(&recorder, at(14), "a"), want);
    let window = window_of(&recorder, at(14), &ALL);
    assert_eq!(known(&window.units[&Unit::Requests].has), want);
    assert_eq!(known(&window.shards), want.map(|value| value.map(|_| 1.0)));
    assert_eq!(window.newest_age.as_secs(), 0);
    // The sample of the present step may still come; then it is a gap.
    for (step, age_s, gaps) in [(15, 5, 0), (16, 5, 1), (18, 5, 3)] {
        let window = window_of(&recorder, at(step), &ALL);
        let mut want = want.to_vec();
        want.resize(5 + gaps, None);
        assert_eq!(known(&window.units[&Unit::Requests].has), want, "{step}");
        assert_eq!(window.newest_age.as_secs(), age_s);
    }
    let late = at(10 + STEPS as u64 + 10);
    assert!(has(&recorder, late, "a").is_empty(), "all gaps");
}

#[test]
fn what_is_older_than_ten_minutes_is_forgotten() {
    let mut recorder = Recorder::default();
    let steps = 3 * STEPS as u64;
    for step in 0..steps {
        let scope = if step < 5 { "early" } else { "late" };
        recorder.record(at(step), &sample(&[(scope, busy(step as f32, &[]))]));
        let known = has(&recorder, at(step), "early");
        let want = (step as usize + 1).min(STEPS);
        let is_kept = step < 4 + STEPS as u64;
        assert_eq!(known.len(), if is_kept { want } else { 0 }, "{step}");
    }
    let known = has(&recorder, at(steps - 1), "late");
    let want = (steps - STEPS as u64..steps).map(|step| Some(step as f32));
    assert_eq!(known, want.collect::<Vec<_>>());
}

/// A shard that is at another node now says nothing of its resources here.
#[test]
fn a_resource_without_clients_has_nothing_and_one_that_has_moved_away_has_a_gap() {
    let mut recorder = Recorder::default();
    let clients = [("x", 3.0), ("y", 2.0)];
    recorder.record(at(1), &sample(&[("a", busy(5.0, &clients))]));
    recorder.record(at(2), &sample(&[]));
    let elsewhere = NodeSample {
        shards: BTreeSet::from([ShardId(1)]),
        ..NodeSample::default()
    };
    recorder.record(at(3), &elsewhere);
    recorder.record(at(4), &sample(&[("a", busy(7.0, &clients[..1]))]));
    let selection = WindowSelection::Scope("a".to_owned());
    let window = window_of(&recorder, at(4), &selection);
    let a = &window.resources[&id("a")];
    assert_eq!(known(&a.has), [Some(5.0), Some(0.0), None, Some(7.0)]);
    assert_eq!(known(&a.at_most), [Some(100.0), None, None, Some(100.0)]);
    let x = &a.clients["x"];
    assert_eq!(known(x), [Some(3.0), Some(0.0), None, Some(3.0)]);
    let y = &a.clients["y"];
    assert_eq!(known(y), [Some(2.0), Some(0.0), None, Some(0.0)]);
    let window = window_of(&recorder, at(4), &ALL);
    assert!(window.resources[&id("a")].clients.is_empty());
}

/// The lock is held as long as this takes.
#[test]
fn a_part_has_the_selection_and_nothing_else() {
    let mut recorder = Recorder::default();
    let both = [
        ("a", busy(5.0, &[("x", 5.0)])),
        ("b", busy(3.0, &[("y", 3.0)])),
    ];
    recorder.record(at(1), &sample(&both));
    let clients = |selection: &WindowSelection| {
        let part = recorder.part(selection);
        let resources = part.resources.iter();
        let counts = resources.map(|(id, record)| (id.scope.to_string(), record.clients.len()));
        counts.collect::<Vec<_>>()
    };
    let named = |scope: &str, clients| (scope.to_owned(), clients);
    assert_eq!(clients(&ALL), [named("a", 0), named("b", 0)]);
    let only_b = WindowSelection::Scope("b".to_owned());
    assert_eq!(clients(&only_b), [named("b", 1)]);
    let bytes = WindowSelection::Busiest(9, Some(Unit::RequestBytes));
    assert_eq!(clients(&bytes), []);
}

#[test]
fn the_least_recently_busy_resource_makes_room() {
    let mut recorder = Recorder::default();
    let all: Vec<String> = (0..RESOURCES_MAX + 1)
        .map(|i| format!("t/{i:03}"))
        .collect();
    let busy_at = |recorder: &mut Recorder, step, scopes: &[String]| {
        let rows = scopes.iter().map(|scope| (scope.as_str(), busy(1.0, &[])));
        recorder.record(at(step), &sample(&rows.collect::<Vec<_>>()));
    };
    busy_at(&mut recorder, 1, &all[..RESOURCES_MAX]);
    busy_at(&mut recorder, 2, &all[1..RESOURCES_MAX]);
    assert_eq!(recorder.resources.len(), RESOURCES_MAX);
    busy_at(&mut recorder, 3, &all[RESOURCES_MAX..]);
    assert_eq!(recorder.resources.len(), RESOURCES_MAX);
    assert!(!recorder.resources.contains_key(&id(&all[0])));
    // One that is recorded and no longer busy is still written.
    let mut idle = busy(8.0, &[]);
    idle.is_busy = false;
    recorder.record(at(4), &sample(&[(&all[1], idle)]));
    let want = [Some(1.0), Some(1.0), Some(0.0), Some(8.0)];
    assert_eq!(has(&recorder, at(4), &all[1]), want);
}

#[test]
fn a_client_takes_the_place_of_a_smaller_one_only() {
    let mut recorder = Recorder::default();
    let names: Vec<String> = (0..CLIENTS_MAX + 1).map(|i| format!("envoy-{i}")).collect();
    let mut record = |step, clients: &[(usize, f32)]| {
        let clients: Vec<_> = clients
            .iter()
            .map(|(i, has)| (names[*i].as_str(), *has))
            .collect();
        recorder.record(at(step), &sample(&[("a", busy(1.0, &clients))]));
        let clients = &recorder.tracked()[&id("a")];
        let mut found: Vec<usize> = clients
            .iter()
            .map(|client| {
                names
                    .iter()
                    .position(|name| name == client.as_str())
                    .unwrap()
            })
            .collect();
        found.sort_unstable();
        found
    };
    let last = CLIENTS_MAX;
    let others: Vec<(usize, f32)> = (1..last).map(|i| (i, 10.0)).collect();
    let with = |more: &[(usize, f32)]| [&others[..], more].concat();
    let first: Vec<usize> = (0..last).collect();
    let second: Vec<usize> = (1..=last).collect();
    assert_eq!(record(1, &with(&[(0, 8.0)])), first);
    assert_eq!(
        record(2, &with(&[(0, 8.0), (last, 9.0)])),
        first,
        "hardly more"
    );
    assert_eq!(record(3, &with(&[(0, 8.0), (last, 11.0)])), second);
    // A client that has gone makes room at once.
    assert_eq!(record(4, &with(&[(0, 1.0)])), first);
}

#[test]
fn the_memory_is_bounded_whatever_comes() {
    let mut recorder = Recorder::default();
    let long = |i: usize| format!("{i:0>width$}", width = ID_LEN_MAX);
    let mut largest = 0;
    for step in 0..100_u64 {
        let first = 100 * step as usize;
        let clients: Vec<String> = (0..CLIENTS_MAX).map(|i| long(first + i)).collect();
        let clients: Vec<_> = clients.iter().map(|name| (name.as_str(), 1.0)).collect();
        let rows: Vec<_> = (first..first + RESOURCES_MAX)
            .map(|i| (long(i), busy(step as f32, &clients)))
            .collect();
        let rows: Vec<_> = rows
            .iter()
            .map(|(scope, one)| (scope.as_str(), one.clone()))
            .collect();
        recorder.record(at(step), &sample(&rows));
        largest = largest.max(recorder.bytes());
        assert!(recorder.resources.len() <= RESOURCES_MAX);
    }
    assert_eq!(recorder.resources.len(), RESOURCES_MAX);
    assert!(largest <= Recorder::BYTES_MAX, "{largest}");
    // The bound is not far from what can be.
    assert!(largest > Recorder::BYTES_MAX / 2, "{largest}");
}

/// Room is made first: `admit` asserts the bound after each resource that it adds.
#[test]
fn the_bound_holds_while_all_resources_make_room_for_others() {
    let mut recorder = Recorder::default();
    let rows = |first: usize| {
        let rows = first..first + RESOURCES_MAX;
        sample_of(rows.map(|i| format!("t/{i:03}")))
    };
    recorder.record(at(1), &rows(0));
    recorder.record(at(2), &rows(RESOURCES_MAX));
    assert_eq!(recorder.resources.len(), RESOURCES_MAX);
    let all_new = recorder.resources.keys();
    let last = format!("t/{:03}", RESOURCES_MAX);
    assert_eq!(all_new.min().unwrap().scope.as_ref(), last);
    // One that is busy still keeps its place.
    recorder.record(at(3), &rows(2 * RESOURCES_MAX - 1));
    assert_eq!(recorder.resources.len(), RESOURCES_MAX);
    let left = format!("t/{:03}", 2 * RESOURCES_MAX - 1);
    assert_eq!(has(&recorder, at(3), &left), [Some(1.0), Some(1.0)]);
}

/// Numbers that only a seed determines: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// A value that is read is that of the sample of its step, whatever was sampled when.
#[test]
fn every_value_is_that_of_its_step() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut recorder = Recorder::default();
        let mut sampled = BTreeMap::new();
        let mut step = 0;
        let longest = [2, 40, 200][seed as usize % 3];
        for _ in 0..random.below(200) {
            step += 1 + random.below(longest);
            let mut one = sample(&[("a", busy(step as f32, &[]))]);
            match random.below(4) {
                0 => one.shards.clear(),
                _ => drop(sampled.insert(step, step as f32)),
            }
            recorder.record(at(step), &one);
        }
        let now = step + random.below(3);
        let window = window_of(&recorder, at(now), &ALL);
        let newest = now - window.newest_age.as_secs() / STEP.as_secs();
        let values = &window.units[&Unit::Requests].has;
        for (age, value) in (0..).zip(values.iter().rev()) {
            let want = newest.checked_sub(age).and_then(|step| sampled.get(&step));
            let value = Some(value).filter(|value| !value.is_nan());
            assert_eq!(value, want, "seed {seed}, age {age}");
        }
        // No sample within the window is left out.
        let oldest = (newest + 1).saturating_sub(STEPS as u64);
        let within = sampled.range(oldest..).count();
        let known = values.iter().filter(|value| !value.is_nan()).count();
        assert_eq!(known, within, "seed {seed}");
    }
}
