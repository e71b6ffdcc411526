//! The module as Envoy uses it, through its hooks, on threads as Envoy's.

use std::thread;

use super::*;
use crate::calls;
use crate::envoy::to_headers;
use crate::fake_envoy::{eventually, fake};
use crate::grpc;
use crate::process::Process;

mod address;
mod mark;
mod metadata;
mod panics;

/// A configuration in the fake Envoy.
struct Loaded {
    envoy: usize,
    own: *const c_void,
}

/// A stream in the fake Envoy, on its thread.
struct Opened {
    envoy: usize,
    own: *const c_void,
    status: u32,
}

// === impl Loaded ===

impl Loaded {
    /// Loads a configuration whose coordinators are called `cluster`, so that tests do not share tables.
    fn new(cluster: &str, rule: &str, more: &str) -> Self {
        let json = by_tenant(&format!("\"{cluster}\""), rule, more);
        let loaded = Self::try_new(&json);
        assert!(!loaded.own.is_null(), "{json}");
        loaded
    }

    fn try_new(json: &str) -> Self {
        let envoy = fake().new_number();
        let own = unsafe {
            envoy_dynamic_module_on_http_filter_config_new(
                ptr(envoy),
                Buffer::of("tollgate"),
                Buffer::of(json),
            )
        };
        Self { envoy, own }
    }

    /// The module's part of it.
    fn own(&self) -> &Configuration {
        unsafe { configuration(self.own) }.unwrap()
    }

    fn open(&self, tenant: &str) -> Opened {
        let mut stream = self.new_stream(tenant);
        stream.begin_request();
        stream
    }

    /// A stream whose request has not come yet.
    fn new_stream(&self, tenant: &str) -> Opened {
        let envoy = fake().new_stream(&[("x-tenant", tenant)]);
        let own = unsafe { envoy_dynamic_module_on_http_filter_new(self.own, ptr(envoy)) };
        let status = CONTINUE;
        Opened { envoy, own, status }
    }

    /// Runs the hook of the main thread, if that is asked for, and returns the streams that it opened.
    fn run_main(&self) -> Vec<u64> {
        let is_asked = |fake: &mut crate::fake_envoy::FakeEnvoy| {
            let scheduled = fake.scheduled.len();
            fake.scheduled.retain(|config| *config != self.envoy);
            scheduled > fake.scheduled.len()
        };
        if is_asked(&mut fake()) {
            unsafe {
                envoy_dynamic_module_on_http_filter_config_scheduled(ptr(self.envoy), self.own, 0);
            }
        }
        let opened = fake();
        let own = opened
            .opened
            .iter()
            .filter(|(config, ..)| *config == self.envoy);
        own.map(|(_, id, ..)| *id).collect()
    }

    fn end_stream(&self, id: u64, grpc_status: &str) {
        let trailers = to_headers(&[("grpc-status", grpc_status)]);
        unsafe {
            let (fields, count) = (trailers.as_ptr(), trailers.len());
            envoy_dynamic_module_on_http_filter_config_http_stream_trailers(
                ptr(self.envoy),
                self.own,
                id,
                fields,
                count,
            );
            envoy_dynamic_module_on_http_filter_config_http_stream_complete(
                ptr(self.envoy),
                self.own,
                id,
            );
        }
    }

    fn destroy(self) {
        unsafe { envoy_dynamic_module_on_http_filter_config_destroy(self.own) };
    }
}

// SAFETY: Envoy's threads share a configuration as well.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

// === impl Opened ===

impl Opened {
    /// The module's part of it.
    fn own(&self) -> &Stream {
        unsafe { self.own.cast::<Stream>().as_ref() }.unwrap()
    }

    fn begin_request(&mut self) {
        let envoy = ptr(self.envoy);
        self.status =
            unsafe { envoy_dynamic_module_on_http_filter_request_headers(envoy, self.own, true) };
    }

    /// Waits until another thread wakes the stream, and runs its hook.
    fn wait_for_wake(&self) {
        eventually("the stream to be woken", || {
            let mut fake = fake();
            let index = fake.woken.iter().position(|woken| *woken == self.envoy)?;
            fake.woken.remove(index)
        });
        unsafe { envoy_dynamic_module_on_http_filter_scheduled(ptr(self.envoy), self.own, 0) };
    }

    fn end(self) {
        unsafe {
            envoy_dynamic_module_on_http_filter_stream_complete(ptr(self.envoy), self.own);
            envoy_dynamic_module_on_http_filter_destroy(self.own);
        }
    }
}

/// A configuration with the scopes `tenant/<x-tenant>`.
fn by_tenant(coordinator: &str, rule: &str, more: &str) -> String {
    format!(
        r#"{{"coordinator": {coordinator}, {more} "scopes": [
            {{"name": "tenant", "key": {{"header": "x-tenant"}} {rule}}}]}}"#
    )
}

fn ptr(number: usize) -> *mut c_void {
    core::ptr::without_provenance_mut(number)
}

fn stream_ptr(number: usize) -> StreamPtr {
    unsafe { StreamPtr::new(ptr(number)) }.unwrap()
}

fn config_ptr(number: usize) -> ConfigPtr {
    unsafe { ConfigPtr::new(ptr(number)) }.unwrap()
}

#[test]
fn a_bad_configuration_is_refused_with_its_field() {
    for (json, why) in [
        ("{", "not JSON"),
        (r#"{"coordinator": "c"}"#, "scopes is required"),
        (
            r#"{"coordinator": "c", "scopes": [{"name": "a", "key": {"cel": "1 + 1"}}]}"#,
            "scopes[0].key is 1 + 1",
        ),
        (
            r#"{"coordinator": "c", "scopes": [{"name": "a", "key": {"metadata": ["x", "y", "z"]}}]}"#,
            "scopes[0].key is metadata.filter_metadata.x.y.z",
        ),
    ] {
        assert!(Loaded::try_new(json).own.is_null(), "{json}");
        let logs = fake().logs.join("\n");
        assert!(logs.contains(why), "{why}: {logs}");
    }
}

#[test]
fn threads_share_one_bucket_exactly() {
    let configuration = Loaded::new(
        "shared",
        r#", "safe_capacity": 1"#,
        r#""first_lease_wait_ms": 0,"#,
    );
    let begin = tollgate_filter::now();
    let count = || {
        let mut admitted = 0;
        for _ in 0..200 {
            let stream = configuration.open("acme");
            admitted += u32::from(stream.status == CONTINUE);
            stream.end();
        }
        admitted
    };
    let admitted: u32 = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let earned =
        u32::try_from(tollgate_filter::now().saturating_since(begin).as_secs()).unwrap() + 1;
    let burst = 1;
    assert!((burst..=burst + earned).contains(&admitted), "{admitted}");
    configuration.destroy();
}

#[test]
fn a_request_that_waits_is_woken_on_its_own_thread_or_forgotten() {
    let configuration = Loaded::new("waits", "", r#""first_lease_wait_ms": 50,"#);
    let stays = configuration.open("acme");
    assert_eq!(stays.status, STOP_ALL_AND_WATERMARK);
    let leaves = configuration.open("acme");
    let left = leaves.envoy;
    leaves.end();
    assert!(!fake().schedulers.contains(&left), "its scheduler is kept");
    stays.wait_for_wake();
    let (number, decided) = (stays.envoy, fake());
    let is_decided = decided.resumed.contains(&number) || decided.replies.contains_key(&number);
    drop(decided);
    assert!(is_decided);
    stays.end();
    assert!(
        !fake().schedulers.contains(&number),
        "its scheduler is kept"
    );
    configuration.destroy();
}

#[test]
fn a_call_is_opened_on_the_main_thread_and_its_failure_counts() {
    let configuration = Loaded::new("calls", "", "");
    let stream = configuration.open("acme");
    let opened = eventually("a call", || {
        Some(configuration.run_main()).filter(|all| !all.is_empty())
    });
    let body = {
        let fake = fake();
        let mut all = fake.opened.iter();
        let (_, _, cluster, body) = all.find(|(_, id, ..)| *id == opened[0]).unwrap();
        assert_eq!(cluster, "calls");
        body.clone()
    };
    let messages = grpc::Response::default().data(&body).unwrap();
    assert!(
        messages[0].windows(4).any(|part| part == b"acme"),
        "{messages:?}"
    );
    configuration.end_stream(opened[0], "14");
    // Nobody waits for what comes of a stream that is over.
    configuration.end_stream(opened[0], "0");
    eventually("the failure to be counted", || {
        configuration.run_main();
        (fake().counter(configuration.envoy, "refresh_errors") > 0).then_some(())
    });
    stream.end();
    configuration.destroy();
}

#[test]
fn a_cluster_that_is_missing_fails_the_call() {
    let configuration = Loaded::new("no-such", "", "");
    configuration.open("acme").end();
    eventually("the failure to be counted", || {
        configuration.run_main();
        (fake().counter(configuration.envoy, "refresh_errors") > 0).then_some(())
    });
    configuration.destroy();
}

#[test]
fn a_stream_of_an_older_configuration_is_reset_in_the_hook_of_the_latest() {
    let old = Loaded::new("older", "", "");
    let process = Process::of("older");
    let watch = |token| {
        let call = calls::Call::new(None, process.call_id(token), true);
        calls::Order::start(call, "older", "Watch", b"", None)
    };
    let token = process.order(watch).unwrap();
    let opened = old.run_main();
    assert_eq!(opened.len(), 1);
    let new = Loaded::new("older", "", "");
    let cancel = |_| calls::Order::Cancel { token };
    process.order(cancel).unwrap();
    new.run_main();
    assert!(fake().reset.contains(&(old.envoy, opened[0])));
    old.destroy();
    new.destroy();
}

#[test]
fn a_new_configuration_finds_the_balances_of_the_one_before() {
    let rule = r#", "safe_capacity": 1"#;
    let more = r#""first_lease_wait_ms": 0,"#;
    let old = Loaded::new("reload", rule, more);
    let first = old.open("acme");
    assert_eq!(first.status, CONTINUE);
    let new = Loaded::new("reload", rule, more);
    let second = new.open("acme");
    assert_eq!(second.status, STOP);
    assert_eq!(fake().replies[&second.envoy].0, 429);
    first.end();
    old.destroy();
    second.end();
    let third = new.open("acme");
    assert_eq!(third.status, STOP);
    third.end();
    new.destroy();
}

#[test]
fn a_thread_has_one_engine_for_coordinators_that_configurations_leave_and_come_back_to() {
    let load = |cluster| Loaded::new(cluster, "", r#""first_lease_wait_ms": 0,"#);
    let use_and_leave = |loaded: Loaded| {
        loaded.open("acme").end();
        loaded.destroy();
    };
    use_and_leave(load("one-engine"));
    // The thread forgets the configuration before when it meets this one.
    use_and_leave(load("one-engine-other"));
    use_and_leave(load("one-engine"));
    assert_eq!(Process::of("one-engine").engines().len(), 1);
}

#[test]
fn a_configuration_that_is_given_up_leaves_the_one_before_in_force() {
    let more = r#""first_lease_wait_ms": 0,"#;
    let before = Loaded::new("given-up", r#", "safe_capacity": 1"#, more);
    before.open("first").end();
    let new = Loaded::new("given-up", r#", "safe_capacity": 1000"#, more);
    // As where Envoy refuses its listener for another filter.
    new.destroy();
    let (one, two) = (before.open("acme"), before.open("acme"));
    assert_eq!((one.status, two.status), (CONTINUE, STOP));
    one.end();
    two.end();
    before.destroy();
}

#[test]
fn a_request_goes_on_after_those_whose_wait_is_over_but_whose_streams_have_not_run() {
    let rule = r#", "safe_capacity": 1000"#;
    let configuration = Loaded::new("order", rule, r#""first_lease_wait_ms": 50,"#);
    let first = configuration.open("acme");
    assert_eq!(first.status, STOP_ALL_AND_WATERMARK);
    let is_woken = || fake().woken.contains(&first.envoy).then_some(());
    eventually("the first stream to be woken", is_woken);
    let second = configuration.open("acme");
    assert_eq!(second.status, STOP_ALL_AND_WATERMARK);
    first.wait_for_wake();
    let third = configuration.open("acme");
    assert_eq!(third.status, STOP_ALL_AND_WATERMARK);
    second.wait_for_wake();
    third.wait_for_wake();
    let fourth = configuration.open("acme");
    assert_eq!(fourth.status, CONTINUE);
    for stream in [first, second, third, fourth] {
        stream.end();
    }
    configuration.destroy();
}
