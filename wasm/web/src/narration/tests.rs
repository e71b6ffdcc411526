use super::*;

fn leased(wants: f64, has: f64, left: u64) -> EnvoyStatus {
    EnvoyStatus {
        wants,
        has,
        rate: has,
        fallback: 20.0,
        lease_left: Some(Duration::from_millis(left * 1000 - 300)),
        ..EnvoyStatus::default()
    }
}

fn without_lease(wants: f64, rate: f64) -> EnvoyStatus {
    EnvoyStatus {
        wants,
        rate,
        fallback: rate,
        ..EnvoyStatus::default()
    }
}

fn sentences(hash: &str, coordinator: CoordinatorStatus, envoys: &[EnvoyStatus]) -> String {
    let settings = Settings::parse(hash);
    let scene = Scene {
        settings: &settings,
        coordinator,
        envoys,
    };
    scene.sentences().join(" ")
}

#[test]
fn an_envoy_that_is_cut_off_is_told_of_with_its_lease_and_then_without() {
    let hash = "safe=20&demand=60,30&cut=east";
    let lending = CoordinatorStatus::Lending;
    let during = [leased(60.0, 60.0, 7), leased(30.0, 30.0, 9)];
    assert_eq!(
        sentences(hash, lending, &during),
        "east is cut off: it uses its lease of 60 for 7 s more, then its safe capacity of 20. \
         All Envoys get what they want: together 90 of 100 requests per second."
    );
    let after = [without_lease(60.0, 20.0), leased(30.0, 30.0, 9)];
    let text = sentences(hash, lending, &after);
    assert!(
        text.starts_with("east is cut off and has no lease: it admits its safe capacity of 20,"),
        "{text}"
    );
}

#[test]
fn a_coordinator_that_is_stopped_leaves_leases_and_then_safe_capacities() {
    let hash = "demand=60,30&coordinator=stopped";
    let down = CoordinatorStatus::Down;
    let text = sentences(hash, down, &[leased(60.0, 60.0, 7), leased(30.0, 30.0, 9)]);
    assert!(
        text.contains("for at most 9 s more, and then its safe capacity of 20."),
        "{text}"
    );
    let text = sentences(hash, down, &[without_lease(60.0, 10.0); 2]);
    assert!(text.contains("all 2 together at most 20."), "{text}");
    let learning = CoordinatorStatus::Learning(Duration::from_secs(4));
    let text = sentences(hash, learning, &[leased(60.0, 60.0, 7); 2]);
    assert!(text.contains("learns for 4 s more"), "{text}");
}

#[test]
fn the_division_is_explained_by_algorithm() {
    let envoys = [leased(90.0, 70.0, 9), leased(30.0, 30.0, 9)];
    let rows = [
        (
            "fair_share",
            "want 120 of 100: no Envoy gets more than 70. west wants less and gets all of it.",
        ),
        ("proportional_share", "Each is sure of an equal part, 50;"),
        ("usage_share", "in proportion to what it used."),
        (
            "max_rate",
            "Envoys that are not busy give to those that are.",
        ),
        ("static", "all 2 together up to 200."),
        ("none", "all 120 requests per second pass."),
    ];
    for (algorithm, want) in rows {
        let hash = format!("demand=90,30&algorithm={algorithm}");
        let text = sentences(&hash, CoordinatorStatus::Lending, &envoys);
        assert!(text.contains(want), "{algorithm}: {text}");
    }
    let text = sentences(
        "capacity=50&demand=90,30",
        CoordinatorStatus::Lending,
        &envoys,
    );
    assert!(text.contains("sum to 100, more than 50"), "{text}");
}

#[test]
fn an_envoy_with_less_than_others_has_all_that_it_asks_for() {
    let envoys = [
        leased(90.0, 40.0, 9),
        leased(44.0, 40.0, 9),
        leased(9.0, 8.4, 9),
    ];
    let text = sentences("demand=90,44,9", CoordinatorStatus::Lending, &envoys);
    assert!(
        text.ends_with("more than 40. north wants less and gets all of it."),
        "{text}"
    );
}
