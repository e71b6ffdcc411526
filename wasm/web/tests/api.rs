//! The playground as the page sees it, in a JavaScript VM: Node, and a real browser.

#![cfg(all(target_family = "wasm", target_os = "unknown"))]

use tollgate_web::Playground;
use wasm_bindgen_test::wasm_bindgen_test;

/// Numbers that look random, from a seed.
struct Numbers(u64);

impl Numbers {
    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Returns the playground of an address, half a minute after its start.
fn settled(hash: &str) -> Playground {
    let mut playground = Playground::new(hash);
    pass(&mut playground, 30);
    playground
}

fn pass(playground: &mut Playground, seconds: u32) {
    for _ in 0..seconds {
        playground.advance(1000.0);
    }
}

#[wasm_bindgen_test]
fn the_capacity_is_divided_and_drawn() {
    let playground = settled("");
    assert_eq!(playground.count(), 5);
    assert!((95.0..=100.0001).contains(&playground.leased()));
    assert!(playground.admitted() > 80.0, "{}", playground.admitted());
    let east = playground.row(0).unwrap();
    assert!(east.is_leased && east.refused > 0.0 && east.state().starts_with("lease, "));
    assert!(playground.row(5).is_none());
    let chart = playground.chart();
    assert!(chart.contains("class=\"band b4\"") && chart.contains("class=\"line limit\""));
    assert!(playground.sentences().contains("no Envoy gets more than"));
}

#[wasm_bindgen_test]
fn the_capacity_is_kept_while_sliders_move_at_random() {
    for seed in 0..8 {
        let mut numbers = Numbers(seed);
        let algorithms = [
            "fair_share",
            "proportional_share",
            "usage_share",
            "max_rate",
        ];
        let algorithm = algorithms[seed as usize % algorithms.len()];
        let mut playground = settled(&format!("algorithm={algorithm}"));
        let capacity = playground.capacity();
        for _ in 0..200 {
            let envoy = numbers.below(5) as usize;
            match numbers.below(12) {
                0 => playground.cut(envoy, numbers.below(2) == 0),
                1 => playground.stop_coordinator(numbers.below(3) == 0),
                2 => playground.restart_coordinator(),
                3 => playground.set_headroom(numbers.below(101) as f64),
                4 => playground.set_safe(numbers.below(50) as f64),
                _ => playground.move_demand(envoy, numbers.below(101) as f64),
            }
            playground.advance(numbers.below(1500) as f64);
            let leased = playground.leased();
            assert!(
                leased <= capacity + 1e-6,
                "seed {seed}: {leased} of {capacity}"
            );
        }
    }
}

#[wasm_bindgen_test]
fn a_capacity_that_moves_is_exceeded_only_until_the_next_refreshes() {
    let mut numbers = Numbers(7);
    let mut playground = settled("demand=60,60,60,60,60");
    for _ in 0..40 {
        playground.move_capacity(numbers.below(101) as f64);
        pass(&mut playground, 3);
        let (leased, capacity) = (playground.leased(), playground.capacity());
        assert!(leased <= capacity + 1e-6, "{leased} of {capacity}");
    }
}

#[wasm_bindgen_test]
fn faults_show_and_are_mended() {
    let mut playground = settled("demand=60,30&safe=5");
    playground.cut(0, true);
    pass(&mut playground, 2);
    assert!(
        playground
            .sentences()
            .starts_with("east is cut off: it uses its lease of ")
    );
    pass(&mut playground, 12);
    let east = playground.row(0).unwrap();
    assert!(
        !east.is_leased && east.has == 0.0 && east.admitted <= 6.0,
        "{east:?}"
    );
    assert!(playground.chart().contains("b0 fallback"));
    playground.cut(0, false);
    playground.restart_coordinator();
    pass(&mut playground, 2);
    assert!(
        playground.sentences().contains("learns for"),
        "{}",
        playground.sentences()
    );
    pass(&mut playground, 30);
    assert!(playground.row(0).unwrap().has >= 58.0);
    assert!(
        playground
            .sentences()
            .starts_with("All Envoys get what they want")
    );
}

#[wasm_bindgen_test]
fn settings_are_kept_in_the_address() {
    let mut playground = settled("");
    playground.set_count(4);
    playground.move_demand(1, 0.0);
    playground.move_capacity(80.0);
    assert!(playground.set_algorithm("static") && !playground.set_algorithm("best"));
    playground.cut(2, true);
    playground.stop_coordinator(true);
    let again = Playground::new(&format!("#{}", playground.hash()));
    assert_eq!(again.hash(), playground.hash());
    assert!(again.is_stopped() && again.row(2).unwrap().is_cut && again.count() == 4);
    assert_eq!(again.capacity_position().round(), 80.0);
    playground.reset();
    assert_eq!(playground.hash(), Playground::new("").hash());
}

#[wasm_bindgen_test]
fn nonsense_from_the_page_does_no_harm() {
    let mut playground = settled("demand=1e400,x&capacity=NaN");
    for wrong in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        playground.move_demand(0, wrong);
        playground.move_demand(99, wrong);
        playground.move_capacity(wrong);
        playground.set_safe(wrong);
        playground.set_headroom(wrong);
        playground.advance(wrong);
        assert!(!playground.chart().contains("NaN"));
    }
    playground.cut(99, true);
    playground.set_count(0);
    assert_eq!(playground.count(), 2);
}

#[wasm_bindgen_test]
fn the_capacity_is_kept_one_lease_after_a_switch_of_the_algorithm() {
    let sharing = [
        "fair_share",
        "proportional_share",
        "usage_share",
        "max_rate",
    ];
    for before in ["none", "static", "max_rate"] {
        for after in sharing {
            let mut playground = settled(&format!("algorithm={before}&demand=90,60,40,20"));
            playground.set_algorithm(after);
            pass(&mut playground, 11);
            let leased = playground.leased();
            assert!(
                (80.0..=100.0 + 1e-6).contains(&leased),
                "{before} to {after}: {leased}"
            );
        }
    }
}
