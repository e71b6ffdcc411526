//! Nudges: their gain for a fleet, and the ends of their streams.

use super::*;
use crate::observer::MessageContent;

/// Returns a scenario in which two of four Envoys want much less for a while, twice.
fn moving() -> Scenario {
    let mut scenario = fleet(4, 60.0);
    scenario.sample = Span::from_millis(100);
    scenario.measure_from = Span::from_secs(2);
    scenario.envoys = ["one", "other"]
        .map(|name| written(json!({"name": name, "count": 2})))
        .into();
    let less = json!({"envoys": {"group": "one"}, "times": 0.1, "for": "5s"});
    scenario.events = [10, 20].map(|at| event(at, "demand", less.clone())).into();
    scenario
}

fn figures(mut scenario: Scenario, nudges: bool) -> Figures {
    scenario.nudges = nudges;
    let run = run(scenario, &[160]);
    assert_eq!(run.violations(), []);
    run.figures()
}

#[test]
fn a_fleet_with_nudges_is_fair_again_sooner() {
    let [with, without] = [true, false].map(|nudges| figures(moving(), nudges));
    assert!(with.nudges > 0 && without.nudges == 0, "{with:?}");
    let [soon, late] = [&with, &without].map(|figures| figures.time_to_fair.unwrap());
    assert!(2.0 * soon < late, "{soon} {late}");
    assert!(with.of_attainable > without.of_attainable, "{with:?}");
}

/// Returns the same scenario with a coordinator for each half of the Envoys, below a root.
fn tree() -> Scenario {
    let mut scenario = moving();
    scenario.coordinators = written(json!([
        {"name": "root"},
        {"name": "one", "parent": "root"},
        {"name": "other", "parent": "root"},
    ]));
    for group in &mut scenario.envoys {
        group.coordinator = Some(group.name.clone());
    }
    scenario
}

#[test]
fn nudges_go_down_a_tree() {
    let [with, without] = [true, false].map(|nudges| figures(tree(), nudges));
    let [soon, late] = [&with, &without].map(|figures| figures.time_to_fair.unwrap());
    assert!(with.nudges > 0 && 2.0 * soon < late, "{soon} {late}");
}

/// Counts the names that the root sends.
#[derive(Clone, Default)]
struct RootNudges(Rc<Cell<u64>>);

impl Observer for RootNudges {
    fn message(&mut self, message: &SentMessage<'_>) {
        if let (0, MessageContent::Nudge(_)) = (message.level, message.content) {
            self.0.set(self.0.get() + 1);
        }
    }
}

#[test]
fn a_new_master_of_the_parent_is_watched_again() {
    let mut scenario = tree();
    let how = json!({"coordinator": "root", "for": "2s"});
    scenario.events.push(event(3, "crash", how));
    let mut run = Simulation::new(scenario, limits(&[160])).unwrap();
    run.run_until(Duration::from_secs(15));
    let nudges = RootNudges::default();
    run.observe(Box::new(nudges.clone()));
    while run.step() {}
    assert!(nudges.0.get() > 0);
}

#[test]
fn streams_end_with_the_coordinator_and_open_again() {
    let nudges = |hand_over: Option<EventSpec>| {
        let mut scenario = moving();
        scenario.events.extend(hand_over);
        let mut run = Simulation::new(scenario, limits(&[160])).unwrap();
        [9_900, 10_800, 19_900, 30_000].map(|elapsed| {
            run.run_until(Duration::from_millis(elapsed));
            run.figures().nudges
        })
    };
    let [before, after, ..] = nudges(None);
    assert!(after > before, "{before} {after}");
    let how = json!({"coordinator": "coordinator", "for": "50ms"});
    let hand_over = written(json!({"at": "9900ms", "hand_over": how}));
    let [before, after, later, end] = nudges(Some(hand_over));
    assert_eq!(
        after, before,
        "an Envoy waits a second before it opens another stream"
    );
    assert!(end > later, "{later} {end}");
}
