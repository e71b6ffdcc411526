//! The fleet's admissions beside those of one ideal bucket.

use tollgate_core::units::Tokens;

use super::*;

/// Returns the finished run of so many Envoys that get `total` requests per second of one scope, with
/// the limit `rate` and `burst`.
fn beside_ideal(envoys: u32, total: f64, limit: (f64, u64)) -> Simulation {
    with_seed(1, envoys, total, limit)
}

fn with_seed(seed: u64, envoys: u32, total: f64, (rate, burst): (f64, u64)) -> Simulation {
    let mut scenario = fleet(envoys, 0.0);
    scenario.seed = seed;
    scenario.duration = Span::from_secs(240);
    scenario.measure_from = Span::from_secs(0);
    scenario.demand[0].each = None;
    scenario.demand[0].total = Some(Program::Constant(Amount(total)));
    scenario.demand[0].arrivals = Arrivals::Poisson;
    let limit = Limit {
        burst: Tokens::from_whole(burst),
        ..Limit::new(Capacity::try_from_f64(rate).unwrap())
    };
    let mut simulation = Simulation::new(scenario, vec![tenants(limit)]).unwrap();
    while simulation.step() {}
    simulation
}

#[test]
fn a_high_rate_is_admitted_as_by_one_bucket() {
    let figures = beside_ideal(2, 1500.0, (1000.0, 1000)).figures();
    assert!(figures.of_ideal.unwrap() > 0.99, "{figures:?}");
    assert!(figures.beyond_ideal <= 10.0, "{figures:?}");
}

#[test]
fn forty_envoys_admit_what_one_bucket_admits() {
    let run = beside_ideal(40, 1.0, (100.0 / 60.0, 100));
    let figures = run.figures();
    assert!(figures.of_ideal.unwrap() > 0.99, "{figures:?}");
    assert_eq!(figures.of_ideal, figures.least_of_ideal);
    let of_samples = |of: fn(&crate::sample::ScopeSample) -> f64| {
        let scopes = run.samples().iter().map(|sample| &sample.scopes[0]);
        scopes.map(of).sum::<f64>()
    };
    let (ideal, admitted) = (
        of_samples(|scope| scope.ideal.unwrap()),
        of_samples(|scope| scope.admitted),
    );
    let part = admitted / ideal;
    assert!(
        (part - figures.of_ideal.unwrap()).abs() < 1e-6,
        "{figures:?}"
    );
}

#[test]
fn envoys_that_count_alone_admit_more_than_one_bucket() {
    let mut scenario = fleet(3, 50.0);
    scenario.measure_from = Span::from_secs(0);
    let limits = limits(&[100]);
    let alone = Some(Algorithm::Static);
    let mut run = Simulation::with_algorithm(scenario, limits, alone).unwrap();
    while run.step() {}
    let figures = run.figures();
    // 150 in each of 30 seconds, of which 100 and the burst are allowed.
    let beyond = 30.0 * 50.0 - 100.0;
    assert!((figures.beyond_ideal - beyond).abs() < 10.0, "{figures:?}");
    assert!(
        figures.beyond_rest > 0.9 * beyond,
        "nothing explains it: {figures:?}"
    );
    assert!(figures.least_of_ideal.unwrap() > 1.4, "{figures:?}");
    assert_eq!(figures.of_ideal, Some(1.0));
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
        let runs = (0..8).map(|seed| with_seed(seed, envoys, rate * load, (rate, burst)).figures());
        let runs: Vec<_> = runs.collect();
        let part = runs.iter().map(|run| run.of_ideal.unwrap()).sum::<f64>() / 8.0;
        let beyond = runs
            .iter()
            .fold(0.0, |most: f64, run| most.max(run.beyond_ideal));
        eprintln!("{per_minute} | {burst} | {envoys} | {load} | {part:.2} | {beyond:.1}");
        assert!(
            part * 100.0 >= f64::from(least),
            "{per_minute}, {load}: {part}"
        );
        assert!(
            beyond <= f64::from(envoys),
            "{per_minute}, {load}: {beyond}"
        );
    }
}
