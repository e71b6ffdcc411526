//! Two processes of a fleet with one lease table, few slots and many tenants, of which one wants more
//! than its limit at the second process and comes to the first one now and then.

use tollgate_core::lease::{Epoch, ResourceId, UnitAnswer};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms as LimitTerms};
use tollgate_core::limit::Limit;
use tollgate_core::message::ScopeAnswer;
use tollgate_core::units::Instant;

use super::*;
use crate::testing::Random;

/// Slots of each process, for a tenth of the tenants.
const SLOTS: u32 = 100;
const TENANTS: u64 = 1000;
/// Limit of each tenant, per second, and its burst.
const LIMIT: u64 = 10;
/// Time between two looks at the clock.
const STEP: Duration = Duration::from_millis(10);
const STEPS_PER_SECOND: u64 = 100;
/// Seconds after which the greedy tenant comes to the first process again: its slot has changed hands.
const PAUSE: u64 = 20;

struct Fleet {
    workers: [Worker; 2],
    server: LeaseServer,
    limit: Limit,
    random: Random,
    /// Requests of the greedy tenant that have been admitted at each process, and those that wait.
    greedy: [usize; 2],
    awaited: [Vec<u32>; 2],
    /// The tokens that an ideal bucket for the greedy tenant would have, in thousandths.
    ideal: i64,
    /// The least that it had.
    ideal_min: i64,
}

// === impl Fleet ===

impl Fleet {
    fn new() -> Self {
        let config = EngineConfig {
            max_scopes: SLOTS,
            ..one_rule()
        };
        let workers = [1, 2].map(|id| Worker::new(&FakeProcess::new(), id, &config));
        let now = workers[0].host().now();
        let bounds = Bounds {
            max_resources: 10_000,
            max_clients_per_resource: 100,
            max_leases: 10_000,
            max_durable: 100_000,
        };
        let full = LIMIT as i64 * 1000;
        Self {
            workers,
            server: LeaseServer::new(now, Epoch(1), bounds, Start::Fresh),
            limit: Limit::new(Capacity::from_whole(LIMIT)),
            random: Random(1),
            greedy: [0; 2],
            awaited: [Vec::new(), Vec::new()],
            ideal: full,
            ideal_min: full,
        }
    }

    /// Sends requests of the greedy tenant to a process.
    fn send_greedy(&mut self, process: usize, requests: usize) {
        for _ in 0..requests {
            match self.workers[process].of("greedy") {
                Decision::Admit => self.count_greedy(process, 1),
                Decision::Hold | Decision::Queue(_) => {
                    let stream = self.workers[process].streams;
                    self.awaited[process].push(stream);
                }
                Decision::Deny(_) => {}
            }
        }
    }

    fn count_greedy(&mut self, process: usize, admitted: usize) {
        self.greedy[process] += admitted;
        self.ideal -= admitted as i64 * 1000;
        self.ideal_min = self.ideal_min.min(self.ideal);
    }

    /// Sends a request of a random tenant, each of which has a process of its own.
    fn send_rare(&mut self) {
        let number = self.random.below(TENANTS);
        let (tenant, process) = (format!("t{number}"), number as usize % 2);
        if let Decision::Deny(refusal) = self.workers[process].of(&tenant) {
            panic!("{tenant} was refused: {refusal:?}");
        }
    }

    fn step(&mut self) {
        let full = LIMIT as i64 * 1000;
        let earned = full / STEPS_PER_SECOND as i64;
        self.ideal = (self.ideal + earned).min(full);
        for process in 0..2 {
            self.workers[process].tick(STEP);
            let now = self.workers[process].host().now();
            self.server.handle_timeout(now);
            while let Some((token, call)) = self.workers[process].process.take_call() {
                if call.is_refresh() {
                    let answer = answer(&mut self.server, now, &self.limit, &call);
                    self.workers[process].handle_answer(token, answer);
                    continue;
                }
                let release = call.release();
                for (id, sequence) in &release.resources {
                    self.server.handle_release(&release.client, id, *sequence);
                }
            }
            let resumed = core::mem::take(&mut self.workers[process].resumed);
            let (greedy, others): (Vec<_>, _) = resumed
                .into_iter()
                .partition(|stream| self.awaited[process].contains(stream));
            self.awaited[process].retain(|stream| !greedy.contains(stream));
            self.count_greedy(process, greedy.len());
            self.workers[process].resumed = others;
        }
    }

    fn knows_greedy(&self, process: usize) -> bool {
        let worker = &self.workers[process];
        let slots = worker.engine.process.table.slots().unwrap();
        let slot = slots.find(worker.host(), "tenant/greedy").unwrap();
        slot.is_some()
    }
}

/// The answer of `server` to a call.
fn answer(
    server: &mut LeaseServer,
    now: Instant,
    limit: &Limit,
    call: &OpenCall,
) -> tollgate_core::message::Refreshed {
    let client = &call.refresh().client;
    call.answer(|scope| {
        let units = scope.asks.iter().map(|(unit, request)| {
            let resource = ResourceId {
                scope: scope.scope.clone(),
                unit: *unit,
            };
            let terms = LimitTerms::of(limit);
            let answer = server.handle_refresh(now, client, &resource, request, &terms);
            UnitAnswer {
                unit: *unit,
                sequence: request.sequence,
                answer: answer.unwrap(),
            }
        });
        ScopeAnswer {
            outcome: Ok(units.collect()),
            ..lent(scope, 0.0)
        }
    })
}

#[test]
fn a_greedy_tenant_that_loses_its_slots_keeps_to_its_limit_and_rare_ones_pass() {
    let mut fleet = Fleet::new();
    let mut returns = 0;
    for step in 0..6 * PAUSE * STEPS_PER_SECOND {
        if step % 2 == 0 {
            fleet.send_rare();
            fleet.send_greedy(1, 1);
        }
        if step % (PAUSE * STEPS_PER_SECOND) == 0 {
            returns += usize::from(step > 0 && !fleet.knows_greedy(0));
            fleet.send_greedy(0, 15);
        }
        fleet.step();
    }
    for _ in 0..STEPS_PER_SECOND {
        fleet.step();
    }
    assert!(returns >= 3, "its slot was lost {returns} times");
    let (ideal_min, admitted) = (fleet.ideal_min, fleet.greedy);
    // A token cache for each process is allowed.
    assert!(
        ideal_min >= -2000,
        "{ideal_min} thousandths with {admitted:?}"
    );
    let most = (LIMIT * 6 * PAUSE) as usize;
    assert!(admitted[1] >= most * 9 / 10, "{admitted:?} of {most}");
    for (worker, greedy) in fleet.workers.iter().zip(&fleet.awaited) {
        assert_eq!(worker.stats().overflow.get(), 0);
        let mut denied = worker.denied.iter();
        let rare = denied.find(|(stream, _)| !greedy.contains(stream));
        assert!(rare.is_none(), "{rare:?}");
    }
}
