use core::time::Duration;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::*;
use crate::codec;
use crate::testing::{FakeHost, FakeProcess, Random};
use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{Answer, Epoch, LeaseTerms, Origin, UnitAnswer};
use tollgate_core::units::{Capacity, Tokens};

const FRESH: ProcessRecord = ProcessRecord {
    random: 0x1234_5678_9abc_def0_1122_3344,
    slots: 100,
};

struct Setup {
    process: Rc<FakeProcess>,
    host: FakeHost,
    table: SlotTable,
    policy: Policy,
}

/// A table of records in shared data.
fn setup(slots: u32) -> Setup {
    setup_in(FakeProcess::new(), slots)
}

/// A table of each kind: of records in shared data, and of slots in memory.
fn setups(slots: u32) -> [Setup; 2] {
    [FakeProcess::new(), FakeProcess::with_own_slots()].map(|process| setup_in(process, slots))
}

fn setup_in(process: Rc<FakeProcess>, slots: u32) -> Setup {
    let host = FakeHost::new(&process);
    let table = open(&host, "c", "node", ProcessRecord { slots, ..FRESH }).unwrap();
    Setup {
        process,
        host,
        table,
        policy: Policy::default(),
    }
}

/// Opens the table of the coordinators `coordinator`.
fn open(
    host: &FakeHost,
    coordinator: &str,
    node: &str,
    fresh: ProcessRecord,
) -> Result<SlotTable, TableError> {
    SlotTable::open(host, format!("tollgate.{coordinator}"), node, fresh)
}

impl Setup {
    fn locate(&self, scope: &str) -> Result<u32, TableError> {
        Ok(self.locate_in(&self.table.window(scope))?.slot)
    }

    fn locate_in(&self, window: &Window<'_>) -> Result<Located, TableError> {
        let now = self.host.now();
        self.table.locate(&self.host, now, &self.policy, window)
    }

    /// Uses the scope's slot, so that no other can take it over.
    fn locate_and_wake(&self, scope: &str) -> Result<u32, TableError> {
        let slot = self.locate(scope)?;
        let now = self.host.now();
        self.table.update(&self.host, slot, scope, |scope_state| {
            scope_state.requests.count(now, 1);
            scope_state.requests.draw(now, &self.policy, Tokens::ONE, 1);
        })?;
        Ok(slot)
    }

    /// Lends a scope as much as it asks for.
    fn lend(&self, slot: u32, scope: &str) {
        let (now, policy) = (self.host.now(), &self.policy);
        let lent = self.table.update(&self.host, slot, scope, |scope_state| {
            for (unit, message) in scope_state.ask(now, policy) {
                let LeaseMessage::Refresh(request) = message else {
                    panic!("{message:?}");
                };
                let capacity = Capacity::from_whole(10);
                let lease = LeaseTerms {
                    capacity,
                    burst: Tokens::from_whole(10),
                    duration: Duration::from_secs(60),
                    fingerprint: 1,
                };
                let answer = Answer {
                    lease: Some(lease),
                    refresh_interval: Duration::from_secs(5),
                    safe: None,
                    capacity,
                    period: None,
                    burst: None,
                    draw: None,
                };
                let sequence = request.sequence;
                let answer = UnitAnswer {
                    unit,
                    sequence,
                    answer,
                };
                scope_state.handle_answer(now, policy, Origin::alone(Epoch(1)), &answer);
            }
        });
        assert_eq!(lent, Ok(()));
    }
}

#[test]
fn all_workers_open_the_table_that_the_first_one_made() {
    let setup = setup(100);
    let other = ProcessRecord {
        random: 99,
        slots: 7,
    };
    let second = open(&FakeHost::new(&setup.process), "c", "node", other).unwrap();
    assert_eq!(second.slots(), 100);
    assert_eq!(second.client(), setup.table.client());
    assert_eq!(
        second.client().id.as_str(),
        "node/00000000123456789abcdef011223344"
    );
    let elsewhere = open(&FakeHost::new(&setup.process), "d", "node", other).unwrap();
    assert_eq!(elsewhere.slots(), 7);
}

#[test]
fn of_two_workers_that_open_at_once_the_second_follows_the_first() {
    let process = FakeProcess::new();
    let first = ProcessRecord {
        random: 1,
        slots: 5,
    };
    *process.intruder.borrow_mut() = Some(Box::new(move |process| {
        process.set("tollgate.c.process", &first.encode(), ABSENT);
    }));
    let table = open(&FakeHost::new(&process), "c", "n", FRESH).unwrap();
    assert_eq!(table.slots(), 5);
}

#[test]
fn a_strange_node_id_still_makes_a_client_id() {
    for node in ["", "a\nb", &"\u{fc}".repeat(300)] {
        let id = client_run(node, 1).unwrap().id;
        assert!(
            id.as_str().ends_with("/00000000000000000000000000000001"),
            "{id:?}"
        );
    }
}

#[test]
fn a_scope_keeps_its_slot_and_scopes_do_not_share() {
    for setup in setups(1000) {
        let names: Vec<String> = (0..500).map(|n| format!("tenant/{n}")).collect();
        let slots: Vec<u32> = names
            .iter()
            .map(|name| setup.locate_and_wake(name).unwrap())
            .collect();
        let again: Vec<u32> = names
            .iter()
            .map(|name| setup.locate(name).unwrap())
            .collect();
        assert_eq!(slots, again);
        assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), 500);
        assert!(slots.iter().all(|slot| *slot < 1000));
    }
}

#[test]
fn every_slot_of_a_small_table_is_used_and_then_it_is_full() {
    for setup in [1, 2, 31, 32].into_iter().flat_map(setups) {
        let slots = setup.table.slots();
        for n in 0..slots {
            setup.locate_and_wake(&format!("tenant/{n}")).unwrap();
        }
        assert_eq!(setup.locate("tenant/one-more"), Err(TableError::Full));
        let window = setup.table.overflow_window("tenant/~overflow-0");
        let shared = setup.locate_in(&window).unwrap().slot;
        assert!((slots..slots + OVERFLOW_SLOTS).contains(&shared));
    }
}

#[test]
fn a_large_table_fills_to_nine_tenths_with_few_left_out() {
    for setup in setups(2000) {
        let full = (0..1800)
            .filter(|n| setup.locate_and_wake(&format!("tenant/{n}")) == Err(TableError::Full))
            .count();
        assert!(full <= 20, "{full}");
        // However many names there are, records are not: the slots, and the process's own.
        for n in 0..20_000 {
            let _ = setup.locate_and_wake(&format!("unseen/{n}"));
        }
        assert!(
            setup.process.keys().len() <= 2001,
            "{}",
            setup.process.keys().len()
        );
    }
}

#[test]
fn an_idle_slot_is_taken_over_and_its_old_scope_finds_out() {
    for setup in setups(1) {
        let slot = setup.locate("tenant/old").unwrap();
        assert_eq!(setup.locate("tenant/new"), Ok(slot));
        let old = setup.table.update(&setup.host, slot, "tenant/old", |_| ());
        assert_eq!(old, Err(TableError::Gone));
    }
}

#[test]
fn of_slots_whose_scopes_hold_nothing_the_least_worth_goes_and_its_leases_are_released() {
    for setup in setups(3) {
        // In an order that is not that of their use.
        for (name, lease) in [("c", true), ("b", true), ("a", false)] {
            let scope = format!("tenant/{name}");
            let slot = setup.locate_and_wake(&scope).unwrap();
            if lease {
                setup.lend(slot, &scope);
            }
            setup.process.advance(Duration::from_secs(1));
        }
        let newcomer = |n: u32| {
            let scope = format!("tenant/new-{n}");
            let located = setup.locate_in(&setup.table.window(&scope));
            located.map(|located| {
                // It holds something from now on.
                setup.locate_and_wake(&scope).unwrap();
                let releases = located.releases.into_iter();
                releases.map(|(id, _)| id.scope.to_string()).collect()
            })
        };
        assert_eq!(newcomer(0), Ok(Vec::new()), "a has no lease");
        assert_eq!(newcomer(1), Ok(vec!["tenant/c".to_owned()]));
        assert_eq!(newcomer(2), Ok(vec!["tenant/b".to_owned()]));
        assert_eq!(newcomer(3), Err(TableError::Full));
    }
}

#[test]
fn a_slot_that_is_used_again_before_it_is_taken_stays() {
    let setup = setup(1);
    let slot = setup.locate_and_wake("tenant/a").unwrap();
    setup.process.advance(Duration::from_secs(1));
    let key = format!("tollgate.c.slot.{slot}");
    *setup.process.intruder.borrow_mut() = Some(Box::new(move |process| {
        let bytes = process.get(&key).unwrap();
        let (scope, mut scope_state) = codec::decode_slot(&bytes).unwrap();
        let now = Instant::from_nanos(process.now.get());
        let cost = Tokens::from_whole(5);
        scope_state
            .requests
            .draw_at_once(now, &Policy::default(), cost, 1);
        process.set(&key, &codec::encode_slot(scope, &scope_state), 0);
    }));
    assert_eq!(setup.locate("tenant/b"), Err(TableError::Full));
    assert_eq!(setup.locate("tenant/a"), Ok(slot));
}

#[test]
fn a_change_that_another_worker_overtakes_is_made_on_what_that_one_wrote() {
    let setup = setup(10);
    let slot = setup.locate_and_wake("tenant/a").unwrap();
    let now = setup.host.now();
    let key = format!("tollgate.c.slot.{slot}");
    *setup.process.intruder.borrow_mut() = Some(Box::new(move |process| {
        let bytes = process.get(&key).unwrap();
        let (scope, mut scope_state) = codec::decode_slot(&bytes).unwrap();
        scope_state.requests.count(now, 7);
        process.set(&key, &codec::encode_slot(scope, &scope_state), 0);
    }));
    let mut runs = 0;
    let wants = setup
        .table
        .update(&setup.host, slot, "tenant/a", |scope_state| {
            runs += 1;
            scope_state.requests.count(now, 3);
            scope_state.requests.wants()
        });
    // One attempt from waking, seven from the other, three from this one; ten windows a second.
    assert_eq!(wants.unwrap().as_micros(), 110_000_000);
    assert_eq!(runs, 2);
}

#[test]
fn a_worker_that_is_always_overtaken_gives_up() {
    let setup = setup(10);
    let slot = setup.locate("tenant/a").unwrap();
    let key = format!("tollgate.c.slot.{slot}");
    let outcome = setup
        .table
        .update(&setup.host, slot, "tenant/a", |scope_state| {
            let bytes = setup.process.get(&key).unwrap();
            setup.process.set(&key, &bytes, 0);
            scope_state.requests.count(setup.host.now(), 1);
        });
    assert_eq!(outcome, Err(TableError::Contention("slot")));
}

#[test]
fn a_second_slot_of_a_scope_is_given_up() {
    let setup = setup(100);
    let slot = setup.locate("tenant/a").unwrap();
    // Another scope's slot, which the scope tries first, had become free and was claimed for it.
    let window = setup.table.window("tenant/a");
    let slots: Vec<u32> = window.slots().collect();
    assert_eq!(slots[0], slot);
    let second = slots[3];
    let record = codec::encode_slot(
        "tenant/a",
        &ScopeState::new(setup.host.now(), &setup.policy),
    );
    setup
        .process
        .set(&format!("tollgate.c.slot.{second}"), &record, 0);
    assert_eq!(setup.table.confirm(&setup.host, &window, second), Ok(slot));
    assert_eq!(setup.table.look(&setup.host, second), Ok(None));
    // A slot that was given up can be claimed again.
    for n in 0..60 {
        setup.locate_and_wake(&format!("tenant/{n}")).unwrap();
    }
}

#[test]
fn a_record_of_another_version_counts_as_empty() {
    let setup = setup(1);
    setup.process.set("tollgate.c.slot.0", &[99, 1, 2, 3], 0);
    assert_eq!(setup.locate_and_wake("tenant/a"), Ok(0));
    setup.table.vacate(&setup.host, 0, "tenant/b").unwrap();
    assert!(setup.table.look(&setup.host, 0).unwrap().is_some());
    setup.table.vacate(&setup.host, 0, "tenant/a").unwrap();
    assert_eq!(setup.table.look(&setup.host, 0), Ok(None));
    assert_eq!(setup.locate_and_wake("tenant/b"), Ok(0));
}

#[test]
fn a_host_that_fails_is_reported() {
    let setup = setup(10);
    setup.host.shared_data_fails.set(true);
    let error = HostError {
        call: "get_shared_data",
        status: 10,
    };
    assert_eq!(setup.locate("tenant/a"), Err(TableError::Host(error)));
}

#[test]
fn a_scope_is_found_where_it_is_and_no_other_is() {
    for setup in setups(100) {
        let find = |scope: &str| setup.table.find(&setup.host, scope).unwrap();
        assert_eq!(find("tenant/1"), None);
        for n in 0..90 {
            let name = format!("tenant/{n}");
            let slot = setup.locate_and_wake(&name).ok();
            assert_eq!(find(&name), slot);
        }
        assert_eq!(find("tenant/unseen"), None);
        let overflow = "tenant/~overflow-0";
        let shared = setup.locate_in(&setup.table.overflow_window(overflow));
        assert_eq!(find(overflow), shared.ok().map(|shared| shared.slot));
    }
}

#[test]
fn both_kinds_of_slots_do_the_same() {
    for seed in 1..=20 {
        let setups = setups(40);
        let mut random = Random(seed);
        for _ in 0..400 {
            let step = step(&mut random);
            let [records, own] = setups.each_ref().map(|setup| setup.play(step));
            assert_eq!(records, own, "seed {seed}, {step:?}");
        }
        let [records, own] = setups.each_ref().map(|setup| {
            let look = |slot| setup.table.look(&setup.host, slot).unwrap();
            (0..setup.table.slots_in_all())
                .map(look)
                .collect::<Vec<_>>()
        });
        assert_eq!(records, own, "seed {seed}");
    }
}

/// Something that may happen to a table, with the number of a scope.
#[derive(Clone, Copy, Debug)]
enum TableStep {
    Use(u32),
    Find(u32),
    Vacate(u32),
    Wait(Duration),
}

/// Returns a random step.
fn step(random: &mut Random) -> TableStep {
    let n = random.below(60) as u32;
    match random.below(10) {
        0..6 => TableStep::Use(n),
        6..8 => TableStep::Find(n),
        8 => TableStep::Vacate(n),
        _ => TableStep::Wait(Duration::from_secs(random.below(90))),
    }
}

impl Setup {
    /// Takes a step, and returns what came of it.
    fn play(&self, step: TableStep) -> Result<Option<u32>, TableError> {
        let name = |n| format!("tenant/{n}");
        match step {
            TableStep::Use(n) => self.locate_and_wake(&name(n)).map(Some),
            TableStep::Find(n) => Ok(self.table.find(&self.host, &name(n))?),
            TableStep::Vacate(n) => {
                let slot = self.table.find(&self.host, &name(n))?;
                if let Some(slot) = slot {
                    self.table.vacate(&self.host, slot, &name(n))?;
                }
                Ok(slot)
            }
            TableStep::Wait(time) => {
                self.process.advance(time);
                Ok(None)
            }
        }
    }
}
