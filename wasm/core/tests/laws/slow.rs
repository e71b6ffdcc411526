//! A tenant that asks for about one request in a refresh interval, or fewer.

use core::time::Duration;

use tollgate_core::client::{DrawResult, LeaseMessage, Policy, RateLimiter};
use tollgate_core::lease::{ClientId, ClientRun, Epoch, Origin, ResourceId, Unit};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::{Capacity, Instant, Tokens};

use super::random::Random;
use super::{Verdict, ensure};

const START: Instant = Instant::from_nanos(5_000_000_000);
const TICK: Duration = Duration::from_millis(20);
const BOUNDS: Bounds = Bounds {
    max_resources: 1,
    max_clients_per_resource: 1,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

/// A tenant and its coordinator.
struct Tenant {
    random: Random,
    now: Instant,
    limiter: RateLimiter,
    node: LeaseServer,
    limit: Limit,
    /// Milliseconds between two requests, and how many percent each interval may differ.
    interval: u64,
    sway: u64,
    due: Instant,
    held: u64,
    came: u64,
    passed: u64,
}

// === impl Tenant ===

impl Tenant {
    /// From three requests in a second to one in 20 s, at a limit of so many percent of them with a
    /// burst of one.
    fn new(seed: u64, room: u64, headroom: Part) -> Self {
        let mut random = Random::new(seed);
        let interval = 333 + random.spread(20_000);
        let mut limit = Limit::new(Capacity::from_micros(1_000_000_000 / interval * room / 100));
        (limit.burst, limit.headroom) = (Tokens::ONE, headroom);
        Self {
            now: START,
            limiter: RateLimiter::new(START, &Policy::default()),
            node: LeaseServer::new(START, Epoch(1), BOUNDS, Start::Fresh),
            limit,
            interval,
            sway: [0, 10, 100][random.below(3) as usize],
            due: START,
            held: 0,
            came: 0,
            passed: 0,
            random,
        }
    }

    /// The time of a hundred requests.
    fn run(&mut self) -> Verdict {
        let end = START.saturating_add(Duration::from_millis(self.interval * 100));
        while self.now < end {
            while self.due <= self.now {
                let part = 100 - self.sway + self.random.below(2 * self.sway + 1);
                let interval = Duration::from_micros(self.interval * part * 10);
                self.due = self.due.saturating_add(interval);
                self.came += 1;
                self.held += 1;
                self.limiter.count(self.now, 1);
            }
            self.draw();
            self.refresh()?;
            self.now = self.now.saturating_add(TICK);
        }
        Ok(())
    }

    fn draw(&mut self) {
        for _ in 0..self.held {
            let policy = Policy::default();
            let draw = self.limiter.draw(self.now, &policy, Tokens::ONE, 1);
            self.held -= u64::from(!matches!(draw, DrawResult::Pending { .. }));
            self.passed += u64::from(matches!(draw, DrawResult::Tokens(_)));
        }
    }

    fn refresh(&mut self) -> Verdict {
        let (now, policy) = (self.now, Policy::default());
        let id = ResourceId::new("tenant/acme", Unit::Requests).expect("a good id");
        let client = ClientRun::only(ClientId::new("node/1").expect("a good id"));
        match self.limiter.ask(now, &policy) {
            LeaseMessage::Nothing => {}
            LeaseMessage::Release { sequence } => self.node.handle_release(&client, &id, sequence),
            LeaseMessage::Refresh(request) => {
                let terms = Terms::of(&self.limit);
                let answer = self
                    .node
                    .handle_refresh(now, &client, &id, &request, &terms);
                let answer = answer.map_err(|error| error.to_string())?;
                let origin = Origin::alone(Epoch(1));
                let limiter = &mut self.limiter;
                limiter.handle_answer(now, &policy, request.sequence, origin, &answer);
                let is_served = answer.draw.is_some() || limiter.has(now) > Capacity::ZERO;
                ensure!(is_served, "zero at {now:?}");
            }
        }
        Ok(())
    }

    fn expect(&self, percent: u64) -> Verdict {
        let (passed, came) = (self.passed, self.came);
        ensure!(
            passed * 100 >= came * percent,
            "{passed} of {came} passed, every {} ms or so",
            self.interval
        );
        Ok(())
    }
}

// === laws ===

/// Demand far below the limit passes, however small it is, and is never told zero.
pub(crate) fn little_demand_is_served(seed: u64) -> Verdict {
    let mut tenant = Tenant::new(seed, 1000, Part::HALF);
    tenant.run()?;
    tenant.expect(if tenant.sway < 100 { 99 } else { 80 })
}

/// Demand that is all that there is, or is lent no more than it wants, is not starved nor told zero.
/// In a bucket that holds one token it must come to terms with every other one: what a request that
/// comes a moment early finds short of a token is lost to the next.
pub(crate) fn little_demand_is_not_starved_at_its_limit(seed: u64) -> Verdict {
    let headroom = [Part::NONE, Part::HALF, Part::ALL][seed as usize % 3];
    let room = [100, 130, 1000][seed as usize / 3 % 3];
    let mut tenant = Tenant::new(seed, room, headroom);
    tenant.run()?;
    tenant.expect(20)
}
