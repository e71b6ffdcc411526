//! Laws 3 and 4 for one coordinator, and what a new one may rely on.

use core::time::Duration;

use tollgate_core::lease::{ClientId, ClientRun, Epoch, LeaseRequest, ResourceId, Unit};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::{Capacity, Instant};

use super::fair_share::{Client, check};
use super::random::Random;
use super::{Verdict, ensure};

const START: Instant = Instant::from_nanos(5_000_000_000);
const BOUNDS: Bounds = Bounds {
    max_resources: 1,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

fn resource() -> ResourceId {
    ResourceId::new("tenant/acme", Unit::Requests).expect("a good id")
}

fn client(i: usize) -> ClientRun {
    ClientRun::only(ClientId::new(&format!("node-{i}/1")).expect("a good id"))
}

/// With stable demand everybody has its max-min share, and nothing is left over.
///
/// Four refreshes of every client suffice whatever their order, when what is wanted has changed: one tells
/// the lease table, one gives back, one acknowledges (until then the table must assume that the answer got lost),
/// one receives.
pub(crate) fn settles_at_the_max_min_shares(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let mut limit = Limit::new(Capacity::from_micros(random.spread(1 << 50) + 1));
    limit.headroom = Part::NONE;
    let mut node = LeaseServer::new(START, Epoch(1), BOUNDS, Start::Fresh);
    let mut has = vec![Capacity::ZERO; random.below(40) as usize + 1];
    let mut order: Vec<_> = (0..has.len()).collect();
    let mut ask_at = START;
    for change in 0..4 {
        let most = random.spread(3 * limit.capacity.as_micros()) + 1;
        let clients: Vec<Client> = has.iter().map(|_| (random.spread(most), 1)).collect();
        for _ in 0..4 {
            random.shuffle(&mut order);
            ask_at = ask_at.saturating_add(limit.min_refresh);
            for i in &order {
                let wants = Capacity::from_micros(clients[*i].0);
                let request = LeaseRequest::new(ask_at.as_nanos(), has[*i], wants);
                let terms = Terms::of(&limit);
                let answer =
                    node.handle_refresh(ask_at, &client(*i), &resource(), &request, &terms);
                let answer = answer.map_err(|error| error.to_string())?;
                has[*i] = answer.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
            }
        }
        let gets: Vec<_> = has.iter().map(|has| has.as_micros()).collect();
        check(&clients, limit.capacity.as_micros(), &gets)
            .map_err(|how| format!("after change {change}: {how}"))?;
    }
    Ok(())
}

/// A coordinator that starts without a lease table confirms what clients have as far as they want it, whoever
/// comes first, and lends a newcomer nothing until it can know of all leases.
pub(crate) fn learns_what_clients_have(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let limit = Limit::new(Capacity::from_micros(random.spread(1 << 50) + 100));
    let mut node = LeaseServer::new(START, Epoch(2), BOUNDS, Start::Learning);
    let mut left = limit.capacity.as_micros();
    let mut claims: Vec<_> = (0..random.below(40) as usize)
        .map(|i| {
            let has = random.below(left + 1);
            left -= has;
            (i, has, random.spread(limit.capacity.as_micros()))
        })
        .collect();
    claims.push((99, 0, limit.capacity.as_micros()));
    random.shuffle(&mut claims);
    let learning = limit.learning.as_nanos() as u64;
    let mut at: Vec<_> = claims.iter().map(|_| random.below(learning)).collect();
    at.sort_unstable();
    for ((i, has, wants), at) in claims.into_iter().zip(at) {
        let now = START.saturating_add(Duration::from_nanos(at));
        let (claim, demand) = (Capacity::from_micros(has), Capacity::from_micros(wants));
        let request = LeaseRequest::new(now.as_nanos(), claim, demand);
        let terms = Terms::of(&limit);
        let answer = node.handle_refresh(now, &client(i), &resource(), &request, &terms);
        let answer = answer.map_err(|error| error.to_string())?;
        let gets = answer.lease.map_or(0, |lease| lease.capacity.as_micros());
        let least = has.min(wants);
        let most = if wants > 0 { has } else { 0 };
        ensure!(
            (least..=most).contains(&gets),
            "client {i} has {has}, wants {wants}, gets {gets}"
        );
        ensure!(has > 0 || answer.lease.is_none(), "a newcomer got a lease");
    }
    Ok(())
}
