use std::collections::BTreeSet;
use std::vec::Vec;

use super::*;
use crate::lease::Unit;
use crate::limit::Part;

fn pool(scope: &str, limit: &Limit) -> Pool {
    Pool::new(&ResourceId::new(scope, Unit::Requests).unwrap(), limit)
}

#[test]
fn members_that_want_something_divide_the_headroom_by_weight() {
    // Headroom of a pool of 900; wants and weight of each member; its part beyond what is wanted.
    let rows = [
        (Part::NONE, [(100, 1), (200, 1)], [0, 0]),
        (Part::HALF, [(100, 1), (200, 1)], [150, 150]),
        (Part::ALL, [(100, 2), (200, 1)], [400, 200]),
        (Part::ALL, [(0, 1), (300, 1)], [0, 600]),
        (Part::ALL, [(890, 1), (10, 1)], [0, 0]),
    ];
    for (headroom, members, want) in rows {
        let mut limit = Limit::new(Capacity::from_whole(900));
        limit.headroom = headroom;
        let mut pool = pool("group/gold", &limit);
        let join = |(i, (wants, weight)): (usize, (u64, u32))| {
            let id = ResourceId::new(&std::format!("tenant/{i}"), Unit::Requests).unwrap();
            let mut membership = pool.join(&id, NonZeroU32::new(weight).unwrap(), Tokens::ZERO);
            let totals = ResourceTotals {
                wants: Capacity::from_whole(wants),
                ..ResourceTotals::default()
            };
            pool.update(Instant::ZERO, &mut membership, totals);
            membership
        };
        let joined: Vec<_> = members.into_iter().enumerate().map(join).collect();
        let spare = joined.iter().map(|membership| pool.view(membership).spare);
        let spare: Vec<_> = spare.collect();
        let want = want.map(Capacity::from_whole);
        assert_eq!(spare, want, "{headroom:?} {members:?}");
    }
}

/// A claim on a lease of another pool, or of another capacity, is not taken for one of today's.
#[test]
fn a_fingerprint_tells_pools_and_their_capacities_apart() {
    let fingerprint = |scope: &str, micros| {
        let limit = Limit::new(Capacity::from_micros(micros));
        pool(scope, &limit).fingerprint()
    };
    let capacities = || (0..=59).map(|bit| 1 << bit).chain([0]);
    let scopes = ["group/gold", "group/silver"].into_iter();
    let all = scopes.flat_map(|scope| capacities().map(move |micros| (scope, micros)));
    let all: Vec<_> = all.collect();
    let different: BTreeSet<_> = all
        .iter()
        .map(|&(scope, micros)| fingerprint(scope, micros))
        .collect();
    assert_eq!(different.len(), all.len());
}
