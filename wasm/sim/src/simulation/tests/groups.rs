//! Groups: tenants that share one capacity.

use std::num::NonZeroU32;

use tollgate_core::lease::ResourceId;

use super::*;
use crate::limits::{PoolOfUnit, UnitLimit};

const GROUP: &str = "group/gold";

/// Limits of tenants that share a group of so much capacity.
#[derive(Clone, Copy, Debug)]
enum GroupLimits {
    Members(u64),
    Clients(u64),
}

// === impl GroupLimits ===

impl LimitSource for GroupLimits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let (Self::Members(capacity) | Self::Clients(capacity)) = *self;
        let limit = Limit::new(Capacity::from_whole(capacity));
        let member = Limit {
            capacity: Capacity::UNLIMITED,
            ..limit.clone()
        };
        match self {
            Self::Clients(_) if **scope == *GROUP => {
                ScopeLimits::own(scope, [(Unit::Requests, limit)])
            }
            Self::Clients(_) => ScopeLimits {
                canonical: GROUP.into(),
                limited: vec![Unit::Requests],
                ..ScopeLimits::own(scope, [])
            },
            Self::Members(_) => ScopeLimits {
                home: GROUP.into(),
                limited: vec![Unit::Requests],
                units: vec![UnitLimit {
                    unit: Unit::Requests,
                    limit: member,
                    pool: Some(PoolOfUnit {
                        id: ResourceId::new(GROUP, Unit::Requests).unwrap(),
                        limit,
                        weight: NonZeroU32::MIN,
                    }),
                }],
                ..ScopeLimits::own(scope, [])
            },
        }
    }
}

/// Returns a scenario of four Envoys that want 100 each for one tenant, and 10 for another.
fn two_tenants() -> Scenario {
    let mut scenario = fleet(4, 100.0);
    scenario.demand.push(DemandSpec {
        scope: Some("tenant/small".to_owned()),
        each: Some(Program::Constant(Amount(10.0))),
        arrivals: Arrivals::Even,
        ..DemandSpec::default()
    });
    scenario
}

fn run(scenario: Scenario, limits: &[GroupLimits]) -> Simulation {
    let limits = limits.iter();
    let limits = limits.map(|limits| Box::new(*limits) as Box<dyn LimitSource>);
    let mut simulation = Simulation::new(scenario, limits.collect()).unwrap();
    while simulation.step() {}
    simulation
}

#[test]
fn a_group_counts_once_however_it_is_divided() {
    for limits in [GroupLimits::Members(200), GroupLimits::Clients(200)] {
        let run = run(two_tenants(), &[limits]);
        assert_eq!(run.violations(), []);
        let figures = run.figures();
        assert!(figures.of_capacity > 0.99, "{limits:?}: {figures:?}");
        assert!(figures.of_attainable > 0.99, "{limits:?}: {figures:?}");
        assert_eq!(
            (figures.over_capacity, figures.scopes),
            (0, 2),
            "{figures:?}"
        );
        assert!(figures.most_admitted > 0.99, "{limits:?}: {figures:?}");
        assert!(figures.fairness > Some(0.99), "{limits:?}: {figures:?}");
        assert_eq!(run.watched_scopes(), ["tenant/acme", "tenant/small", GROUP]);
        let last = run.samples().last().unwrap();
        assert_eq!((last.capacity, last.wants), (200.0, 440.0), "{last:?}");
        assert_eq!(last.attainable, 200.0, "{last:?}");
        let group = last.scopes[2];
        assert_eq!((group.capacity, group.wants), (Some(200.0), 440.0));
        assert!((198.0..=200.0).contains(&group.has.unwrap()), "{last:?}");
        assert!((195.0..=205.0).contains(&group.admitted), "{last:?}");
        if let GroupLimits::Members(_) = limits {
            let has = [0, 1].map(|scope| last.scopes[scope].has.unwrap());
            assert!((has[0] - 160.0).abs() < 2.0, "{has:?}");
            assert!((has[1] - 40.0).abs() < 2.0, "{has:?}");
        }
    }
}

#[test]
fn law_1_is_checked_for_the_sum_of_a_group() {
    let broken = |seed, limits| {
        let mut scenario = two_tenants();
        scenario.seed = seed;
        scenario.envoys[0].drift_ppm = 400_000;
        let how = json!({"envoys": {"count": 2}, "for": "25s"});
        scenario.events = vec![event(5, "cut", how)];
        let run = run(scenario, &[limits]);
        let broken = run.violations().iter();
        let mut broken = broken.map(|broken| broken.text.clone());
        broken.find(|text| text.starts_with("law 1: the leases of group/gold sum to "))
    };
    for limits in [GroupLimits::Members(200), GroupLimits::Clients(100)] {
        let found = (0..20).find_map(|seed| broken(seed, limits));
        assert!(found.is_some(), "{limits:?}");
    }
}

#[test]
fn limits_of_a_group_may_change() {
    use GroupLimits::{Clients, Members};
    let courses = [
        [Members(300), Members(160)],
        [Clients(300), Clients(80)],
        [Members(200), Clients(200)],
        [Clients(200), Members(200)],
    ];
    for limits in courses {
        let mut scenario = two_tenants();
        scenario.events = vec![event(15, "limits", json!(1))];
        let run = run(scenario, &limits);
        assert_eq!(run.violations(), [], "{limits:?}");
        let (Members(capacity) | Clients(capacity)) = limits[1];
        let last = run.samples().last().unwrap();
        assert!(last.has > 0.98 * capacity as f64, "{limits:?}: {last:?}");
    }
}
