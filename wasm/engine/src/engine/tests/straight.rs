//! Calls that go straight to the masters of their shards.

use tollgate_core::cluster::ShardId;

use super::*;

/// The shard of the tenant, or its scope, whose name ends with its number.
fn shard(scope: &str) -> Option<ShardId> {
    let number = scope.rsplit('-').next()?.parse().ok()?;
    Some(ShardId(number))
}

/// Settings of a process that has clusters for these shards.
fn sharded(shards: &[&str]) -> EngineConfig {
    EngineConfig {
        shards: shards.iter().map(|shard| (*shard).to_owned()).collect(),
        ..one_rule()
    }
}

/// A worker whose tenants belong to the shards that their names say, two of which it has clusters
/// for.
fn with_shards() -> Worker {
    Worker::new(&FakeProcess::new(), 1, &sharded(&["s-0", "s-1"]))
}

impl Worker {
    /// The next calls, of which there are some within two seconds.
    fn calls(&mut self) -> Vec<(u32, OpenCall)> {
        for _ in 0..100 {
            self.tick(TICK);
            let calls = core::iter::from_fn(|| self.process.take_call());
            let calls: Vec<_> = calls.collect();
            if !calls.is_empty() {
                return calls;
            }
        }
        panic!("no call within two seconds");
    }

    fn answer_from_shards(&mut self, calls: &[(u32, OpenCall)]) {
        for (token, call) in calls {
            let answer = call.lend_from(100.0, shard);
            self.handle_answer(*token, answer);
        }
    }

    /// Gets leases for `tenants`, of masters that say which shards are theirs.
    fn lease_from_shards(&mut self, tenants: &[&str]) {
        for tenant in tenants {
            self.of(tenant);
        }
        let calls = self.calls();
        self.answer_from_shards(&calls);
    }
}

/// Scopes that the calls ask for, by cluster.
fn asked(calls: &[(u32, OpenCall)]) -> BTreeMap<&str, Vec<String>> {
    let mut requested = BTreeMap::new();
    for (_, call) in calls {
        let scopes = call.scopes().into_iter();
        let mut scopes: Vec<String> = scopes.map(|scope| scope.to_string()).collect();
        scopes.sort_unstable();
        let twice = requested.insert(&*call.to, scopes);
        assert_eq!(twice, None, "two calls to {}", call.to);
    }
    requested
}

#[test]
fn refreshes_go_to_the_cluster_of_the_shard_that_answered_last() {
    let mut worker = with_shards();
    let tenants = ["a-0", "b-0", "c-1", "d-2", "e"];
    for tenant in tenants {
        worker.of(tenant);
    }
    worker.tick(Duration::from_millis(1));
    let (token, call) = worker.process.take_call().unwrap();
    assert_eq!(call.to, "c", "nothing is known yet");
    assert_eq!(call.refresh().scopes.len(), 5);
    worker.answer_from_shards(&[(token, call)]);

    for tenant in tenants {
        worker.of(tenant);
    }
    let calls = worker.calls();
    let want = [
        ("c", vec!["tenant/d-2".to_owned(), "tenant/e".to_owned()]),
        (
            "s-0",
            vec!["tenant/a-0".to_owned(), "tenant/b-0".to_owned()],
        ),
        ("s-1", vec!["tenant/c-1".to_owned()]),
    ];
    assert_eq!(asked(&calls), BTreeMap::from(want));
    // A shard that moves is followed: the one that passed the call on says who has answered.
    for (token, call) in &calls {
        let answer = call.lend_from(100.0, |_| Some(ShardId(1)));
        worker.handle_answer(*token, answer);
    }
    for tenant in tenants {
        worker.of(tenant);
    }
    assert_eq!(
        asked(&worker.calls()).into_keys().collect::<Vec<_>>(),
        ["s-1"]
    );
}

/// A cluster that does not answer would cost a scope that returns its lease, and lose releases.
#[test]
fn what_is_given_back_and_who_returns_goes_to_any_coordinator() {
    let mut worker = with_shards();
    worker.lease_from_shards(&["a-0", "b-1"]);
    let mut released = BTreeMap::new();
    for _ in 0..1000 {
        worker.tick(TICK);
        while let Some((token, call)) = worker.process.take_call() {
            if call.is_refresh() {
                worker.answer_from_shards(&[(token, call)])
            } else {
                *released.entry(call.to.clone()).or_insert(0) += call.release().resources.len()
            }
        }
    }
    assert_eq!(released, BTreeMap::from([("c".to_owned(), 2)]));
    assert_eq!(worker.of("a-0"), Decision::Hold);
    assert_eq!(
        asked(&worker.calls()).into_keys().collect::<Vec<_>>(),
        ["c"]
    );
}

#[test]
fn after_a_call_that_failed_any_coordinator_is_asked() {
    for at_once in [false, true] {
        let mut worker = with_shards();
        worker.lease_from_shards(&["a-0"]);
        worker.of("a-0");
        let process = Rc::clone(&worker.process);
        if at_once {
            // As for a cluster that Envoy does not know.
            process.calls_fail.set(true);
            for _ in 0..100 {
                worker.tick(TICK);
                if worker.stats().refresh_errors.get() > 0 {
                    break;
                }
            }
            process.calls_fail.set(false);
        } else {
            let calls = worker.calls();
            assert_eq!(calls[0].1.to, "s-0");
            worker.fail_call(calls[0].0);
        }
        let calls = worker.calls();
        assert_eq!(calls[0].1.to, "c", "{at_once}");
        worker.answer_from_shards(&calls);
        worker.of("a-0");
        assert_eq!(worker.calls()[0].1.to, "s-0", "{at_once}");
    }
}

#[test]
fn another_configuration_says_whom_to_ask_from_then_on() {
    let mut worker = with_shards();
    worker.lease_from_shards(&["a-1"]);
    let rows: [(&[&str], &str); 3] = [(&["x", "y"], "y"), (&["x"], "c"), (&[], "c")];
    for (shards, want) in rows {
        worker.configure(&sharded(shards));
        worker.of("a-1");
        let calls = worker.calls();
        assert_eq!(calls[0].1.to, want);
        worker.answer_from_shards(&calls);
    }
}

/// A cluster that does not answer is awaited in eight calls for each reason, and blocks no other.
#[test]
fn a_shard_that_does_not_answer_takes_no_room_from_the_others() {
    let config = EngineConfig {
        call_timeout: Duration::from_secs(60),
        ..sharded(&["s-0", "s-1"])
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let mut answered = 0;
    let mut awaited: BTreeMap<String, usize> = BTreeMap::new();
    // Newcomers in every tick, so that in every tick some are due.
    for tick in 0..500 {
        for shard in 0..2 {
            for known in tick - tick % 50..=tick {
                worker.of(&format!("t{known}-{shard}"));
            }
        }
        worker.tick(TICK);
        while let Some((token, call)) = worker.process.take_call() {
            match call.to.as_str() {
                _ if !call.is_refresh() => {}
                "s-0" => *awaited.entry(call.to).or_default() += 1,
                to => {
                    answered += usize::from(to == "s-1");
                    worker.answer_from_shards(&[(token, call)]);
                }
            }
        }
    }
    assert_eq!(awaited["s-0"], 8);
    assert!(answered > 100, "{answered}");
}

#[test]
fn calls_that_are_awaited_are_bounded_for_each_cluster_and_reason() {
    let config = EngineConfig {
        call_timeout: Duration::from_secs(60),
        max_pending: 0,
        max_scopes: 100_000,
        ..sharded(&["s-0", "s-1"])
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    // Ten thousand newcomers at once are more than eight calls hold.
    worker.tick(TICK);
    for n in 0..10_000 {
        worker.of(&format!("t{n}-{}", n % 3));
    }
    worker.tick(Duration::from_millis(1));
    let calls = core::iter::from_fn(|| worker.process.take_call());
    let calls: Vec<_> = calls.collect();
    assert_eq!(calls.len(), 8);
    let scopes = calls.iter().map(|(_, call)| call.scopes().len());
    assert_eq!(scopes.sum::<usize>(), 4000);
    worker.answer_from_shards(&calls);
    let mut awaited: BTreeMap<String, usize> = BTreeMap::new();
    for tick in 0..100 {
        worker.of(&format!("newcomer-{tick}"));
        for n in tick * 30..(tick + 1) * 30 {
            worker.of(&format!("t{n}-{}", n % 3));
        }
        worker.tick(TICK);
        while let Some((_, call)) = worker.process.take_call() {
            let refreshes = usize::from(call.is_refresh());
            *awaited.entry(call.to).or_default() += refreshes;
        }
    }
    // Eight for scopes that are new or return, and eight for those that are due.
    assert_eq!(awaited["c"], 16);
    for shard in ["s-0", "s-1"] {
        assert!((8..=16).contains(&awaited[shard]), "{awaited:?}");
    }
}
