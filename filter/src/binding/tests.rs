use std::collections::BTreeMap;

use tollgate_engine::Identity;

use super::*;
use crate::fake::{Fake, Process};

const REDIRECTS: &str = "filter_state.num_internal_redirects";
const ROUTE: &str = "xds.route_metadata.filter_metadata.tollgate";
/// Ten requests at once, without a coordinator.
const TEN: &str = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
    {"name": "tenant", "key": {"header": "x"}, "safe_capacity": 10},
    {"name": "path", "key": {"header": "y"}, "missing": "skip", "safe_capacity": 3}]}"#;

struct Proxy {
    host: Fake,
    worker: Worker<Fake>,
    binding: Binding,
    _user: InUse,
    streams: u32,
    /// Metadata of the route.
    route: Option<&'static [u8]>,
}

impl Proxy {
    fn new() -> Self {
        Self::with(TEN)
    }

    fn with(config: &str) -> Self {
        let (config, unknown) = Config::parse(config.as_bytes()).unwrap();
        let identity = Identity {
            worker: 1,
            node: "node".to_owned(),
            plugin: String::new(),
            process: 1,
        };
        let host = Fake::new(&Process::new());
        let mut worker = Worker::new(host.clone(), identity, &config);
        let user = InUse::default();
        let binding = Binding::new(&mut worker, &config, &unknown, &user).unwrap();
        Self {
            host,
            worker,
            binding,
            _user: user,
            streams: 0,
            route: None,
        }
    }

    /// Returns a new stream after so many redirects, and whether its request passes.
    fn begin(&mut self, redirects: &str, headers: &[(&str, &str)]) -> (BoundStream, bool) {
        let mut stream = self.create();
        let passes = self.decide(&mut stream, redirects, headers);
        (stream, passes)
    }

    /// Returns a new stream whose request has not come yet.
    fn create(&mut self) -> BoundStream {
        self.streams += 1;
        self.binding.begin(self.streams)
    }

    fn decide(
        &mut self,
        stream: &mut BoundStream,
        redirects: &str,
        headers: &[(&str, &str)],
    ) -> bool {
        let count = (!redirects.is_empty()).then_some((REDIRECTS, redirects.as_bytes()));
        let route = self.route.map(|metadata| (ROUTE, metadata));
        let properties = count.into_iter().chain(route);
        let properties = properties.map(|(path, value)| (path.to_owned(), value.to_vec()));
        *self.host.properties.borrow_mut() = properties.collect();
        self.host.set_headers(headers);
        self.binding.admit(&mut self.worker, stream) == Decision::Admit
    }

    /// Returns whether a request passes, whose stream ends at once.
    fn passes(&mut self, redirects: &str, headers: &[(&str, &str)]) -> bool {
        let (mut stream, passes) = self.begin(redirects, headers);
        self.binding.leave(&mut stream);
        passes
    }
}

#[test]
fn a_request_that_envoy_redirects_itself_is_charged_once() {
    let mut proxy = Proxy::new();
    for _ in 0..10 {
        for redirects in ["", "1", "2"] {
            assert!(proxy.passes(redirects, &[("x", "acme")]), "{redirects:?}");
        }
    }
    for redirects in ["", "1", "2"] {
        assert!(!proxy.passes(redirects, &[("x", "acme")]), "{redirects:?}");
    }
}

#[test]
fn scopes_that_a_redirect_leads_to_are_charged() {
    let mut proxy = Proxy::new();
    for _ in 0..3 {
        assert!(proxy.passes("", &[("x", "acme")]));
        assert!(proxy.passes("1", &[("x", "acme"), ("y", "new")]));
    }
    assert!(proxy.passes("", &[("x", "acme")]));
    assert!(!proxy.passes("1", &[("x", "acme"), ("y", "new")]));
    // Six are left.
    let passed = (0..9).filter(|_| proxy.passes("", &[("x", "acme")]));
    assert_eq!(passed.count(), 6);
}

#[test]
fn only_the_stream_that_comes_next_goes_on_from_the_one_before() {
    let acme = [("x", "acme")];
    // Envoy counts no redirect, or another stream has come or ended in between.
    let rows: [fn(&mut Proxy) -> bool; 4] = [
        |proxy| proxy.passes("", &[("x", "acme")]),
        |proxy| proxy.passes("0", &[("x", "acme")]),
        |proxy| proxy.passes("", &[("x", "beta")]) && proxy.passes("1", &[("x", "acme")]),
        |proxy| {
            let (mut beta, passes) = proxy.begin("", &[("x", "beta")]);
            proxy.binding.leave(&mut beta);
            passes && proxy.passes("1", &[("x", "acme")])
        },
    ];
    for (row, next) in rows.into_iter().enumerate() {
        let mut proxy = Proxy::new();
        assert!(proxy.passes("", &acme));
        assert!(next(&mut proxy));
        let left = (0..20).filter(|_| proxy.passes("", &acme)).count();
        assert_eq!(left, 8, "row {row}");
    }
}

#[test]
fn a_redirect_from_where_the_filter_is_left_out_pays() {
    let acme = [("x", "acme")];
    let mut proxy = Proxy::new();
    assert!(proxy.passes("", &acme));
    // The pass in between was not seen: this one may be of any request.
    assert!(proxy.passes("2", &acme));
    assert!(proxy.passes("3", &acme));
    for _ in 0..7 {
        assert!(proxy.passes("2", &acme));
    }
    assert!(proxy.passes("1", &acme));
    assert!(proxy.passes("2", &acme));
    assert!(!proxy.passes("1", &acme));
}

#[test]
fn a_pass_that_costs_nothing_hands_the_charge_on() {
    let acme = [("x", "acme")];
    let config = TEN.replacen('{', r#"{"per_route": true, "#, 1);
    let config = config.replace(
        r#""safe_capacity": 10"#,
        r#""safe_capacity": 10, "missing": "skip""#,
    );
    let mut proxy = Proxy::with(&config);
    for _ in 0..10 {
        assert!(proxy.passes("", &acme));
        proxy.route = Some(OFF);
        assert!(proxy.passes("1", &acme));
        proxy.route = None;
        // Without a key of any rule.
        assert!(proxy.passes("2", &[]));
        assert!(proxy.passes("3", &acme));
    }
    assert!(!proxy.passes("", &acme));
    // Another request takes over nothing.
    let mut proxy = Proxy::with(&config);
    assert!(proxy.passes("", &acme));
    proxy.route = Some(OFF);
    assert!(proxy.passes("", &acme));
    proxy.route = None;
    assert!(proxy.passes("1", &acme));
    let left = (0..20).filter(|_| proxy.passes("", &acme));
    assert_eq!(left.count(), 8);
}

#[test]
fn a_stream_that_begins_in_time_goes_on_however_late_its_request_comes() {
    let acme = [("x", "acme")];
    let mut proxy = Proxy::new();
    assert!(proxy.passes("", &acme));
    let mut late = proxy.create();
    assert!(proxy.passes("", &acme));
    assert!(proxy.decide(&mut late, "1", &acme));
    let left = (0..20).filter(|_| proxy.passes("", &acme));
    assert_eq!(left.count(), 8);
}

#[test]
fn the_memory_that_stays_of_streams_is_bounded() {
    let mut proxy = Proxy::new();
    for _ in 0..2 {
        let mut streams: Vec<_> = (0..3 * SPARE_MAX).map(|_| proxy.create()).collect();
        assert_eq!(proxy.binding.spare.borrow().len(), 0);
        for stream in &mut streams {
            proxy.binding.leave(stream);
        }
        assert_eq!(proxy.binding.spare.borrow().len(), SPARE_MAX);
    }
}

#[test]
fn a_pass_that_was_refused_pays_for_no_other() {
    let mut proxy = Proxy::new();
    let new = [("x", "acme"), ("y", "new")];
    assert_eq!((0..9).filter(|_| proxy.passes("", &new)).count(), 3);
    assert!(!proxy.passes("", &new));
    assert!(proxy.passes("1", &[("x", "acme")]));
    let left = (0..20).filter(|_| proxy.passes("", &[("x", "acme")]));
    assert_eq!(left.count(), 6);
}

/// Metadata `{"disabled": true, "cost": "dear"}` as Envoy hands it over.
const OFF: &[u8] =
    b"\x02\0\0\0\x08\0\0\0\x01\0\0\0\x04\0\0\0\x04\0\0\0disabled\0\x01\0cost\0dear\0";
/// Metadata `{"scopes": ["address"]}`.
const ADDRESS: &[u8] =
    b"\x01\0\0\0\x06\0\0\0\x15\0\0\0scopes\0\x01\0\0\0\x07\0\0\0\0\0\0\0address\0\0\0";

#[test]
fn a_route_switches_tollgate_off_whatever_else_is_wrong_and_one_warning_says_what() {
    let mut proxy = Proxy::with(&TEN.replacen('{', r#"{"per_route": true, "#, 1));
    let route = |proxy: &Proxy, metadata: &[u8], name: &[u8]| {
        let metadata = (ROUTE.to_owned(), metadata.to_vec());
        let name = ("xds.route_name".to_owned(), name.to_vec());
        *proxy.host.properties.borrow_mut() = BTreeMap::from([metadata, name]);
    };
    let passed = |proxy: &mut Proxy| {
        proxy.host.set_headers(&[("x", "acme")]);
        let admit = |_: &i32| {
            let mut stream = BoundStream::new(7, Box::default());
            proxy.binding.admit(&mut proxy.worker, &mut stream) == Decision::Admit
        };
        (0..20).filter(admit).count()
    };
    route(&proxy, OFF, b"login");
    assert_eq!(passed(&mut proxy), 20);
    // Its rules are those of another filter.
    route(&proxy, ADDRESS, b"");
    assert_eq!(passed(&mut proxy), 20);
    let logs = proxy.host.process.logs.borrow().clone();
    let lines: Vec<&str> = logs.iter().map(|(_, line)| &line[..]).collect();
    let before = "tollgate: ignored in the metadata of";
    let want = [
        format!("{before} route \"login\": cost is \"dear\", must be a number from 0 to 1000000"),
        format!(
            "{before} a route without a name: scopes has \"address\", which is the name of no rule"
        ),
    ];
    assert_eq!(lines, want);
    proxy.worker.handle_tick();
    assert_eq!(proxy.host.process.metric("invalid_route_fields"), 2);
}

#[test]
fn names_of_rules_of_another_filter_of_the_worker_are_no_error() {
    let mut proxy = Proxy::with(&TEN.replacen('{', r#"{"per_route": true, "#, 1));
    let other = r#"{"coordinator": "c", "scopes": [{"name": "address", "key": {"header": "z"}}]}"#;
    let (other, _) = Config::parse(other.as_bytes()).unwrap();
    let user = InUse::default();
    Binding::new(&mut proxy.worker, &other, &[], &user).unwrap();
    proxy
        .host
        .properties
        .borrow_mut()
        .insert(ROUTE.to_owned(), ADDRESS.to_vec());
    let mut stream = BoundStream::new(1, Box::default());
    let decision = proxy.binding.admit(&mut proxy.worker, &mut stream);
    assert_eq!(decision, Decision::Admit);
    assert_eq!(proxy.host.process.logs.borrow().len(), 0);
}
