use serde_json::json;

use super::*;
use crate::demand::Course;
use crate::scenario::{Amount, InTurn, Program, Span};

/// Returns demand of one request a second for five scopes, at the Envoys 10 to 13.
fn routed(routing: Routing) -> RoutedDemand {
    let spec = json!({"scopes": {"prefix": "tenant/t", "count": 5}, "arrivals": "even"});
    let shape = DemandShape::new((0..5).collect(), serde_json::from_value(spec).unwrap());
    let course = Course::new(Rc::new(Program::Constant(Amount(1.0))));
    let stream = RequestStream::new(Duration::ZERO, Rc::new(shape), course, Random::new(1));
    let envoys = vec![10, 11, 12, 13];
    RoutedDemand::new(0, stream, (routing, 0), envoys, Random::new(2))
}

/// Returns the Envoys of so many requests for one scope, of which those in `closed` take none.
fn envoys(demand: &mut RoutedDemand, count: usize, closed: &[usize]) -> Vec<usize> {
    let load = |envoy: usize| (!closed.contains(&envoy)).then_some(0);
    let envoys = (0..count).map(|_| demand.route(3, load).unwrap());
    envoys.collect()
}

#[test]
fn turns_go_on_to_the_next_envoy_that_runs() {
    for routing in [Routing::RoundRobin, Routing::LeastLoaded] {
        let mut demand = routed(routing);
        assert_eq!(envoys(&mut demand, 5, &[]), [10, 11, 12, 13, 10]);
        assert_eq!(envoys(&mut demand, 4, &[11, 12]), [13, 10, 13, 10]);
        assert_eq!(demand.route(3, |_| None), None);
    }
}

#[test]
fn the_least_loaded_envoy_gets_the_request() {
    let mut demand = routed(Routing::LeastLoaded);
    let load = [3, 2, 1, 1];
    assert_eq!(demand.route(0, |envoy| Some(load[envoy - 10])), Some(12));
    assert_eq!(demand.route(0, |envoy| Some(load[envoy - 10])), Some(13));
    assert_eq!(demand.route(0, |envoy| Some(load[envoy - 10])), Some(12));
}

#[test]
fn a_scope_sticks_to_one_envoy_and_others_to_others() {
    let mut demand = routed(Routing::Sticky);
    let at = |demand: &mut RoutedDemand, scope| demand.route(scope, |_| Some(0)).unwrap();
    let all: Vec<usize> = (0..40).map(|scope| at(&mut demand, scope)).collect();
    assert!((10..14).all(|envoy| all.contains(&envoy)), "{all:?}");
    assert_eq!(all[7], at(&mut demand, 7));
    let others = |envoy: usize| (envoy != all[7]).then_some(0);
    let next = demand.route(7, others).unwrap();
    assert_eq!(next, if all[7] == 13 { 10 } else { all[7] + 1 });
    let is_open = |envoy: usize| envoy != all[7];
    assert_eq!(demand.share(next, 7, (3, is_open)), 1.0);
    assert_eq!(demand.share(all[7], 7, (4, |_| true)), 1.0);
    assert_eq!(demand.share(next, 7, (4, |_| true)), 0.0);
}

#[test]
fn random_requests_come_to_all_that_run_alike() {
    let mut demand = routed(Routing::Random);
    let got = envoys(&mut demand, 3000, &[12]);
    for envoy in [10, 11, 13] {
        let count = got.iter().filter(|got| **got == envoy).count();
        assert!((900..1100).contains(&count), "{envoy}: {count}");
    }
    assert_eq!(demand.share(11, 3, (3, |envoy| envoy != 12)), 1.0 / 3.0);
}

#[test]
fn a_caller_in_turn_pauses_before_it_goes_to_the_next_envoy() {
    let turn = InTurn {
        requests: 3,
        pause: Span::from_secs(80),
    };
    let mut demand = routed(Routing::InTurn(turn));
    let mut got = Vec::new();
    while let Some(at) = demand.due().filter(|at| *at < Duration::from_secs(170)) {
        if let Some(request) = demand.take(at) {
            assert!(request.is_first && request.left == 0, "{request:?}");
            got.push((demand.route(request.scope, |_| Some(0)).unwrap(), at));
        }
    }
    let to: Vec<usize> = got.iter().map(|(envoy, _)| *envoy).collect();
    assert_eq!(to, [10, 10, 10, 11, 11, 11, 12, 12, 12]);
    let second = Duration::from_secs(1);
    assert_eq!(got[3].1 - got[2].1, 81 * second);
    assert_eq!(got[4].1 - got[3].1, second);
}

#[test]
fn a_request_that_comes_again_is_taken_in_its_time() {
    let mut demand = routed(Routing::RoundRobin);
    let at = Duration::from_micros(10);
    demand.again.push(Retry {
        at,
        demand: 0,
        scope: 4,
        left: 2,
        final_cost: None,
    });
    assert_eq!(demand.due(), Some(at));
    let request = demand.take(at).unwrap();
    assert_eq!(
        (request.scope, request.left, request.is_first),
        (4, 2, false)
    );
    assert_eq!(demand.take(at).map(|request| request.scope), None);
}
