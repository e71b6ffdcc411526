//! Masters that learn for less than a lease, and what is lent meanwhile.

use super::*;

#[test]
fn a_time_without_a_master_counts_as_learning_but_for_a_tenth() {
    for (vacant, learned) in [
        (0, secs(110)),
        (5, Instant::from_nanos(105_500_000_000)),
        (10, secs(101)),
        (11, Instant::from_nanos(100_100_000_000)),
        (12, secs(100)),
        (1000, secs(100)),
    ] {
        let since = secs(100).saturating_sub(Duration::from_secs(vacant));
        let start = Start::Vacant { since };
        let mut node = LeaseServer::new(secs(100), Epoch(1), BOUNDS, start);
        refresh(&mut node, secs(100), "tenant/a").unwrap();
        let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
        let until = node.resource(&resource).unwrap().learning_until();
        assert_eq!(until, learned, "{vacant}");
        // Its successor goes on so.
        let snapshot = node.hand_over(secs(100));
        let mut node = LeaseServer::take_over(secs(200), Epoch(2), BOUNDS, &snapshot).unwrap();
        refresh(&mut node, secs(200), "tenant/b").unwrap();
        let resource = ResourceId::new("tenant/b", Unit::Requests).unwrap();
        let until = node.resource(&resource).unwrap().learning_until();
        assert_eq!(
            until.saturating_since(secs(200)),
            learned.saturating_since(secs(100))
        );
    }
}

#[test]
fn a_changed_configuration_ends_what_is_known_of_a_time_without_a_master() {
    let since = secs(90);
    let mut node = LeaseServer::new(secs(100), Epoch(1), BOUNDS, Start::Vacant { since });
    node.forget_vacancy();
    refresh(&mut node, secs(100), "tenant/a").unwrap();
    let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    let until = node.resource(&resource).unwrap().learning_until();
    assert_eq!(until, secs(110));
}
