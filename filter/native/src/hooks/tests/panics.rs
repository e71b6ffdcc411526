//! Panics: none leaves the module, and `host_failure` decides on the request.

use tollgate_core::units::Instant;

use super::*;
use crate::engine::Engine;

/// Makes a defect of the engine of this thread.
fn lose_engine(loaded: &Loaded) {
    let bound = Bound::of(loaded.own()).unwrap();
    guard((), || {
        let _worker = bound.worker.lock().unwrap();
        panic!("as a defect of the engine would");
    });
    assert!(bound.worker.is_lost());
    // The thread for ticks goes on without it.
    bound.worker.tick(Instant::from_nanos(u64::MAX));
}

#[test]
fn after_a_panic_the_request_is_decided_by_host_failure_and_the_next_one_by_a_new_engine() {
    let more = r#""first_lease_wait_ms": 10000, "host_failure": "closed","#;
    let configuration = Loaded::new("panics", "", more);
    let waits = configuration.open("acme");
    assert_eq!(waits.status, STOP_ALL_AND_WATERMARK);
    let mut stream = configuration.new_stream("acme");
    lose_engine(&configuration);
    stream.begin_request();
    assert_eq!(stream.status, STOP);
    assert_eq!(fake().replies[&stream.envoy].0, 503);
    stream.end();
    waits.wait_for_wake();
    assert_eq!(
        fake().replies[&waits.envoy].0,
        503,
        "it is not left to wait"
    );
    waits.end();
    let next = configuration.open("acme");
    assert_eq!(
        next.status, STOP_ALL_AND_WATERMARK,
        "a new engine waits for the lease"
    );
    next.end();
    configuration.destroy();
}

#[test]
fn a_stream_whose_engine_panics_at_its_start_is_decided_by_host_failure() {
    for (host_failure, status) in [("closed", STOP), ("open", CONTINUE)] {
        let more = format!(r#""host_failure": "{host_failure}","#);
        let loaded = Loaded::new("panics-at-start", "", &more);
        let own = new_stream(loaded.own(), |_| panic!("as a defect of the engine would"));
        let mut stream = Opened {
            envoy: fake().new_stream(&[("x-tenant", "acme")]),
            own: Box::into_raw(Box::new(own)).cast_const().cast(),
            status: CONTINUE,
        };
        stream.begin_request();
        assert_eq!(stream.status, status, "{host_failure}");
        let reply = fake().replies.get(&stream.envoy).map(|(status, _)| *status);
        assert_eq!(reply, (status == STOP).then_some(503));
        stream.end();
        loaded.destroy();
    }
}

#[test]
fn a_request_that_was_decided_after_a_panic_is_not_woken_any_more() {
    let more = r#""first_lease_wait_ms": 10000, "host_failure": "closed","#;
    let loaded = Loaded::new("panics-late", "", more);
    let waits = loaded.open("acme");
    assert_eq!(waits.status, STOP_ALL_AND_WATERMARK);
    // As if the hook had panicked at its end.
    assert!(matches!(waits.own().step_after_panic(), Step::Reply(reply) if reply.status == 503));
    lose_engine(&loaded);
    loaded.own().process.engines();
    assert!(!fake().woken.contains(&waits.envoy));
    waits.end();
    loaded.destroy();
}

#[test]
fn a_configuration_whose_taking_over_panics_is_forgotten() {
    let envoy = config_ptr(fake().new_number());
    let json = by_tenant(r#""panics-new""#, "", "");
    let (new, metric_ids) = Configuration::prepare(envoy, json.as_bytes()).unwrap();
    let attached = guard(None, || {
        Some(new.attach(envoy, metric_ids, || {
            panic!("as a defect of the engine would")
        }))
    });
    assert!(attached.is_none());
    assert!(new.process.latest().is_none(), "Envoy destroys it");
}

#[test]
fn no_panic_leaves_a_hook() {
    assert_eq!(guard(7, || panic!("in a hook")), 7);
    assert_eq!(guard(7, || 8), 8);
}
