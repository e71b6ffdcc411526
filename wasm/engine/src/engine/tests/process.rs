//! Workers of a process together, and with the coordinator.

use super::visitors::fill;
use super::*;
use crate::admission::Entry;
use crate::shared_table::TableError;

impl Worker {
    /// Returns the worker's entry of a tenant.
    fn known(&self, tenant: &str) -> &Entry {
        let entry = self.engine.admission.entry_of(RuleId(0), tenant.as_bytes());
        entry.expect("a known scope")
    }

    /// Settles a tenant's scope with the shared table, now.
    fn settle(&mut self, tenant: &str) -> Result<(), TableError> {
        let Engine {
            admission, process, ..
        } = &mut self.engine;
        let target = admission.find(RuleId(0), tenant.as_bytes()).unwrap();
        let now = process.host.now();
        admission.settle(process, target, now)
    }
}

#[test]
fn two_workers_share_one_lease() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut first = Worker::new(&process, 1, &config);
    let mut second = Worker::new(&process, 2, &config);
    first.lease("acme", 100.0);
    assert_eq!(second.of("acme"), Decision::Admit);
    let burst = 2 + first.admitted("acme", 200) + second.admitted("acme", 200);
    assert!((95..=100).contains(&burst), "{burst}");
    let mut passed = 0;
    for _ in 0..1000 {
        process.advance(Duration::from_millis(1));
        passed += first.admitted("acme", 2) + second.admitted("acme", 2);
    }
    assert!((95..=105).contains(&passed), "{passed}");
}

#[test]
fn a_token_cache_that_is_not_used_goes_back() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut first = Worker::new(&process, 1, &config);
    let mut second = Worker::new(&process, 2, &config);
    first.lease("acme", 1000.0);
    // The first worker keeps most of a token cache; ticks bring it back to where the second finds it.
    let taken = second.admitted("acme", 2000);
    assert!(taken < 999, "{taken}");
    for _ in 0..30 {
        first.tick(Duration::ZERO);
        process.advance(TICK);
    }
    assert_eq!(first.known("acme").cache.left(), Tokens::ZERO);
}

#[test]
fn demand_that_lives_on_token_caches_is_told_to_the_coordinator() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.lease("acme", 10_000.0);
    let mut shown = 0.0;
    for _ in 0..100 {
        worker.admitted("acme", 20);
        worker.tick(TICK);
        while let Some((token, call)) = worker.process.take_call() {
            shown = call.wants();
            let answer = call.lend(10_000.0);
            worker.handle_answer(token, answer);
        }
    }
    assert!((900.0..=1100.0).contains(&shown), "{shown}");
}

#[test]
fn a_scope_that_nobody_wants_is_released() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.lease("acme", 100.0);
    let mut released = None;
    for _ in 0..1000 {
        worker.tick(TICK);
        while let Some((token, call)) = worker.process.take_call() {
            if call.is_refresh() {
                worker.handle_answer(token, call.lend(100.0))
            } else {
                released = Some(call.release().clone())
            }
        }
    }
    assert_eq!(*released.unwrap().resources[0].0.scope, *"tenant/acme");
    assert_eq!(worker.process_stats().slots_used, 0);
    // The next request starts anew.
    assert_eq!(worker.of("acme"), Decision::Hold);
}

#[test]
fn one_worker_refreshes_for_all_and_another_takes_over_when_it_dies() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut first = Worker::new(&process, 1, &config);
    let mut second = Worker::new(&process, 2, &config);
    first.tick(TICK);
    second.lease("acme", 100.0);
    let mut by = (0, 0);
    for _ in 0..200 {
        second.of("acme");
        first.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            by.0 += 1;
            first.handle_answer(token, call.lend(100.0));
        }
        second.tick(Duration::ZERO);
        by.1 += process.calls.borrow().len();
        second.answer(100.0);
    }
    assert!(by.0 >= 3 && by.1 == 0, "{by:?}");
    let mut after = 0;
    for _ in 0..200 {
        second.of("acme");
        second.tick(TICK);
        after += process.calls.borrow().len();
        second.answer(100.0);
    }
    assert!(after >= 3, "{after}");
}

#[test]
fn a_warning_about_the_configuration_is_given_by_one_worker() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut workers: Vec<Worker> = (1..=3)
        .map(|id| Worker::new(&process, id, &config))
        .collect();
    for worker in &mut workers {
        worker.engine.warn_once("look".to_owned());
    }
    for _ in 0..100 {
        for worker in &mut workers {
            worker.tick(Duration::from_millis(7));
        }
    }
    assert_eq!(
        process
            .logs
            .borrow()
            .iter()
            .filter(|(_, line)| line == "look")
            .count(),
        1
    );
}

#[test]
fn workers_are_counted_while_they_live_and_serve() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut workers: Vec<Worker> = (1..=3)
        .map(|id| Worker::new(&process, id, &config))
        .collect();
    // The third has a VM but no requests, like the one of Envoy's main thread.
    workers[0].of("acme");
    workers[1].of("acme");
    for _ in 0..100 {
        for worker in &mut workers {
            worker.tick(TICK);
        }
    }
    assert_eq!(workers[0].engine.process.table.worker_count(), 2);
    for _ in 0..250 {
        workers[0].tick(TICK);
    }
    assert_eq!(workers[0].engine.process.table.worker_count(), 1);
}

#[test]
fn a_scope_is_refreshed_also_if_the_worker_is_lost_that_asked_for_it_first() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut first = Worker::new(&process, 1, &config);
    let mut second = Worker::new(&process, 2, &config);
    // Until the sync leader has looked at all slots.
    for _ in 0..30 {
        first.tick(TICK);
    }
    second.tick(Duration::ZERO);
    assert_eq!(second.of("acme"), Decision::Hold);
    second.tick(Duration::from_millis(1));
    // Its call and its note for the sync leader are lost.
    assert_eq!(
        process.take_call().unwrap().1.scopes(),
        ["tenant/acme".into()]
    );
    drop(second);
    let asked_again = (0..250).any(|_| {
        first.of("acme");
        first.tick(TICK);
        process.take_call().is_some()
    });
    assert!(asked_again);
}

#[test]
fn a_worker_that_takes_the_lead_finds_what_is_due_in_the_slots() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut first = Worker::new(&process, 1, &config);
    for n in 0..700 {
        first.of(&format!("t{n}"));
    }
    first.tick(Duration::from_millis(1));
    first.answer(10.0);
    drop(first);
    // The second is not told of those slots; it looks, in parts.
    let mut second = Worker::new(&process, 2, &config);
    let mut requested = BTreeSet::new();
    for _ in 0..200 {
        second.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            if call.is_refresh() {
                requested.extend(call.scopes());
            } else {
                requested.extend(
                    call.release()
                        .resources
                        .iter()
                        .map(|(id, _)| id.scope.clone()),
                );
            }
            second.fail_call(token);
        }
    }
    assert_eq!(requested.len(), 700);
}

/// A process with one slot, which the second worker's tenant took over from the first one's.
fn taken_over() -> (Rc<FakeProcess>, Worker, Worker) {
    let process = FakeProcess::new();
    let config = EngineConfig {
        max_scopes: 1,
        ..one_rule()
    };
    let mut first = Worker::new(&process, 1, &config);
    let mut second = Worker::new(&process, 2, &config);
    first.lease("acme", 100.0);
    for _ in 0..1000 {
        first.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            if call.is_refresh() {
                first.handle_answer(token, call.lend(100.0));
            }
        }
    }
    second.lease("umbrella", 100.0);
    (process, first, second)
}

#[test]
fn what_is_attempted_without_a_slot_is_asked_for_as_overflow() {
    let (_, mut first, _second) = taken_over();
    assert_eq!(first.of("acme"), Decision::Hold);
    first.tick(Duration::from_millis(1));
    let (_, call) = first.process.take_call().unwrap();
    assert!(call.scopes()[0].starts_with("tenant/~overflow-"));
    assert!(call.wants() > 0.0);
}

#[test]
fn a_scope_without_a_slot_does_not_search_on_each_request() {
    let (process, mut first, _second) = taken_over();
    first.lease("acme", 1_000_000.0);
    let before = process.reads.get();
    first.admitted("acme", 10_000);
    let reads = process.reads.get() - before;
    assert!(reads < 200, "{reads}");
}

#[test]
fn after_a_failure_of_shared_data_attempts_are_counted_and_token_caches_go_back() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.lease("acme", 10_000.0);
    worker.admitted("acme", 5);
    worker.host().shared_data_fails.set(true);
    for _ in 0..5 {
        worker.tick(TICK);
    }
    worker.host().shared_data_fails.set(false);
    for _ in 0..80 {
        worker.tick(TICK);
    }
    let scope = worker.known("acme");
    assert_eq!((scope.cache.left(), scope.queued), (Tokens::ZERO, false));
}

#[test]
fn a_flood_of_new_names_does_not_keep_the_others_from_their_leases() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.lease("acme", 100.0);
    // A new name each millisecond, and a coordinator that answers after twenty.
    let mut calls = VecDeque::new();
    let mut refreshes = 0;
    for n in 0..3000 {
        worker.of(&format!("unseen{n}"));
        worker.of("acme");
        worker.tick(Duration::from_millis(1));
        while let Some((token, call)) = process.take_call() {
            calls.push_back((n + 20, token, call));
        }
        while calls.front().is_some_and(|(at, ..)| *at <= n) {
            let (_, token, call) = calls.pop_front().unwrap();
            refreshes += usize::from(call.scopes().contains(&"tenant/acme".into()));
            worker.handle_answer(token, call.lend(100.0));
        }
        assert!(calls.len() <= 16, "{}", calls.len());
    }
    assert!(refreshes >= 2, "{refreshes}");
}

#[test]
fn the_leader_lock_stays_with_a_worker_that_lives_however_seldom_it_ticks() {
    let process = FakeProcess::new();
    let mut config = one_rule();
    config.tick = Duration::from_millis(100);
    let mut workers: Vec<Worker> = (1..=3)
        .map(|id| Worker::new(&process, id, &config))
        .collect();
    let mut owners = BTreeSet::new();
    for _ in 0..100 {
        for worker in &mut workers {
            worker.tick(Duration::from_millis(33));
            let lock = process.get("tollgate.c.leader").unwrap();
            owners.insert(
                tollgate_core::client::LeaderLock::decode(&lock)
                    .unwrap()
                    .owner,
            );
        }
    }
    assert_eq!(owners.len(), 1, "{owners:?}");
}

#[test]
fn what_the_shared_table_does_not_take_is_kept_for_the_next_round() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.lease("acme", 10_000.0);
    worker.admitted("acme", 5);
    let spare = worker.known("acme").cache.left();
    assert!(spare > Tokens::ZERO);
    // Its lease has ended, so that the token cache is to go back with the attempts.
    process.advance(Duration::from_secs(20));
    worker.host().shared_data_fails.set(true);
    let before = worker.known("acme").attempts;
    assert!(before > 0);
    assert!(worker.settle("acme").is_err());
    let remaining = worker.known("acme");
    assert_eq!(
        (remaining.attempts, remaining.cache.left()),
        (before, spare)
    );
    worker.host().shared_data_fails.set(false);
    worker.settle("acme").unwrap();
    let settled = worker.known("acme");
    assert_eq!((settled.attempts, settled.cache.left()), (0, Tokens::ZERO));
}

#[test]
fn settling_scopes_without_a_slot_searches_within_bounds_and_counts_for_the_overflow() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        max_scopes: 200,
        ..one_rule()
    };
    let mut first = Worker::new(&process, 1, &config);
    for n in 0..40 {
        first.of(&format!("t{n}"));
    }
    first.tick(Duration::from_millis(1));
    first.answer(100_000.0);
    first.tick(TICK);
    for n in 0..40 {
        assert_eq!(first.admitted(&format!("t{n}"), 3), 3);
    }
    // Others take all slots over while the first worker has attempts to tell of.
    fill(&first, 0..200);
    let overflow = |worker: &Worker| {
        let keys = (0..1000).map(|n| format!("~overflow-{n}"));
        let admission = &worker.engine.admission;
        let entries = keys.filter_map(|key| admission.entry_of(RuleId(0), key.as_bytes()));
        entries.map(|entry| entry.attempts).sum::<u32>()
    };
    let reads = process.reads.get();
    for _ in 0..12 {
        first.tick(TICK);
    }
    let reads = process.reads.get() - reads;
    assert!(reads < 2000, "{reads}");
    assert_eq!(overflow(&first), 120);
    assert_eq!(first.stats().overflow.get(), 0, "no request has fallen yet");
}

#[test]
fn a_scope_that_has_a_slot_keeps_its_lease_while_others_search_in_vain() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        max_scopes: 200,
        ..one_rule()
    };
    let mut worker = Worker::new(&process, 1, &config);
    worker.lease("acme", 100.0);
    let taken = worker.known("acme").slot.unwrap();
    fill(&worker, (0..200).filter(|slot| *slot != taken));
    for n in 0..40 {
        worker.of(&format!("t{n}"));
    }
    let fallen = worker.stats().overflow.get();
    assert_eq!(fallen, 40);
    assert_eq!(worker.of("acme"), Decision::Admit);
    assert_eq!(worker.stats().overflow.get(), fallen);
}

#[test]
fn what_a_worker_that_dies_had_is_told_no_longer() {
    let process = FakeProcess::new();
    let mut config = one_rule();
    config.rules[0].policy.first_lease_wait = Duration::from_secs(1);
    let mut first = Worker::new(&process, 1, &config);
    let mut second = Worker::new(&process, 2, &config);
    first.host().memory_bytes.set(3 << 20);
    second.host().memory_bytes.set(5 << 20);
    first.tick(TICK);
    assert_eq!(second.of("acme"), Decision::Hold);
    assert_eq!(second.of("acme"), Decision::Hold);
    second.tick(TICK);
    for _ in 0..10 {
        first.tick(TICK);
    }
    let shown = |worker: &Worker| {
        let stats = worker.process_stats();
        (stats.waiting, stats.vm_memory_bytes)
    };
    assert_eq!(shown(&first), (2, 5 << 20));
    for _ in 0..200 {
        first.tick(TICK);
    }
    assert_eq!(shown(&first), (0, 3 << 20));
}

#[test]
fn a_note_of_a_slot_that_there_is_not_costs_no_memory() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        max_scopes: 10,
        ..one_rule()
    };
    let mut worker = Worker::new(&process, 1, &config);
    worker.tick(TICK);
    let mut dirty = DirtyQueue::default();
    dirty.add(u32::MAX);
    process.set("tollgate.c.dirty", &dirty.encode(), 0);
    worker.tick(TICK);
    assert_eq!(
        process.get("tollgate.c.dirty"),
        Some(DirtyQueue::default().encode())
    );
    worker.lease("acme", 100.0);
}

/// Attempts that end are told of before the refresh: others may have what the process had.
#[test]
fn demand_that_ends_is_told_before_the_refresh() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.lease("acme", 1000.0);
    // Until just after a refresh; the next one is a second later.
    let mut refreshes = 0;
    while refreshes < 3 {
        worker.admitted("acme", 10);
        worker.tick(TICK);
        if let Some((token, call)) = process.take_call() {
            worker.handle_answer(token, call.lend(1000.0));
            refreshes += 1;
        }
    }
    let shown = (1..=40).find(|_| {
        worker.tick(TICK);
        process.take_call().is_some()
    });
    assert!(shown.is_some_and(|ticks| ticks >= 20), "{shown:?}: a pause");
}
