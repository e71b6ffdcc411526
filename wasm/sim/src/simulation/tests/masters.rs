use super::*;
use crate::defect::Defect;
use crate::scenario::NetworkSpec;
use crate::simulation::reached::Case;

const SCOPE: &str = "tenant/acme";

/// Returns the sum of the leases that the master at a place counts.
fn lent(simulation: &Simulation, coordinator: usize) -> f64 {
    let view = simulation.coordinator(coordinator).unwrap();
    let master = view.master(&SCOPE.into());
    let mut resources = master.into_iter().flat_map(|master| master.resources());
    resources.next().map_or(0.0, |(_, resource)| {
        Capacity::from_sum(resource.sum_has()).as_f64()
    })
}

/// Returns a fleet whose master is cut off from the election, and is silent for some time.
fn without_election(asleep: u64) -> Scenario {
    let mut scenario = fleet(3, 100.0);
    let how = json!({
        "coordinator": "coordinator", "term": "2s", "elected_after": "5s",
        "asleep": Span::from_secs(asleep), "for": "12s",
    });
    scenario.events = vec![event(10, "lose_term", how)];
    scenario
}

#[test]
fn a_master_that_was_cut_off_serves_until_its_term_ends() {
    for (asleep, waits) in [(0, false), (8, true)] {
        let mut simulation = Simulation::new(without_election(asleep), limits(&[300])).unwrap();
        let epoch = |simulation: &Simulation| {
            let view = simulation.coordinator(0).unwrap();
            view.epoch(&SCOPE.into()).0
        };
        simulation.run_until(Duration::from_secs(12));
        assert_eq!(epoch(&simulation), 1);
        simulation.run_until(Duration::from_secs(16));
        assert_eq!(epoch(&simulation), 2);
        simulation.run_until(Duration::MAX);
        assert_eq!(simulation.violations(), []);
        let reached = simulation.reached();
        assert!(reached.of(Case::NotMaster) > 0, "{reached:?}");
        assert_eq!(reached.of(Case::WaitedInSocket) > 0, waits, "{reached:?}");
        assert!(lent(&simulation, 0) > 299.0);
    }
}

#[test]
fn a_master_that_ignores_its_term_is_never_refused() {
    let mut simulation = Simulation::new(without_election(0), limits(&[300])).unwrap();
    simulation.inspect(Some(Defect::WithoutTerms));
    simulation.run_until(Duration::MAX);
    assert_eq!(simulation.reached().of(Case::NotMaster), 0);
}

#[test]
fn a_cut_with_all_below_leaves_these_connected() {
    let mut scenario = fleet(2, 100.0);
    scenario.coordinators = chain(&["root", "leaf"]);
    scenario.envoys[0].coordinator = Some("leaf".to_owned());
    for (with_below, keeps) in [(true, true), (false, false)] {
        let mut scenario = scenario.clone();
        let how = json!({"coordinator": "leaf", "with_below": with_below, "for": "15s"});
        scenario.events = vec![event(10, "cut", how)];
        let mut simulation = Simulation::new(scenario, limits(&[150])).unwrap();
        simulation.run_until(Duration::from_secs(18));
        let fresh = simulation.reached().of(Case::Answered);
        simulation.run_until(Duration::from_secs(19));
        let answered = simulation.reached().of(Case::Answered) > fresh;
        assert_eq!(answered, keeps, "with_below: {with_below}");
    }
}

#[test]
fn a_coordinator_may_have_limits_of_its_own() {
    let mut scenario = fleet(2, 100.0);
    scenario.coordinators = chain(&["root", "leaf"]);
    scenario.coordinators[1].limits = Some(1);
    scenario.envoys[0].coordinator = Some("leaf".to_owned());
    let run = run(scenario, &[150, 60]);
    let last = run.samples().last().unwrap();
    assert!((last.has - 60.0).abs() < 1.0, "{last:?}");
    assert!(lent(&run, 0) >= 60.0, "the root counts it");
}

#[test]
fn a_network_is_calm_after_its_time_of_faults() {
    let mut scenario = fleet(3, 100.0);
    scenario.network = NetworkSpec {
        loss: Share(0.5),
        duplication: Share(0.5),
        late_copies: Share(0.5),
        unreported: Share(0.5),
        calm_from: Span::from_secs(15),
        ..NetworkSpec::default()
    };
    let mut simulation = Simulation::new(scenario, limits(&[150])).unwrap();
    simulation.run_until(Duration::from_secs(16));
    let of = |simulation: &Simulation, case| simulation.reached().of(case);
    let lost = of(&simulation, Case::Lost);
    assert!(lost > 0 && of(&simulation, Case::Stale) > 0);
    // The last late copy comes within three seconds.
    simulation.run_until(Duration::from_secs(19));
    let stale = of(&simulation, Case::Stale);
    simulation.run_until(Duration::MAX);
    assert_eq!(of(&simulation, Case::Lost), lost);
    assert_eq!(of(&simulation, Case::Stale), stale);
    assert!(lent(&simulation, 0) > 149.0);
}
