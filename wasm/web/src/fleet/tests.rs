use super::*;

fn pass(fleet: &mut Fleet, settings: &Settings, seconds: u64) {
    fleet.advance(Duration::from_secs(seconds), settings);
}

#[test]
fn requests_are_counted_per_second() {
    let settings = Settings::parse("capacity=100&demand=150,20");
    let mut fleet = Fleet::new(&settings);
    pass(&mut fleet, &settings, 30);
    let (east, west) = (fleet.outcome(0), fleet.outcome(1));
    assert!((70.0..=90.0).contains(&east.admitted), "{east:?}");
    assert!(
        (east.admitted + east.refused - 150.0).abs() <= 4.0,
        "{east:?}"
    );
    assert!(
        (west.admitted - 20.0).abs() <= 2.0 && west.refused == 0.0,
        "{west:?}"
    );
    let last = fleet.history().last().unwrap();
    assert!((last.admitted - east.admitted - west.admitted).abs() < 1e-9);
}

#[test]
fn the_history_is_one_minute_long() {
    let settings = Settings::default();
    let mut fleet = Fleet::new(&settings);
    pass(&mut fleet, &settings, 100);
    let points = fleet.history().points();
    assert_eq!(points.clone().count(), crate::history::POINTS_MAX);
    let first = points.clone().next().unwrap();
    assert_eq!(
        (first.at, fleet.history().last().unwrap().at),
        (40.0, 100.0)
    );
}

#[test]
fn each_algorithm_divides_as_it_says() {
    for (algorithm, least, most) in [
        ("fair_share", 95.0, 100.0),
        ("proportional_share", 95.0, 100.0),
        ("usage_share", 95.0, 100.0),
        ("max_rate", 80.0, 100.0),
        ("static", 180.0, 180.0),
    ] {
        let settings = Settings::parse(&format!("algorithm={algorithm}&demand=90,90"));
        let mut fleet = Fleet::new(&settings);
        pass(&mut fleet, &settings, 30);
        let leased = fleet.history().last().unwrap().leases.iter().sum::<f64>();
        assert!(
            (least..=most * 1.001).contains(&leased),
            "{algorithm}: {leased}"
        );
    }
    let settings = Settings::parse("algorithm=none&capacity=10&demand=90,90");
    let mut fleet = Fleet::new(&settings);
    pass(&mut fleet, &settings, 30);
    assert_eq!(fleet.outcome(0).refused, 0.0);
    assert!(fleet.history().last().unwrap().leases.iter().sum::<f64>() < 1000.0);
}
