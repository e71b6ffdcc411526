//! Lines for the operator about conditions with the coordinators, of a whole process.

use prost::Message;
use tollgate_proto::v1;

use super::*;
use crate::fake::Call;

const SECOND: Duration = Duration::from_secs(1);

/// The lines that were logged louder than for debugging since the last look.
fn lines(process: &Rc<Process>) -> Vec<(Level, String)> {
    let mut logs = core::mem::take(&mut *process.logs.borrow_mut());
    logs.retain(|(level, _)| *level != Level::Debug);
    logs
}

/// Lets all `workers` serve for so long, while each call fails with the gRPC `status` or is answered.
fn serve(workers: &mut [Proxy], duration: Duration, status: Option<u32>) {
    let process = Rc::clone(&workers[0].host().process);
    let mut passed = Duration::ZERO;
    while passed < duration {
        for worker in workers.iter_mut() {
            worker.of("acme");
            worker.tick(Duration::ZERO);
            // Answers come to the worker that has called.
            while let Some((token, call)) = process.take_call() {
                match (call.method.as_str(), status) {
                    ("Refresh", None) => worker.worker.handle_answer(token, &call.lend(100.0)),
                    ("Refresh", Some(status)) => worker.worker.handle_failure(token, status),
                    _ => {}
                }
            }
        }
        process.advance(TICK);
        passed += TICK;
    }
}

fn workers(process: &Rc<Process>, config: &Config) -> [Proxy; 3] {
    [1, 2, 3].map(|id| Proxy::new(process, id, config))
}

#[test]
fn safe_mode_is_told_once_by_all_workers_when_it_begins_and_when_it_ends() {
    let process = Process::new();
    let mut workers = workers(&process, &one_rule(""));
    serve(&mut workers, 5 * SECOND, None);
    assert_eq!(lines(&process), []);
    // The lease of ten seconds is still good for some of it.
    serve(&mut workers, 40 * SECOND, Some(14));
    let told = lines(&process);
    let [(Level::Warn, line)] = &told[..] else {
        panic!("{told:?}")
    };
    for part in [
        "tollgate: safe mode on: calls to the coordinator fail and scopes have no lease: \
         cluster=\"c\" failing_for=9.",
        "scopes=1 last_failure=\"gRPC status 14 (UNAVAILABLE)\"",
    ] {
        assert!(line.contains(part), "{line}");
    }
    serve(&mut workers, 20 * SECOND, None);
    let told = lines(&process);
    let [(Level::Warn, line)] = &told[..] else {
        panic!("{told:?}")
    };
    let want = "tollgate: safe mode off: the coordinator answers again: cluster=\"c\" after=4";
    assert!(line.starts_with(want), "{line}");
}

#[test]
fn a_lost_call_and_new_scopes_at_all_times_are_no_safe_mode() {
    let process = Process::new();
    let mut workers = workers(&process, &one_rule(""));
    serve(&mut workers, TICK, Some(14));
    for scope in 0..750 {
        // Its call is answered with the next round.
        workers[0].of(&format!("new-{scope}"));
        for worker in &mut workers {
            worker.tick(Duration::ZERO);
        }
        serve(&mut workers, TICK, None);
    }
    assert_eq!(lines(&process), []);
}

/// Lets a worker serve a scope that gets a lease and another one that gets nothing but the error
/// `code`.
fn serve_two(worker: &mut Proxy, duration: Duration, code: u32) {
    let process = Rc::clone(&worker.host().process);
    let mut passed = Duration::ZERO;
    while passed < duration {
        worker.of("acme");
        worker.of("bad");
        worker.tick(TICK);
        passed += TICK;
        while let Some((token, call)) = process.take_call() {
            if call.method == "Refresh" {
                worker
                    .worker
                    .handle_answer(token, &answer_of_two(&call, code));
            }
        }
    }
}

fn answer_of_two(call: &Call, code: u32) -> Vec<u8> {
    let decoded = |answer: Vec<u8>| v1::RefreshResponse::decode(&answer[..]).unwrap();
    let mut answer = decoded(call.lend(100.0));
    let refused = decoded(call.refuse(code));
    for (scope, refused) in answer.scopes.iter_mut().zip(refused.scopes) {
        if scope.scope.ends_with("bad") {
            *scope = refused;
        }
    }
    answer.encode_to_vec()
}

#[test]
fn a_scope_that_is_always_refused_is_no_safe_mode_and_hides_no_outage() {
    let process = Process::new();
    let mut workers = workers(&process, &one_rule(""));
    let worker = &mut workers[0];
    serve_two(worker, 30 * SECOND, 8);
    assert_eq!(process.metric("safe_mode"), 1);
    assert_eq!(lines(&process), []);
    serve(&mut workers[..1], 30 * SECOND, Some(14));
    let told = lines(&process);
    assert!(
        told.len() == 1 && told[0].1.contains("safe mode on"),
        "{told:?}"
    );
    // It is over although the scope is refused again.
    serve_two(&mut workers[0], 30 * SECOND, 8);
    let told = lines(&process);
    assert!(
        told.len() == 1 && told[0].1.contains("safe mode off"),
        "{told:?}"
    );
}

#[test]
fn a_scope_whose_master_nobody_reaches_is_safe_mode_whatever_is_answered_for_others() {
    let process = Process::new();
    let mut worker = Proxy::new(&process, 1, &one_rule(""));
    serve_two(&mut worker, 30 * SECOND, 14);
    let told = lines(&process);
    let [(Level::Warn, line)] = &told[..] else {
        panic!("{told:?}")
    };
    let want = "last_failure=\"tenant/bad: nobody answered (code 14)\"";
    assert!(
        line.contains("safe mode on") && line.contains(want),
        "{line}"
    );
}

#[test]
fn a_worker_that_takes_the_lead_over_tells_nothing_twice() {
    let process = Process::new();
    let mut workers = workers(&process, &one_rule(""));
    process.missing_clusters.borrow_mut().insert("c".to_owned());
    serve(&mut workers[..1], 5 * SECOND, Some(14));
    assert_eq!(lines(&process).len(), 2);
    serve(&mut workers[1..], 30 * SECOND, Some(14));
    assert_eq!(lines(&process), []);
    assert_eq!(process.metric("missing_clusters"), 1);
    process.missing_clusters.borrow_mut().clear();
    serve(&mut workers[1..], 5 * SECOND, None);
    let told: Vec<String> = lines(&process).into_iter().map(|(_, line)| line).collect();
    assert!(
        told.len() == 2
            && told.iter().any(|line| line.contains("cluster found"))
            && told.iter().any(|line| line.contains("safe mode off")),
        "{told:?}"
    );
}

#[test]
fn a_cluster_that_envoy_lacks_is_an_error_with_the_first_call_and_a_gauge_until_it_has_it() {
    let process = Process::new();
    let mut workers = workers(&process, &one_rule(""));
    process.missing_clusters.borrow_mut().insert("c".to_owned());
    serve(&mut workers, Duration::from_millis(300), None);
    let told = lines(&process);
    let want = "tollgate: cluster missing: there is no cluster \"c\", which coordinator names; no \
                lease comes from there until there is one";
    assert_eq!(told, [(Level::Error, want.to_owned())]);
    serve(&mut workers, 20 * SECOND, None);
    assert_eq!(process.metric("missing_clusters"), 1);
    let told = lines(&process);
    let [(Level::Warn, line)] = &told[..] else {
        panic!("{told:?}")
    };
    let want = "last_failure=\"there is no cluster of that name\"";
    assert!(line.contains(want), "{line}");
    // It is noticed without a request, too.
    process.missing_clusters.borrow_mut().clear();
    for _ in 0..100 {
        workers[0].tick(TICK);
    }
    assert_eq!(process.metric("missing_clusters"), 0);
    let told = lines(&process);
    let want = "tollgate: cluster found: there is a cluster \"c\" now, which coordinator names";
    assert_eq!(told.first(), Some(&(Level::Warn, want.to_owned())));
}

#[test]
fn a_shards_cluster_that_envoy_lacks_is_told_although_no_lease_is_lost() {
    let process = Process::new();
    let config = one_rule(r#", "shards": ["s-0", "s-1"]"#);
    let mut worker = Proxy::new(&process, 1, &config);
    process
        .missing_clusters
        .borrow_mut()
        .insert("s-1".to_owned());
    for _ in 0..500 {
        worker.of("acme");
        worker.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            let answer = call.lend_from(100.0, |_| Some(tollgate_core::cluster::ShardId(1)));
            worker.worker.handle_answer(token, &answer);
        }
    }
    let told = lines(&process);
    let want = "tollgate: cluster missing: there is no cluster \"s-1\", which shards[1] names; no \
                lease comes from there until there is one";
    assert_eq!(told, [(Level::Error, want.to_owned())]);
    assert_eq!(process.metric("missing_clusters"), 1);
    assert_eq!(process.metric("safe_mode"), 0);
}

#[test]
fn a_status_of_any_number_is_told() {
    let process = Process::new();
    let mut workers = workers(&process, &one_rule(""));
    serve(&mut workers, 3 * SECOND, Some(u32::MAX));
    let told = lines(&process);
    assert!(
        told[0].1.contains("gRPC status 4294967295 (unknown)"),
        "{told:?}"
    );
}
