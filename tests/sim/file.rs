//! Printed plans, read as `tollgate simulate` reads them.

use serde_json::{Map, Value};
use tollgate_sim::limits::LimitSource;
use tollgate_sim::scenario::Scenario;
use tollgate_sim::simulation::Simulation;

use crate::limits;
use crate::plan::Plan;

/// Returns the digests of a plan's course, and of that of the same plan printed.
fn digests(plan: &Plan) -> [u64; 2] {
    let sources = plan
        .sources
        .iter()
        .map(|source| Box::new(source.clone()) as _);
    let planned = play(plan.scenario.clone(), sources.collect());
    let mut file: Map<String, Value> = serde_saphyr::from_str(&plan.to_string()).expect("YAML");
    let mut sources = vec![take_limits(&mut file).expect("limits")];
    for list in ["events", "coordinators"] {
        let entries = file.get_mut(list).and_then(Value::as_array_mut);
        let entries = entries.into_iter().flatten();
        for entry in entries.filter_map(Value::as_object_mut) {
            if let Some(more) = take_limits(entry) {
                entry.insert("limits".to_owned(), sources.len().into());
                sources.push(more);
            }
        }
    }
    let scenario = serde_json::from_value(file.into()).expect("a scenario");
    [planned, play(scenario, sources)]
}

/// Takes the limits out of a mapping, if it has any.
fn take_limits(map: &mut Map<String, Value>) -> Option<Box<dyn LimitSource>> {
    let sections = ["limits", "groups", "attach"];
    let sections = sections.map(|name| Some((name.to_owned(), map.remove(name)?)));
    let sections: Map<String, Value> = sections.into_iter().flatten().collect();
    (!sections.is_empty()).then(|| Box::new(limits::source(&sections)) as Box<dyn LimitSource>)
}

/// Returns the digest of a scenario's course.
fn play(scenario: Scenario, limits: Vec<Box<dyn LimitSource>>) -> u64 {
    let simulation = Simulation::new(scenario, limits);
    let mut simulation = simulation.unwrap_or_else(|broken| panic!("{broken:?}"));
    while simulation.step() {}
    simulation.digest()
}

#[test]
fn a_printed_plan_plays_the_same_course() {
    let kinds = [
        Plan::of_requests,
        Plan::of_other_units,
        Plan::of_usage,
        Plan::of_trees,
        Plan::of_usage_in_trees,
    ];
    let mut last = 0;
    for (seed, make) in (0..15).zip(kinds.into_iter().cycle()) {
        let plan = make(seed);
        let [planned, printed] = digests(&plan);
        assert_eq!(planned, printed, "seed {seed}:\n{plan}");
        assert_ne!(planned, last, "seeds differ");
        last = planned;
    }
}
