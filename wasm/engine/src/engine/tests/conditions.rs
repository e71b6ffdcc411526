//! Lines for the operator about conditions with the coordinators, of a whole process.

use tollgate_core::cluster::ShardId;
use tollgate_core::message::Refreshed;

use super::*;
use crate::stats::ProcessStats;

const SECOND: Duration = Duration::from_secs(1);

/// The lines that were logged louder than for debugging since the last look.
fn lines(process: &Rc<FakeProcess>) -> Vec<(Level, String)> {
    let mut logs = core::mem::take(&mut *process.logs.borrow_mut());
    logs.retain(|(level, _)| *level != Level::Debug);
    logs
}

/// Lets all `workers` serve for so long, while each call is answered, or fails if all are `down`.
fn serve(workers: &mut [Worker], duration: Duration, down: bool) {
    let process = Rc::clone(&workers[0].host().process);
    let mut passed = Duration::ZERO;
    while passed < duration {
        for worker in workers.iter_mut() {
            worker.of("acme");
            worker.tick(Duration::ZERO);
            // Answers come to the worker that has called.
            while let Some((token, call)) = process.take_call() {
                match (call.is_refresh(), down) {
                    (true, false) => worker.handle_answer(token, call.lend(100.0)),
                    (true, true) => worker.fail_call(token),
                    (false, _) => {}
                }
            }
        }
        process.advance(TICK);
        passed += TICK;
    }
}

/// The levels of the process, of whichever worker leads.
fn levels(workers: &[Worker]) -> ProcessStats {
    let mut levels = workers
        .iter()
        .filter_map(|worker| worker.engine.process_stats());
    levels.next().expect("a sync leader")
}

fn workers(process: &Rc<FakeProcess>, config: &EngineConfig) -> [Worker; 3] {
    [1, 2, 3].map(|id| Worker::new(process, id, config))
}

#[test]
fn safe_mode_is_told_once_by_all_workers_when_it_begins_and_when_it_ends() {
    let process = FakeProcess::new();
    let mut workers = workers(&process, &one_rule());
    serve(&mut workers, 5 * SECOND, false);
    assert_eq!(lines(&process), []);
    // The lease of ten seconds is still good for some of it.
    serve(&mut workers, 40 * SECOND, true);
    let shown = lines(&process);
    let [(Level::Warn, line)] = &shown[..] else {
        panic!("{shown:?}")
    };
    for part in [
        "tollgate: safe mode on: calls to the coordinator fail and scopes have no lease: \
         coordinator=\"c\" failing_for=9.",
        "scopes=1 last_failure=\"gRPC status 14 (UNAVAILABLE)\"",
    ] {
        assert!(line.contains(part), "{line}");
    }
    serve(&mut workers, 20 * SECOND, false);
    let shown = lines(&process);
    let [(Level::Warn, line)] = &shown[..] else {
        panic!("{shown:?}")
    };
    let want = "tollgate: safe mode off: the coordinator answers again: coordinator=\"c\" after=4";
    assert!(line.starts_with(want), "{line}");
}

#[test]
fn a_lost_call_and_new_scopes_at_all_times_are_no_safe_mode() {
    let process = FakeProcess::new();
    let mut workers = workers(&process, &one_rule());
    serve(&mut workers, TICK, true);
    for scope in 0..750 {
        // Its call is answered with the next round.
        workers[0].of(&format!("new-{scope}"));
        for worker in &mut workers {
            worker.tick(Duration::ZERO);
        }
        serve(&mut workers, TICK, false);
    }
    assert_eq!(lines(&process), []);
}

/// Lets a worker serve a scope that gets a lease and another one that gets nothing but the error
/// `code`.
fn serve_two(worker: &mut Worker, duration: Duration, code: u32) {
    let process = Rc::clone(&worker.process);
    let mut passed = Duration::ZERO;
    while passed < duration {
        worker.of("acme");
        worker.of("bad");
        worker.tick(TICK);
        passed += TICK;
        while let Some((token, call)) = process.take_call() {
            if call.is_refresh() {
                worker.handle_answer(token, answer_of_two(&call, code));
            }
        }
    }
}

fn answer_of_two(call: &OpenCall, code: u32) -> Refreshed {
    let (good, bad) = (call.lend(100.0).scopes, call.refuse(code).scopes);
    let scopes = good.into_iter().zip(bad).map(|(good, bad)| {
        let is_bad = good.as_ref().is_ok_and(|good| good.scope.ends_with("bad"));
        if is_bad { bad } else { good }
    });
    Refreshed {
        scopes: scopes.collect(),
    }
}

#[test]
fn a_scope_that_is_always_refused_is_no_safe_mode_and_hides_no_outage() {
    let process = FakeProcess::new();
    let mut workers = workers(&process, &one_rule());
    let worker = &mut workers[0];
    serve_two(worker, 30 * SECOND, 8);
    assert_eq!(levels(&workers).safe_mode, 1);
    assert_eq!(lines(&process), []);
    serve(&mut workers[..1], 30 * SECOND, true);
    let shown = lines(&process);
    assert!(
        shown.len() == 1 && shown[0].1.contains("safe mode on"),
        "{shown:?}"
    );
    // It is over although the scope is refused again.
    serve_two(&mut workers[0], 30 * SECOND, 8);
    let shown = lines(&process);
    assert!(
        shown.len() == 1 && shown[0].1.contains("safe mode off"),
        "{shown:?}"
    );
}

#[test]
fn a_scope_whose_master_nobody_reaches_is_safe_mode_whatever_is_answered_for_others() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    serve_two(&mut worker, 30 * SECOND, 14);
    let shown = lines(&process);
    let [(Level::Warn, line)] = &shown[..] else {
        panic!("{shown:?}")
    };
    let want = "last_failure=\"tenant/bad: nobody answered (code 14)\"";
    assert!(
        line.contains("safe mode on") && line.contains(want),
        "{line}"
    );
}

#[test]
fn a_worker_that_takes_the_lead_over_tells_nothing_twice() {
    let process = FakeProcess::new();
    let mut workers = workers(&process, &one_rule());
    process.missing_clusters.borrow_mut().insert("c".to_owned());
    serve(&mut workers[..1], 5 * SECOND, true);
    assert_eq!(lines(&process).len(), 2);
    serve(&mut workers[1..], 30 * SECOND, true);
    assert_eq!(lines(&process), []);
    assert_eq!(levels(&workers[1..]).missing_clusters, 1);
    process.missing_clusters.borrow_mut().clear();
    serve(&mut workers[1..], 5 * SECOND, false);
    let shown: Vec<String> = lines(&process).into_iter().map(|(_, line)| line).collect();
    assert!(
        shown.len() == 2
            && shown.iter().any(|line| line.contains("cluster found"))
            && shown.iter().any(|line| line.contains("safe mode off")),
        "{shown:?}"
    );
}

#[test]
fn a_cluster_that_envoy_lacks_is_an_error_with_the_first_call_and_a_gauge_until_it_has_it() {
    let process = FakeProcess::new();
    let mut workers = workers(&process, &one_rule());
    process.missing_clusters.borrow_mut().insert("c".to_owned());
    serve(&mut workers, Duration::from_millis(300), false);
    let shown = lines(&process);
    let want = "tollgate: cluster missing: there is no cluster \"c\", which coordinator names; no \
                lease comes from there until there is one";
    assert_eq!(shown, [(Level::Error, want.to_owned())]);
    serve(&mut workers, 20 * SECOND, false);
    assert_eq!(levels(&workers).missing_clusters, 1);
    let shown = lines(&process);
    let [(Level::Warn, line)] = &shown[..] else {
        panic!("{shown:?}")
    };
    let want = "last_failure=\"there is no cluster of that name\"";
    assert!(line.contains(want), "{line}");
    // It is noticed without a request, too; each look costs Envoy a call, so there are few.
    let looks = process.looks.get();
    for _ in 0..5000 {
        workers[0].tick(TICK);
    }
    let looks = process.looks.get() - looks;
    assert!((99..=101).contains(&looks), "{looks} in a hundred seconds");
    process.missing_clusters.borrow_mut().clear();
    for _ in 0..100 {
        workers[0].tick(TICK);
    }
    assert_eq!(levels(&workers).missing_clusters, 0);
    let shown = lines(&process);
    let want = "tollgate: cluster found: there is a cluster \"c\" now, which coordinator names";
    assert_eq!(shown.first(), Some(&(Level::Warn, want.to_owned())));
}

#[test]
fn a_shards_cluster_that_envoy_lacks_is_told_although_no_lease_is_lost() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        shards: vec!["s-0".to_owned(), "s-1".to_owned()],
        ..one_rule()
    };
    let mut worker = Worker::new(&process, 1, &config);
    process
        .missing_clusters
        .borrow_mut()
        .insert("s-1".to_owned());
    for _ in 0..500 {
        worker.of("acme");
        worker.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            let answer = call.lend_from(100.0, |_| Some(ShardId(1)));
            worker.handle_answer(token, answer);
        }
    }
    let shown = lines(&process);
    let want = "tollgate: cluster missing: there is no cluster \"s-1\", which shards[1] names; no \
                lease comes from there until there is one";
    assert_eq!(shown, [(Level::Error, want.to_owned())]);
    assert_eq!(worker.process_stats().missing_clusters, 1);
    assert_eq!(worker.process_stats().safe_mode, 0);
}
