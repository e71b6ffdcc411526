//! The fleet's admissions beside those of one ideal bucket.

use super::*;
use crate::figures::LimitFigures;

/// Limit on one unit of all scopes.
#[derive(Debug)]
struct UnitLimits(Unit, u64);

impl LimitSource for UnitLimits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let limit = Limit::new(Capacity::from_whole(self.1));
        ScopeLimits::own(scope, [(self.0, limit)])
    }
}

/// Returns the figures of a run of so many Envoys that get `total` requests per second of one scope,
/// with the limit `rate` and `burst`; and those of the limit.
fn beside_ideal(
    (envoys, total): (u32, f64),
    (rate, burst): (f64, u64),
    more: Value,
    defect: Option<Defect>,
) -> (Figures, LimitFigures) {
    let mut scenario = fleet(envoys, 0.0, more);
    scenario.measure_from = Span::default();
    let demand = &mut scenario.demand[0];
    (demand.each, demand.arrivals) = (None, Arrivals::Poisson);
    demand.total = Some(Program::Constant(Amount(total)));
    let limit = Limit {
        burst: Tokens::from_whole(burst),
        ..limit(rate)
    };
    let mut simulation = Simulation::new(scenario, tenants(limit)).unwrap();
    if defect.is_some() {
        simulation.inspect(defect);
    }
    while simulation.step() {}
    assert_eq!(simulation.violations(), []);
    let limit = simulation.limit_figures().remove(0);
    (simulation.figures(), limit)
}

#[test]
fn envoys_that_count_alone_admit_more_than_one_bucket() {
    let alone = Some(Algorithm::Static);
    let scenario = fleet(3, 50.0, json!({"measure_from": "0"}));
    let mut run = Simulation::with_algorithm(scenario, tenants(limit(100.0)), alone).unwrap();
    while run.step() {}
    let figures = run.figures();
    // 150 in each of 30 seconds, of which 100 and the burst are allowed.
    let beyond = 30.0 * 50.0 - 100.0;
    assert!((figures.beyond_ideal - beyond).abs() < 10.0, "{figures:?}");
    assert!(
        figures.beyond_rest > 0.9 * beyond,
        "unexplained: {figures:?}"
    );
    assert!(figures.least_of_ideal.unwrap() > 1.4, "{figures:?}");
    assert_eq!(figures.of_ideal, Some(1.0));
}

#[test]
fn excess_without_a_lease_is_told_from_other_excess() {
    // Leases end after 10 s; then each of three Envoys has 20.
    let crash = json!({"coordinator": "coordinator", "for": "100s"});
    let more = json!({
        "envoys": [{"count": 3, "safe": 20}], "events": [{"at": "5s", "crash": crash}],
    });
    let (_, limit) = beside_ideal((3, 300.0), (40.0, 40), more, None);
    assert!(limit.beyond > 100.0, "{limit:?}");
    assert!(limit.beyond_safe > 0.8 * limit.beyond, "{limit:?}");
    assert!(limit.beyond_rest < 20.0, "{limit:?}");
}

#[test]
fn a_coordinator_that_crashes_brings_no_token_back() {
    let crash = json!({"coordinator": "coordinator", "for": "2s"});
    let events = ["20s", "50s", "80s"].map(|at| json!({"at": at, "crash": crash}));
    let more = json!({"duration": "120s", "events": events});
    let crashes = |defect| beside_ideal((3, 1.0), (0.01, 10), more.clone(), defect).1;
    let durable = crashes(None);
    assert_eq!(durable.beyond_rest, 0.0, "{durable:?}");
    assert!(durable.admitted >= durable.ideal, "{durable:?}");
    let lost = crashes(Some(Defect::ForgottenBuckets));
    assert!(lost.beyond_rest >= 9.0, "{lost:?}");
}

/// A lease of ten seconds ends meanwhile, and shares change.
#[test]
fn requests_that_outlast_their_lease_stay_counted() {
    for (envoys, max, rate) in [(2, 5, 2.0), (5, 5, 3.0), (10, 20, 20.0)] {
        let demand = json!([{
            "scope": "tenant/acme", "each": rate / f64::from(envoys), "takes": "14s",
        }]);
        let more = json!({"measure_from": "0", "demand": demand});
        let limits = Box::new(UnitLimits(Unit::Concurrency, max));
        let mut run = Simulation::new(fleet(envoys, 0.0, more), vec![limits]).unwrap();
        while run.step() {}
        let limit = run.limit_figures().remove(0);
        assert_eq!(limit.beyond, 0.0, "{envoys} Envoys: {limit:?}");
        assert!(limit.admitted * 10 >= limit.ideal * 9, "{limit:?}");
    }
}

/// `cargo test -p tollgate-sim low_limits -- --nocapture` prints the figures of `docs/benchmarks.md`.
#[test]
fn low_limits_are_used_and_never_exceeded() {
    // Limit per minute, burst, Envoys, load, and the least part in percent of what one bucket admits.
    let rows = [
        (7, 7, 3, 0.7, 99),
        (7, 7, 3, 4.0, 99),
        (45, 45, 4, 0.9, 99),
        (300, 300, 5, 0.8, 99),
        (300, 300, 5, 1.2, 99),
        (1200, 5, 3, 0.9, 60),
    ];
    eprintln!("limit per minute | burst | Envoys | load | admitted of one bucket's | beyond");
    for (per_minute, burst, envoys, load, least) in rows {
        let rate = f64::from(per_minute) / 60.0;
        let (mut part, mut beyond) = (0.0, 0.0_f64);
        for seed in 0..8 {
            let more = json!({"duration": "240s", "seed": seed});
            let of = beside_ideal((envoys, rate * load), (rate, burst), more, None).0;
            part += of.of_ideal.unwrap() / 8.0;
            beyond = beyond.max(of.beyond_ideal);
        }
        let row = format!("{per_minute} | {burst} | {envoys} | {load} | {part:.2} | {beyond:.1}");
        eprintln!("{row}");
        assert!(part * 100.0 >= f64::from(least), "{row}");
        assert!(beyond <= f64::from(envoys), "{row}");
    }
}
