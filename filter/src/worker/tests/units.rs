//! Costs, bytes and canonical scopes.

use super::permits::{FOUR, in_flight};
use super::*;
use crate::fake::Call;
use prost::Message;
use tollgate_core::lease::Unit;
use tollgate_proto::v1;

/// Terms of a scope at the coordinator.
pub(super) struct Terms {
    /// The scopes, by the beginning of their ids.
    pub(super) scopes: &'static str,
    pub(super) limits: &'static [(Unit, f64)],
    pub(super) canonical: Option<&'static str>,
}

pub(super) const fn terms(scopes: &'static str, limits: &'static [(Unit, f64)]) -> Terms {
    Terms {
        scopes,
        limits,
        canonical: None,
    }
}

fn number(unit: Unit) -> i32 {
    Unit::ALL.iter().position(|other| *other == unit).unwrap() as i32 + 1
}

/// Lends to each scope what the first terms say that fit it.
fn lent(call: &Call, all: &[Terms]) -> Vec<u8> {
    let mut message = v1::RefreshResponse::decode(&call.lend(1e9)[..]).unwrap();
    for scope in &mut message.scopes {
        let fits = |terms: &&Terms| scope.scope.starts_with(terms.scopes);
        let terms = all.iter().find(fits).expect("terms for every scope");
        scope.limited = terms.limits.iter().map(|(unit, _)| number(*unit)).collect();
        if let Some(canonical) = terms.canonical {
            scope.canonical_scope = canonical.to_owned();
        }
        for unit in &mut scope.units {
            let limit = terms.limits.iter().find(|(u, _)| number(*u) == unit.unit);
            let capacity = limit.map_or(1e9, |(_, capacity)| *capacity);
            unit.capacity = capacity;
            let lease = unit.lease.as_mut().unwrap();
            (lease.capacity, lease.burst) = (capacity, capacity);
        }
    }
    message.encode_to_vec()
}

impl Proxy {
    pub(super) fn answer_by(&mut self, all: &[Terms]) {
        while let Some((token, call)) = self.host().process.take_call() {
            if call.method == "Refresh" {
                self.worker.handle_answer(token, &lent(&call, all));
            }
        }
    }

    /// Goes on in ticks, with answers.
    pub(super) fn pass(&mut self, after: Duration, all: &[Terms]) {
        for _ in 0..(after.as_millis() / TICK.as_millis()).max(1) {
            self.tick(TICK);
            self.answer_by(all);
        }
    }

    /// A first request of `tenant`, and all that follows from it, until it has ended.
    pub(super) fn meet(&mut self, tenant: &str, all: &[Terms]) {
        self.of(tenant);
        let context = self.streams;
        for _ in 0..4 {
            self.tick(Duration::from_millis(1));
            self.answer_by(all);
        }
        self.worker.forget(context);
        self.pass(Duration::from_millis(400), all);
        self.host().resumed.borrow_mut().clear();
    }

    /// Returns the number of `requests` that go on, at once or after they were held.
    pub(super) fn go_on(&mut self, tenant: &str, requests: usize, all: &[Terms]) -> usize {
        let mut passed = 0;
        for _ in 0..requests {
            match self.of(tenant) {
                Decision::Admit => passed += 1,
                Decision::Deny(_) => {}
                Decision::Hold | Decision::Queue(_) => {
                    for _ in 0..4 {
                        self.tick(Duration::from_millis(1));
                        self.answer_by(all);
                    }
                    passed += self.host().resumed.borrow_mut().drain(..).count();
                }
            }
        }
        passed
    }

    /// The contexts of those of `requests` that go on.
    pub(super) fn begun(&mut self, tenant: &str, requests: usize) -> Vec<u32> {
        let mut begun = Vec::new();
        for _ in 0..requests {
            if self.of(tenant) == Decision::Admit {
                begun.push(self.streams);
            }
        }
        begun
    }

    /// The stream had bodies of these sizes so far.
    fn sizes(&self, context: u32, request: i64, response: i64) {
        let mut sizes = self.host().sizes.borrow_mut();
        sizes.insert((context, "request".to_owned()), request);
        sizes.insert((context, "response".to_owned()), response);
    }

    /// Envoy tells of the end of a stream.
    pub(super) fn end(&mut self, context: u32) {
        use crate::host::Host;
        self.host().select(context).unwrap();
        self.worker.forget(context);
    }

    pub(super) fn at(&mut self, tenant: &str, cost: u64) -> Decision {
        self.streams += 1;
        self.host().set_headers(&[("x", tenant)]);
        let cost = Tokens::from_whole(cost);
        self.worker.admit_at(&self.rules, self.streams, cost)
    }
}

#[test]
fn bytes_are_charged_as_they_pass_and_the_next_request_waits_for_the_debt() {
    const ALL: &[Terms] = &[terms(
        "tenant/",
        &[
            (Unit::Requests, 1e6),
            (Unit::RequestBytes, 1e6),
            (Unit::ResponseBytes, 1000.0),
        ],
    )];
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    proxy.meet("acme", ALL);
    // A first stream makes the need for bytes known.
    let first = proxy.begun("acme", 1)[0];
    proxy.sizes(first, 100, 200);
    // Long enough that a token cache drawn before the lease has gone back.
    proxy.pass(Duration::from_millis(900), ALL);
    let others = proxy.begun("acme", 2);
    assert_eq!(others.len(), 2, "200 of 1000 are spent");
    // It goes on, and is counted although it has not ended: no request passes until it is paid.
    proxy.sizes(first, 100, 4000);
    proxy.pass(Duration::from_millis(220), ALL);
    let refused = denial(proxy.of("acme"));
    assert_eq!(refused.unit, Unit::ResponseBytes);
    let pause = refused
        .retry_at
        .unwrap()
        .saturating_since(proxy.host().now());
    assert!(
        pause > Duration::from_millis(2000) && pause < Duration::from_millis(3000),
        "{pause:?}"
    );
    proxy.end(first);
    process.advance(pause);
    proxy.pass(TICK, ALL);
    assert_eq!(proxy.begun("acme", 1).len(), 1, "paid");
    // Bytes that no tick has seen are counted at the end.
    proxy.sizes(others[0], 0, 1_000_000);
    proxy.end(others[0]);
    let refused = denial(proxy.of("acme"));
    let pause = refused
        .retry_at
        .unwrap()
        .saturating_since(proxy.host().now());
    assert!(
        pause <= Duration::from_millis(10_001),
        "debt is bounded: {pause:?}"
    );
    assert!(pause > Duration::from_millis(9000), "{pause:?}");
    assert!(process.metric("refused.tenant.response_bytes") > 0);
}

#[test]
fn what_bytes_are_wanted_counts_refused_requests_as_well() {
    const ALL: &[Terms] = &[terms(
        "tenant/",
        &[(Unit::Requests, 1e6), (Unit::ResponseBytes, 100_000.0)],
    )];
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.meet("acme", ALL);
    let mut wants = 0.0;
    // 100 requests a second of 10 kB: ten times the limit.
    for _ in 0..300 {
        for context in proxy.begun("acme", 1) {
            proxy.sizes(context, 0, 10_000);
            proxy.end(context);
        }
        proxy.tick(Duration::from_millis(10));
        while let Some((token, call)) = proxy.host().process.take_call() {
            if call.method != "Refresh" {
                continue;
            }
            let units = call.refresh().scopes.remove(0).units;
            let bytes = units.iter().find(|u| u.unit == number(Unit::ResponseBytes));
            wants = bytes.map_or(wants, |unit| unit.wants);
            proxy.worker.handle_answer(token, &lent(&call, ALL));
        }
    }
    assert!((700_000.0..1_300_000.0).contains(&wants), "{wants}");
}

const GROUP: &[Terms] = &[
    terms(
        "group/",
        &[(Unit::Requests, 10.0), (Unit::Concurrency, 1e6)],
    ),
    Terms {
        scopes: "tenant/",
        limits: &[(Unit::Requests, 8.0)],
        canonical: Some("group/gold"),
    },
];

#[test]
fn requests_also_take_from_the_canonical_scope_and_from_it_once() {
    let process = Process::new();
    let rule = |more| {
        let rule = format!(r#"{{"name": "tenant", "key": {{"header": "x"}} {more}}}"#);
        config(&format!(r#"{{"coordinator": "c", "scopes": [{rule}]}}"#))
    };
    let config = rule(r#", "refusal": {"status": 503}"#);
    let mut first = Proxy::new(&process, 1, &config);
    let mut second = Proxy::new(&process, 2, &config);
    for tenant in ["a", "b"] {
        first.meet(tenant, GROUP);
        first.meet(tenant, GROUP);
    }
    second.meet("a", GROUP);
    // Let all that was spent come back.
    for _ in 0..150 {
        process.advance(TICK);
        first.worker.handle_tick();
        first.answer_by(GROUP);
        second.worker.handle_tick();
        second.answer_by(GROUP);
    }
    let passed = first.go_on("a", 5, GROUP) + second.go_on("a", 5, GROUP);
    assert_eq!(passed, 8, "the tenant's own limit");
    assert_eq!(first.go_on("b", 8, GROUP), 2, "the group's");
    let Decision::Deny(refusal) = first.of("b") else {
        panic!("b is refused")
    };
    let refuser = first.worker.refuser(refusal);
    assert_eq!((refuser.rule, refuser.terms.status), ("group", 503));
    // Without a lease it does as the first rule says, by the latest configuration.
    let changed = rule(r#", "safe_capacity": 7"#);
    first.worker.configure(&changed).unwrap();
    let safe = first
        .worker
        .engine
        .policy("group/gold")
        .safe_of(Unit::Requests);
    assert_eq!(safe.as_f64(), 7.0);
}

#[test]
fn a_scope_that_is_detached_is_free_of_the_group_with_the_next_answer() {
    const ALONE: &[Terms] = &[terms("", &[(Unit::Requests, 8.0)])];
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.meet("a", GROUP);
    proxy.meet("b", GROUP);
    proxy.pass(Duration::from_secs(1), GROUP);
    let both = |proxy: &mut Proxy, all| proxy.go_on("a", 20, all) + proxy.go_on("b", 20, all);
    assert_eq!(both(&mut proxy, GROUP), 10);
    proxy.pass(Duration::from_millis(2000), ALONE);
    both(&mut proxy, ALONE);
    proxy.pass(Duration::from_millis(2000), ALONE);
    assert_eq!(both(&mut proxy, ALONE), 16);
}

#[test]
fn a_request_whose_rules_lead_to_one_canonical_scope_is_charged_there_once() {
    let json = r#"{"coordinator": "c", "scopes": [
        {"name": "tenant", "key": {"header": "x"}},
        {"name": "namespace", "key": {"header": "y"}}]}"#;
    let all = &[
        terms("group/", &[(Unit::Requests, 10.0)]),
        Terms {
            scopes: "",
            limits: &[(Unit::Requests, 1000.0)],
            canonical: Some("group/gold"),
        },
    ];
    let mut proxy = Proxy::new(&Process::new(), 1, &config(json));
    let headers = [("x", "acme"), ("y", "orders")];
    for _ in 0..2 {
        proxy.request(&headers);
        for _ in 0..5 {
            proxy.tick(Duration::from_millis(1));
            proxy.answer_by(all);
        }
        proxy.pass(Duration::from_millis(2000), all);
    }
    proxy.host().resumed.borrow_mut().clear();
    let mut passed = 0;
    for _ in 0..30 {
        passed += usize::from(proxy.request(&headers) == Decision::Admit);
        for _ in 0..2 {
            proxy.host().process.advance(Duration::from_micros(10));
            proxy.worker.handle_tick();
            proxy.answer_by(all);
        }
        passed += proxy.host().resumed.borrow_mut().drain(..).count();
    }
    assert_eq!(passed, 10);
}

#[test]
fn while_the_clock_stands_nothing_is_minted_and_nothing_is_lost() {
    let process = Process::new();
    let config = one_rule("");
    let mut proxies: Vec<Proxy> = (1..=4)
        .map(|id| Proxy::new(&process, id, &config))
        .collect();
    proxies[0].meet("acme", FOUR);
    let mut open = Vec::new();
    for round in 0..200 {
        for (n, proxy) in proxies.iter_mut().enumerate() {
            for context in proxy.begun("acme", 2) {
                open.push((n, context));
            }
            proxy.worker.handle_tick();
            proxy.answer_by(FOUR);
        }
        assert!(open.len() <= 4, "{}", open.len());
        if round % 3 == 0 && !open.is_empty() {
            let (n, context) = open.remove(0);
            proxies[n].end(context);
        }
    }
    for (n, context) in open {
        proxies[n].end(context);
    }
    assert_eq!(in_flight(&proxies[0]), 0);
}
