//! Soak: one fleet for hours of virtual time, in which tenants, Envoys and masters come and go, and
//! no table may grow for good.
//!
//! Engines and lease servers are the real ones, as in the rest of the simulation. The tables are
//! counted; and because not each has a counter, so are the characters of the debug output of all
//! engines and all servers, which every collection in them makes longer.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::limit::Limit;
use tollgate_core::units::Capacity;
use tollgate_sim::limits::{LimitSource, PoolOfUnit, ScopeLimits, UnitLimit};
use tollgate_sim::scenario::{EventSpec, Program, Scenario, Span};
use tollgate_sim::simulation::Simulation;

/// Length of the soak in a plain run, and the time in which every kind of fault happens once.
const SHORT: [Duration; 2] = [Duration::from_secs(960), Duration::from_secs(60)];
/// The same time in a long run.
const LONG_CYCLE: Duration = Duration::from_secs(600);
/// Steps of a cycle: faults happen, and sizes are taken, at their ends.
const STEPS: u32 = 20;
/// Time after which a rare tenant comes again, in the mean: its leases and its slots are long gone.
const RARE_EVERY: f64 = 3000.0;
/// Number of groups that rare tenants are members of.
const GROUPS: u32 = 500;
/// Part by which the mean of a size may be larger in the last quarter of a run than in the second,
/// and what it may be larger besides.
const GROWTH: (f64, f64) = (0.05, 2.0);

/// Limits of all tenants; every second one is a member of a group.
struct Limits;

/// Names and sizes of all tables, and the memory of this process in KiB if it is alone.
type Row = Vec<(&'static str, f64)>;

// === impl Limits ===

impl LimitSource for Limits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let limits = [
            (Unit::Requests, 40),
            (Unit::ResponseBytes, 1_000_000),
            (Unit::Concurrency, 10),
        ];
        let limits = limits.map(|(unit, capacity)| (unit, limit(capacity)));
        let own = ScopeLimits::own(scope, limits);
        let digits = scope.trim_start_matches(|c: char| !c.is_ascii_digit());
        let Some(number) = digits.parse().ok().filter(|number: &u32| number % 2 == 1) else {
            return own;
        };
        let home: Arc<str> = format!("group/g{}", number / 2 % GROUPS).into();
        let pool = |unit: UnitLimit| UnitLimit {
            pool: Some(PoolOfUnit {
                id: ResourceId {
                    scope: home.clone(),
                    unit: unit.unit,
                },
                limit: limit(1000),
                weight: NonZeroU32::MIN,
            }),
            ..unit
        };
        ScopeLimits {
            units: own.units.into_iter().map(pool).collect(),
            home: home.clone(),
            ..own
        }
    }
}

// === free functions ===

fn limit(capacity: u64) -> Limit {
    Limit::new(Capacity::from_whole(capacity))
}

/// Returns the scenario of a soak without the faults that happen once in a `cycle`.
fn scenario(duration: Duration, cycle: Duration) -> Scenario {
    let scenario = serde_saphyr::from_str(include_str!("soak.yaml"));
    let mut scenario: Scenario = scenario.expect("a scenario");
    (scenario.duration, scenario.sample) = (Span(duration), Span(cycle / STEPS));
    for demand in &mut scenario.demand {
        if let (Some(rare), Some(Program::Constant(rate))) = (&mut demand.scopes, &demand.total) {
            rare.count = (rate.0 * RARE_EVERY.min(duration.as_secs_f64() / 4.0)) as u32;
        }
    }
    scenario
}

/// Returns the fault that happens after so many steps of each cycle.
fn fault(steps: u32, cycle: Duration) -> Option<EventSpec> {
    // The leaf's master and the Envoys in the west live as long as the run: tables that grow would
    // start anew with their owners.
    let fault = match steps {
        2 => json!({"hand_over": {"coordinator": "root", "for": "200ms"}}),
        5 => json!({"crash": {"coordinator": "root", "for": "5s", "followed": true}}),
        8 => json!({"cut": {"region": "west", "for": "15s"}}),
        12 => json!({"stop": {"envoys": {"count": 1}, "for": "5s"}}),
        14 => {
            let every = Span(cycle / 20);
            let east = json!({"group": "east"});
            json!({"deploy": {"envoys": east, "batch": 1, "every": every, "for": "1s"}})
        }
        _ => return None,
    };
    Some(serde_json::from_value(fault).expect("an event"))
}

/// Returns the mean of each size over some samples.
fn means(rows: &[Row]) -> Row {
    let mut means = rows.first().cloned().unwrap_or_default();
    for (i, (_, mean)) in means.iter_mut().enumerate() {
        let sum: f64 = rows.iter().map(|row| row[i].1).sum();
        *mean = sum / rows.len() as f64;
    }
    means
}

/// Returns the sizes that grow from the second quarter of a run to the last, and in each quarter, about as
/// much in one as in the next: what grows for good does, and chance does not.
fn grown(rows: &[Row]) -> Vec<String> {
    let quarter = rows.len() / 4;
    let first = means(&rows[..quarter]);
    let second = means(&rows[quarter..2 * quarter]);
    let third = means(&rows[2 * quarter..3 * quarter]);
    let last = means(&rows[3 * quarter..]);
    let (part, more) = GROWTH;
    let names = first.iter().map(|(name, _)| *name);
    let sizes = names.enumerate().map(|(i, name)| {
        let of = |row: &Row| row[i].1;
        (name, [&first, &second, &third, &last].map(of))
    });
    let grown = sizes.filter(|(_, sizes)| {
        let [_, second, third, last] = *sizes;
        let steps = [third - second, last - third];
        let is_even = steps.iter().all(|step| *step >= (last - second) / 4.0);
        sizes.is_sorted() && is_even && last > second * (1.0 + part) + more
    });
    let texts = grown.map(|(name, [_, second, _, last])| format!("{name}: {second} to {last}"));
    texts.collect()
}

/// Returns the resident memory of this process in KiB.
fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status
        .lines()
        .filter_map(|line| line.strip_prefix("VmRSS:"));
    let size = lines.next().and_then(|size| size.split_whitespace().next());
    size.and_then(|size| size.parse().ok()).unwrap_or(0.0)
}

fn print(title: &str, row: &Row) {
    let sizes: Vec<_> = row
        .iter()
        .map(|(name, size)| format!("{name} {size:.1}"))
        .collect();
    eprintln!("{title}: {}", sizes.join(", "));
}

#[test]
fn the_tables_of_a_fleet_stay_flat() {
    let hours = std::env::var("TOLLGATE_SOAK_HOURS").ok();
    let hours = hours.filter(|hours| !hours.is_empty());
    let hours: Option<NonZeroU32> =
        hours.map(|hours| hours.parse().expect("a whole number of hours, from 1"));
    let [duration, cycle] = match hours {
        Some(hours) => [Duration::from_secs(3600) * hours.get(), LONG_CYCLE],
        None => SHORT,
    };
    let step = cycle / STEPS;
    let steps = duration.div_duration_f64(step) as u32;
    let in_hour = (3600.0 / step.as_secs_f64()) as usize;
    let scenario = scenario(duration, cycle);
    let mut simulation = Simulation::new(scenario, vec![Box::new(Limits)]).expect("a scenario");
    let mut rows = Vec::new();
    for i in 1..=steps {
        simulation.run_until(step * i);
        // Not planned from the start: then fewer and fewer events would be.
        if let Some(fault) = fault(i % STEPS, cycle) {
            simulation.happen(fault).expect("a fault");
        }
        let sizes = simulation.table_sizes();
        let sizes = sizes.named().map(|(name, size)| (name, size as f64));
        let mut row: Row = sizes.collect();
        if hours.is_some() {
            // A run that is asked for has the process for itself.
            row.push(("resident KiB", resident_kib()));
        }
        rows.push(row);
        if rows.len().is_multiple_of(in_hour) {
            let hour = rows.len() / in_hour;
            print(
                &format!("hour {hour}"),
                &means(&rows[rows.len() - in_hour..]),
            );
        }
    }
    for (i, rows) in rows.chunks(rows.len() / 4).enumerate() {
        print(&format!("quarter {}", i + 1), &means(rows));
    }
    eprintln!("{} events, {:?}", simulation.events(), simulation.figures());
    let broken = simulation.violations();
    assert!(broken.is_empty(), "{broken:?}");
    assert_eq!(grown(&rows), [""; 0], "tables that grow");
    let never = means(&rows).into_iter().find(|(_, mean)| *mean == 0.0);
    assert_eq!(never, None, "a table that is never used");
}

#[test]
fn a_table_that_grows_is_found() {
    let rows = |slope: f64| -> Vec<Row> {
        let sizes = (0..400).map(|sample| 100.0 + slope * f64::from(sample));
        sizes
            .map(|size| vec![("flat", 100.0), ("leases", size)])
            .collect()
    };
    assert_eq!(grown(&rows(0.0)), [""; 0]);
    let found = grown(&rows(20.0 / 400.0));
    assert!(
        matches!(&*found, [leases] if leases.starts_with("leases: ")),
        "{found:?}"
    );
}
