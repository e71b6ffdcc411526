use core::time::Duration;

use super::*;
use crate::lease::Unit;
use crate::units::Capacity;

const BOUNDS: Bounds = Bounds {
    max_resources: 2,
    max_clients_per_resource: 10,
};

fn refresh(node: &mut Node, now: Instant, scope: &str) -> Result<Answer, RefreshError> {
    let client = ClientId::new("envoy-1/x").unwrap();
    let resource = ResourceId::new(scope, Unit::Requests).unwrap();
    let wants = Capacity::from_whole(5);
    let ask = Ask::new(now.as_nanos(), Capacity::ZERO, wants);
    let limit = Limit::new(Capacity::from_whole(100));
    node.handle_refresh(now, &client, &resource, &ask, &Terms::of(&limit))
}

fn secs(secs: u64) -> Instant {
    Instant::ZERO.saturating_add(Duration::from_secs(secs))
}

#[test]
fn resources_are_bounded_and_collected() {
    let mut node = Node::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    refresh(&mut node, secs(1), "tenant/a").unwrap();
    refresh(&mut node, secs(2), "tenant/b").unwrap();
    let refused = refresh(&mut node, secs(3), "tenant/c").unwrap_err();
    assert_eq!(refused, RefreshError::TooManyResources { max: 2 });

    let client = ClientId::new("envoy-1/x").unwrap();
    let a = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    node.handle_release(&client, &a, u64::MAX);
    refresh(&mut node, secs(4), "tenant/c").unwrap();
    assert_eq!(node.resource_count(), 2);

    // b is not refreshed again: it expires ten seconds after its grant.
    assert_eq!(node.poll_timeout(), Some(secs(12)));
    node.handle_timeout(secs(12));
    let left: std::vec::Vec<_> = node.resources().map(|(id, _)| id.scope.as_ref()).collect();
    assert_eq!(left, ["tenant/c"]);
}

#[test]
fn a_node_learns_for_the_time_of_the_limit_unless_the_fleet_is_new() {
    for (start, at, lends) in [
        (Start::Learning, secs(9), false),
        (Start::Learning, secs(10), true),
        (Start::Fresh, secs(0), true),
    ] {
        let mut node = Node::new(secs(0), Epoch(1), BOUNDS, start);
        let answer = refresh(&mut node, at, "tenant/a").unwrap();
        assert_eq!(answer.lease.is_some(), lends, "{start:?} {at:?}");
    }
}
