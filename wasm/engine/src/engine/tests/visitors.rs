//! Many more tenants than slots, of which each comes rarely.

use super::*;
use crate::testing::Random;

/// Slots of the process, a tenth of the default.
const SLOTS: u32 = 1000;
/// Tenants, two hundred times as many as come within the time for which a slot stays at the slower rate.
const TENANTS: u64 = 20_000;
/// Time between two arrivals or looks at the clock.
const STEP: Duration = Duration::from_millis(1);

/// Process with many visitors, and its coordinator.
struct Site {
    worker: Worker,
    random: Random,
    /// Requests that went on at once.
    passed: usize,
    /// Tenants that hold leases, in the coordinator's books, with the sequences of their requests.
    leases: BTreeMap<String, u64>,
    leases_max: usize,
}

// === impl Site ===

impl Site {
    fn new(process: &Rc<FakeProcess>) -> Self {
        let config = EngineConfig {
            max_scopes: SLOTS,
            ..one_rule()
        };
        Self {
            worker: Worker::new(process, 1, &config),
            random: Random(1),
            passed: 0,
            leases: BTreeMap::new(),
            leases_max: 0,
        }
    }

    fn request(&mut self, tenant: &str) {
        self.passed += usize::from(self.worker.of(tenant) == Decision::Admit);
    }

    /// Random tenants of [`TENANTS`] come, `rate` in each second.
    fn visits(&mut self, rate: u64, seconds: u64) {
        for millis in 0..seconds * 1000 {
            for _ in millis * rate / 1000..(millis + 1) * rate / 1000 {
                let tenant = format!("t{}", self.random.below(TENANTS));
                self.request(&tenant);
            }
            self.step();
        }
    }

    /// Lets a millisecond pass; each tenant may have as much as it wants, at most ten per second.
    fn step(&mut self) {
        self.worker.tick(STEP);
        while let Some((token, call)) = self.worker.process.take_call() {
            if !call.is_refresh() {
                for (id, sequence) in &call.release().resources {
                    let before = self.leases.get(&*id.scope);
                    if before.is_some_and(|before| before <= sequence) {
                        self.leases.remove(&*id.scope);
                    }
                }
                continue;
            }
            for scope in &call.refresh().scopes {
                let sequence = scope.asks[0].1.sequence;
                self.leases.insert(scope.scope.to_string(), sequence);
            }
            self.leases_max = self.leases_max.max(self.leases.len());
            self.worker.handle_answer(token, call.lend(10.0));
        }
    }

    /// Asserts that all `requests` so far have passed, none by an overflow scope.
    #[track_caller]
    fn assert_all_passed(&self, requests: usize) {
        let passed = self.passed + self.worker.resumed.len();
        let overflow = self.worker.stats().overflow.get();
        assert_eq!((passed, overflow), (requests, 0), "passed and overflow");
    }
}

/// Fills slots with scopes whose buckets are empty, for a second.
pub(super) fn fill(worker: &Worker, slots: impl Iterator<Item = u32>) {
    let (now, policy) = (worker.host().now(), Policy::default());
    for slot in slots {
        let mut busy = tollgate_core::client::ScopeState::new(now, &policy);
        let requests = &mut busy.requests;
        requests.count(now, 10);
        requests.draw_at_once(now, &policy, Tokens::from_whole(10), 1);
        let record = codec::encode_slot(&format!("other/{slot}"), &busy);
        let key = format!("tollgate.c.slot.{slot}");
        worker.process.set(&key, &record, 0);
    }
}

#[test]
fn rare_tenants_are_served_however_many_there_are() {
    for process in [FakeProcess::new(), FakeProcess::with_own_slots()] {
        for (rate, seconds) in [(50, 70), (200, 20), (1200, 4)] {
            let mut site = Site::new(&process);
            site.visits(rate, seconds);
            for _ in 0..100 {
                site.step();
            }
            site.assert_all_passed((rate * seconds) as usize);
            process.advance(Duration::from_secs(100));
        }
        assert!(process.keys().len() <= SLOTS as usize + 10);
    }
}

#[test]
fn leases_of_those_that_have_lost_their_slots_are_released() {
    let mut site = Site::new(&FakeProcess::new());
    site.visits(1000, 8);
    // As many as slots, and those whose release waits for the next round.
    assert!(
        site.leases_max <= SLOTS as usize + 60,
        "{}",
        site.leases_max
    );
}

#[test]
fn more_releases_than_wait_for_a_round_are_left_to_expire() {
    let config = EngineConfig {
        max_scopes: 1300,
        max_pending: 5000,
        ..one_rule()
    };
    let mut worker = Worker::new(&FakeProcess::with_own_slots(), 1, &config);
    for n in 0..1200 {
        worker.of(&format!("known-{n}"));
    }
    for _ in 0..50 {
        worker.tick(TICK);
        worker.answer(10.0);
    }
    for n in 0..1200 {
        worker.of(&format!("newcomer-{n}"));
    }
    worker.tick(TICK);
    let mut released = 0;
    while let Some((_, call)) = worker.process.take_call() {
        if !call.is_refresh() {
            released += call.release().resources.len();
        }
    }
    // A lease that is released for another reason may be among them.
    assert!((1000..1010).contains(&released), "{released}");
}

#[test]
fn invented_names_cost_known_tenants_and_newcomers_nothing() {
    let mut site = Site::new(&FakeProcess::new());
    let mut requests = 0;
    let mut known = 0;
    for millis in 0..10_000 {
        site.request(&format!("invented-{millis}"));
        requests += 1;
        if millis % 10 == 0 {
            // A hundred known tenants with one request each second, and a newcomer each second.
            site.request(&format!("known-{}", millis / 10 % 100));
            requests += 1;
            known += 1;
        }
        if millis % 1000 == 0 {
            site.request(&format!("newcomer-{millis}"));
            requests += 1;
        }
        site.step();
    }
    for _ in 0..100 {
        site.step();
    }
    site.assert_all_passed(requests);
    assert_eq!(known, 1000);
}

#[test]
fn a_tenant_over_its_limit_keeps_its_slot_and_its_debt_in_a_flood_of_names() {
    let mut site = Site::new(&FakeProcess::new());
    site.request("greedy");
    site.step();
    site.step();
    let mut passed = 0;
    for millis in 0..4000 {
        site.request(&format!("invented-{millis}"));
        passed += site.worker.admitted("greedy", 1);
        site.step();
    }
    // A burst of ten, and ten each second.
    assert!((45..=51).contains(&passed), "{passed}");
}

#[test]
fn a_name_that_floods_without_a_slot_takes_few_others_along() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        max_scopes: 100,
        ..rules([safe_rule("tenant", 10)])
    };
    let mut worker = Worker::new(&process, 1, &config);
    worker.of("first");
    fill(&worker, 0..100);
    assert_eq!(worker.admitted("flood", 1000), 10);
    let others = (0..100).filter(|n| worker.of(&format!("visitor-{n}")) == Decision::Admit);
    let passed = others.count();
    assert!(passed >= 95, "{passed}");
    let overflow = worker.stats().overflow.get();
    assert_eq!(overflow, 1100);
    let entries = worker.engine.admission.scopes(0).unwrap().len();
    assert!(entries <= 100 + 256, "{entries}");
    let lines = process.logs.borrow();
    let shown = lines.iter().filter(|(_, line)| line.contains("max_scopes"));
    assert_eq!(shown.count(), 1);
}

#[test]
fn a_rule_with_many_keys_leaves_room_for_the_keys_of_another() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        max_scopes: 100,
        ..rules([rule("address"), rule("tenant")])
    };
    // The process has room; the second worker's own memory has not.
    let larger = EngineConfig {
        max_scopes: 1000,
        ..config.clone()
    };
    Worker::new(&process, 1, &larger).of("first");
    let mut worker = Worker::new(&process, 2, &config);
    for n in 0..100 {
        assert_eq!(worker.request(&[&format!("a{n}"), ""]), Decision::Hold);
    }
    for _ in 0..20 {
        worker.tick(TICK);
        worker.answer(1000.0);
    }
    assert_eq!(worker.request(&["", "acme"]), Decision::Hold);
    worker.tick(TICK);
    worker.answer(1000.0);
    assert_eq!(worker.request(&["", "acme"]), Decision::Admit);
    assert_eq!(worker.stats().overflow.get(), 0);
    let entries = |rule| worker.engine.admission.scopes(rule).unwrap().len();
    assert_eq!((entries(0), entries(1)), (99, 1));
}

#[test]
fn a_newcomer_does_not_take_the_entry_of_its_own_request_or_of_one_that_waits() {
    let mut address = shaped(safe_rule("address", 1));
    if let Some(shape) = &mut address.shape {
        shape.max_wait = Duration::from_secs(2);
    }
    let config = EngineConfig {
        max_scopes: 100,
        ..rules([address, safe_rule("tenant", 10)])
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let index = |worker: &Worker, tenant: &str| {
        let admission = &worker.engine.admission;
        admission.find(RuleId(1), tenant.as_bytes())
    };
    assert_eq!(worker.request(&["busy", "acme"]), Decision::Admit);
    assert_eq!(worker.request(&["busy", "waits"]), Decision::Hold);
    let waits = index(&worker, "waits").unwrap();
    for n in 0..900 {
        worker.request(&["", &format!("invented-{n}")]);
        worker.tick(STEP);
        assert_eq!(index(&worker, "waits"), Some(waits), "after {n} ms");
    }
    assert_eq!(index(&worker, "acme"), None, "it has been idle");
    // The last entry that is idle is the request's own.
    let mut request = worker.engine.begin(worker.root.settings, 1, Tokens::ONE);
    assert!(worker.engine.add(&mut request, RuleId(1), b"waits"));
    for n in 0..200 {
        let newcomer = format!("later-{n}");
        let mut request = request.clone();
        let added = worker.engine.add_new(&mut request, RuleId(0), &newcomer);
        assert_eq!(added, Ok(()));
        assert_eq!(index(&worker, "waits"), Some(waits));
    }
}

/// Fills all slots with leases, lets names flood and returns the most looks at shared data, reads and
/// writes, of a tick.
fn looks_of_a_tick(slots: u32) -> u64 {
    let config = EngineConfig {
        max_scopes: slots,
        max_pending: 20_000,
        ..one_rule()
    };
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &config);
    for n in 0..slots {
        worker.of(&format!("known-{n}"));
    }
    for _ in 0..50 {
        worker.tick(TICK);
        worker.answer(10.0);
    }
    let mut most = 0;
    for round in 0..100 {
        for n in 0..20 {
            worker.of(&format!("invented-{round}-{n}"));
            worker.of(&format!("known-{}", (round * 20 + n) % slots));
        }
        let looks = || process.reads.get() + process.writes.get();
        let before = looks();
        worker.tick(TICK);
        most = most.max(looks() - before);
        worker.answer(10.0);
    }
    most
}

#[test]
fn a_tick_looks_at_as_much_of_a_large_table_that_is_full_as_of_a_small_one() {
    let [small, large] = [1000, 8000].map(looks_of_a_tick);
    // Those that are due and the reports, each a read and a write, and a few searches.
    assert!(
        large <= 2 * (1000 + 256) + 500,
        "{large}, with few slots {small}"
    );
}
