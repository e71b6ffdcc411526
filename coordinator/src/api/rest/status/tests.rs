use super::*;
use crate::leases::view::UnitSummary;

fn busy(scope: &str, capacity: Amount, wants: f64) -> BusyResource {
    BusyResource {
        scope: scope.to_owned(),
        unit: "requests".to_owned(),
        summary: UnitSummary {
            capacity,
            safe: Some(Amount::Unlimited),
            learning_ms: 0,
            sum_has: Amount::Number(0.0),
            sum_wants: Amount::Number(wants),
            client_count: 1,
            limited_by: None,
        },
        waiting_count: 0,
        clients: Vec::new(),
    }
}

#[test]
fn the_busiest_of_all_nodes_stand_in_the_order_of_one() {
    let mut all = [
        busy("c", Amount::Unlimited, 1e9),
        busy("b", Amount::Number(100.0), 150.0),
        busy("a", Amount::Number(100.0), 50.0),
        busy("idle", Amount::Number(0.0), 0.0),
        busy("blocked", Amount::Number(0.0), 1.0),
        busy("also-b", Amount::Number(200.0), 300.0),
    ];
    all.sort_by_cached_key(pressure);
    let order: Vec<&str> = all.iter().map(|one| &*one.scope).collect();
    assert_eq!(order, ["blocked", "also-b", "b", "a", "c", "idle"]);
}

#[test]
fn what_a_node_says_is_read_as_it_was_written() {
    let said = busy("a", Amount::Unlimited, 2.5);
    let text = serde_json::to_value(&said).unwrap();
    let read: BusyResource = serde_json::from_value(text).unwrap();
    assert_eq!(read, said);
    for wrong in ["\"much\"", "null", "[]"] {
        assert!(serde_json::from_str::<Amount>(wrong).is_err(), "{wrong}");
    }
}
