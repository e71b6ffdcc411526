use super::*;

fn id(scope: &str) -> ResourceId {
    ResourceId::new(scope, Unit::Requests).unwrap()
}

/// A window of whose values the last are `values`.
fn line(values: &[f32]) -> Vec<f32> {
    let mut values = values.to_vec();
    fit(&mut values);
    values
}

fn resource(has: &[f32], wants: &[f32], at_most: &[f32]) -> ResourceWindow {
    ResourceWindow {
        at_most: line(at_most),
        has: line(has),
        wants: line(wants),
        waiting: line(&[]),
        clients: BTreeMap::from([("x".to_owned(), line(has))]),
    }
}

/// A window of some age with a number of shards and the sum of leases at its last steps, and the
/// leases of the resource `a`.
fn window(age_ms: u64, shards: &[f32], has: &[f32]) -> HistoryWindow {
    let sums = UnitWindow {
        capacity: line(&[]),
        has: line(has),
        wants: line(&[]),
        waiting: line(&[]),
    };
    HistoryWindow {
        newest_age: Duration::from_millis(age_ms),
        shards: line(shards),
        units: BTreeMap::from([(Unit::Requests, sums)]),
        resources: BTreeMap::from([(id("a"), resource(has, &[], &[]))]),
    }
}

/// The last `count` values, `None` for gaps.
fn last(values: &[f32], count: usize) -> Vec<Option<f32>> {
    assert_eq!(values.len(), STEPS);
    let values = values.iter().skip(STEPS - count);
    values
        .map(|value| (!value.is_nan()).then_some(*value))
        .collect()
}

#[test]
fn steps_of_several_nodes_are_aligned_by_their_age() {
    // The age of the other window, and what its values 10, 20, 40 become beside 1, 2, NaN.
    let rows: [(u64, [Option<f32>; 4]); 6] = [
        (1000, [None, Some(11.0), Some(22.0), Some(40.0)]),
        (3400, [None, Some(11.0), Some(22.0), Some(40.0)]),
        (6100, [Some(10.0), Some(21.0), Some(42.0), None]),
        (8000, [Some(10.0), Some(21.0), Some(42.0), None]),
        (11_000, [Some(20.0), Some(41.0), Some(2.0), None]),
        (900_000, [None, Some(1.0), Some(2.0), None]),
    ];
    for (age_ms, want) in rows {
        let mut one = window(1000, &[1.0, 1.0, GAP], &[1.0, 2.0, GAP]);
        one.merge(window(age_ms, &[2.0; 3], &[10.0, 20.0, 40.0]));
        let sums = &one.units[&Unit::Requests];
        assert_eq!(last(&sums.has, 4), want, "{age_ms}");
        assert_eq!(one.newest_age.as_millis(), 1000);
    }
    // The other is the younger one: of ours the oldest steps have no match.
    let mut one = window(9000, &[], &[1.0, 2.0, 3.0]);
    one.merge(window(4000, &[], &[10.0, 20.0, 40.0]));
    let sums = &one.units[&Unit::Requests];
    assert_eq!(last(&sums.has, 3), [Some(1.0), Some(12.0), Some(23.0)]);
}

#[test]
fn a_resource_that_moves_does_not_count_twice() {
    let mut one = window(0, &[1.0, 1.0, GAP], &[5.0, 5.0, GAP]);
    one.merge(window(0, &[GAP, 1.0, 1.0], &[GAP, 4.0, 6.0]));
    let a = &one.resources[&id("a")];
    let want = [Some(5.0), Some(5.0), Some(6.0)];
    assert_eq!(last(&a.has, 3), want);
    assert_eq!(last(&a.clients["x"], 3), want);
    // The sums cannot tell what they have twice, but the number of shards says at which step.
    one.drop_uneven(1);
    let sums = &one.units[&Unit::Requests];
    assert_eq!(last(&sums.has, 3), [Some(5.0), None, Some(6.0)]);
}

#[test]
fn a_newest_step_that_not_all_nodes_have_sampled_yet_is_a_gap() {
    let rows = [
        ([2.0, 2.0, 2.0], Some(3.0)),
        ([2.0, 2.0, 1.0], None),
        // Nobody leads the other shard any more.
        ([2.0, 1.0, 1.0], Some(3.0)),
        ([1.0, 1.0, 2.0], Some(3.0)),
    ];
    for (shards, want) in rows {
        let mut one = window(0, &shards, &[1.0, 2.0, 3.0]);
        one.drop_uneven(2);
        let sums = &one.units[&Unit::Requests];
        assert_eq!(
            last(&sums.has, 3),
            [Some(1.0), Some(2.0), want],
            "{shards:?}"
        );
    }
}

#[test]
fn a_window_of_another_length_fits() {
    let mut one = window(0, &[], &[1.0]);
    let mut short = window(0, &[], &[]);
    short.units.get_mut(&Unit::Requests).unwrap().has = vec![7.0, 8.0];
    one.merge(short);
    let mut long = window(0, &[], &[]);
    long.units.get_mut(&Unit::Requests).unwrap().has = vec![100.0; STEPS + 9];
    one.merge(long);
    let sums = &one.units[&Unit::Requests];
    assert_eq!(last(&sums.has, 3), [Some(100.0), Some(107.0), Some(109.0)]);
    one.merge(HistoryWindow::default());
    assert_eq!(one.units[&Unit::Requests].has.len(), STEPS);
}

#[test]
fn the_busiest_of_all_steps_come_first() {
    let resources = [
        ("idle", resource(&[], &[0.0], &[9.0])),
        ("unlimited", resource(&[], &[900.0], &[f32::INFINITY])),
        ("half", resource(&[], &[50.0, 50.0], &[100.0, 100.0])),
        ("over", resource(&[], &[GAP, 300.0], &[GAP, 100.0])),
        ("blocked", resource(&[], &[1.0], &[0.0])),
        ("large half", resource(&[], &[500.0, 500.0], &[1e3, 1e3])),
    ];
    let of = |max| {
        let selection = WindowSelection::Busiest(max, None);
        let window = HistoryWindow {
            resources: resources
                .iter()
                .map(|(name, one)| (id(name), one.clone()))
                .collect(),
            ..HistoryWindow::default()
        };
        let busiest = window.cut(&selection).into_busiest().into_iter();
        busiest
            .map(|(id, _)| id.scope.to_string())
            .collect::<Vec<_>>()
    };
    let want = ["blocked", "over", "large half", "half", "unlimited", "idle"];
    assert_eq!(of(9), want);
    assert_eq!(of(2), want[..2]);
}

#[test]
fn a_selection_has_one_scope_or_one_unit() {
    let concurrency = ResourceId::new("a", Unit::Concurrency).unwrap();
    let rows = [
        (WindowSelection::Busiest(1, None), [true, true, true]),
        (
            WindowSelection::Busiest(1, Some(Unit::Requests)),
            [true, true, false],
        ),
        (WindowSelection::Scope("a".to_owned()), [true, false, true]),
    ];
    for (selection, want) in rows {
        let ids = [&id("a"), &id("ab"), &concurrency];
        assert_eq!(ids.map(|id| selection.admits(id)), want, "{selection:?}");
    }
}
