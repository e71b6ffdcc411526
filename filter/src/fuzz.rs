//! Fuzz targets: each function takes any bytes, and panics only if something is wrong.
//!
//! The bytes are what a hostile client, another version of the filter, or a broken coordinator could
//! bring. `just fuzz` feeds them guided by coverage; the tests feed a small corpus and thousands of
//! mutations of it, so that every run of the test suite goes this way, too.

use std::rc::Rc;

use prost::Message;
use tollgate_core::lease::Unit;
use tollgate_engine::{Charge, Decision, Identity, InUse, codec};
use tollgate_proto::{number, v1};

use crate::bound_stream::BoundStream;
use crate::config::Config;
use crate::fake::{Fake, Process};
use crate::host::Host;
use crate::key::KEY_LEN_MAX;
use crate::refusal::Protocol;
use crate::route::Routes;
use crate::worker::{BoundRoot, Worker};

mod input;
#[cfg(test)]
mod tests;

use input::Input;

/// A rule for each way to find a key.
const EVERY_KEY: &str = include_str!("fuzz/every_key.json");
/// The headers that the filter reads, by their place in the input.
const HEADERS: [&str; 10] = [
    ":path",
    ":authority",
    ":method",
    "x-tenant",
    "x-user",
    "content-type",
    "grpc-timeout",
    "tollgate-max-wait-ms",
    "x-envoy-expected-rq-timeout-ms",
    "te",
];
/// Headers that are read since; at the end, so that older inputs mean what they did.
const CREDENTIALS: [&str; 2] = ["cookie", "authorization"];
/// The properties that it reads.
const PROPERTIES: [&str; 9] = [
    "source.address",
    "connection.uri_san_peer_certificate",
    "connection.dns_san_peer_certificate",
    "metadata.filter_metadata.envoy.filters.http.jwt_authn.payload.sub",
    "xds.route_metadata.filter_metadata.tollgate",
    "xds.virtual_host_metadata.filter_metadata.tollgate",
    "xds.route_metadata.filter_metadata.app.plan",
    "filter_state.app.tenant",
    "filter_state.num_internal_redirects",
];
/// The small records of a process, by their place in the input; all others are slots.
const RECORDS: [&str; 4] = ["process", "leader", "workers", "dirty"];

/// Tenants of requests, by their place in the input.
const TENANTS: [&str; 3] = ["acme", "beta", "gamma"];

/// A worker of a fake process.
struct Proxy {
    process: Rc<Process>,
    worker: Worker<Fake>,
    root: BoundRoot,
    _user: InUse,
    stream: u32,
    /// Charge of the latest stream.
    charge: Box<Charge>,
}

// === impl Proxy ===

impl Proxy {
    fn new(process: &Rc<Process>, config: &Config) -> Self {
        let identity = Identity {
            worker: 7,
            node: "node".to_owned(),
            plugin: String::new(),
            process: 7,
        };
        let mut worker = Worker::new(Fake::new(process), identity, config);
        let user = InUse::default();
        let root = worker.configure(config, &user).unwrap();
        Self {
            process: Rc::clone(process),
            worker,
            root,
            _user: user,
            stream: 0,
            charge: Box::default(),
        }
    }

    fn request(&mut self) -> Decision {
        self.stream += 1;
        let mut stream = BoundStream::new(self.stream, self.charge.clone());
        let plain = &self.root.plain;
        let decision = self.worker.admit(&self.root, plain, &mut stream);
        self.charge = stream.charge.unwrap_or_default();
        if let Decision::Deny(refusal) = decision {
            let host = &self.worker.host;
            host.select(self.stream).unwrap();
            self.worker
                .answer(refusal, Protocol::at_hand(host))
                .unwrap();
        }
        decision
    }

    /// Returns the number of `count` requests that pass, one directly after another.
    fn passed(&mut self, count: usize) -> usize {
        (0..count)
            .filter(|_| self.request() == Decision::Admit)
            .count()
    }

    /// Moves the clock, to wherever `input` says, and ticks.
    fn tick(&mut self, input: &mut Input<'_>) {
        let now = self.process.now.get();
        self.process.now.set(match input.byte() % 4 {
            0 => now,
            1 => now.saturating_add(u64::from(input.byte()) * 1_000_000),
            2 => now.saturating_add(input.word() % 100_000_000_000),
            _ => input.word(),
        });
        self.worker.handle_tick();
    }
}

// === free functions ===

/// A plugin configuration: JSON, perhaps. What is accepted can be used.
pub fn configuration(bytes: &[u8]) {
    let Ok((config, _)) = Config::parse(bytes) else {
        return;
    };
    assert!((1..=16).contains(&config.rules.len()));
    assert!((1..=1_000_000).contains(&config.engine.max_scopes));
    let process = Process::new();
    let mut proxy = Proxy::new(&process, &config);
    proxy.worker.host.set_headers(&[
        (":path", "/v1/tenants/acme?tenant=a%20b"),
        (":authority", "api.example.com"),
        (":method", "GET"),
        ("x-tenant", "acme"),
    ]);
    let properties = PROPERTIES.map(|path| (path.to_owned(), b"192.0.2.7:80".to_vec()));
    *proxy.worker.host.properties.borrow_mut() = properties.into();
    proxy.passed(3);
    process.advance(config.engine.tick);
    proxy.worker.handle_tick();
    proxy.passed(3);
}

/// Headers and properties of requests, each a line of its own with its place in front.
pub fn request(bytes: &[u8]) {
    let (config, _) = Config::parse(EVERY_KEY.as_bytes()).unwrap();
    let process = Process::new();
    let mut proxy = Proxy::new(&process, &config);
    let mut headers = Vec::new();
    let mut properties = std::collections::BTreeMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((place, value)) = line.split_first() else {
            continue;
        };
        let place = usize::from(place.wrapping_sub(b'a'));
        let behind = place.wrapping_sub(HEADERS.len());
        let header = HEADERS.get(place);
        let header = header.or_else(|| CREDENTIALS.get(behind.wrapping_sub(PROPERTIES.len())));
        match (header, PROPERTIES.get(behind)) {
            (Some(name), _) => headers.push((*name, value)),
            (None, Some(path)) => {
                properties.insert((*path).to_owned(), value.to_vec());
            }
            (None, None) => {}
        }
    }
    proxy.worker.host.set_raw_headers(&headers);
    *proxy.worker.host.properties.borrow_mut() = properties;
    for rule in &config.rules {
        let (first, again) = (
            rule.key.read(&proxy.worker.host),
            rule.key.read(&proxy.worker.host),
        );
        assert_eq!(first, again, "the same request has the same key");
    }
    let names = config.engine.rules.iter().map(|rule| rule.name.clone());
    let rules = proxy.root.plain.rules.iter().cloned();
    let mut routes = Routes::new(names.zip(rules).collect());
    let host = proxy.worker.host.clone();
    let special = routes.at_hand(&host, |error| proxy.worker.ignore_route_field(&error));
    if let Ok(special) = special {
        let mut stream = BoundStream::new(u32::MAX, Box::default());
        let root = &proxy.root;
        proxy.worker.admit(root, special, &mut stream);
        proxy.charge = stream.charge.unwrap_or_default();
    }
    proxy.passed(2);
    process.advance(config.engine.tick);
    proxy.worker.handle_tick();
    while let Some((_, call)) = process.take_call() {
        for scope in call.refresh().scopes {
            let (_, key) = scope.scope.split_once('/').unwrap();
            assert!((1..=KEY_LEN_MAX).contains(&key.len()), "{key:?}");
            assert!(!key.chars().any(char::is_control), "{key:?}");
        }
    }
}

/// Records in shared data, of any version and cut anywhere, at any time.
pub fn records(bytes: &[u8]) {
    decoded(bytes);
    let config = br#"{"coordinator": "c", "max_scopes": 4,
        "scopes": [{"name": "tenant", "key": {"header": "x-tenant"}}]}"#;
    let (config, _) = Config::parse(config).unwrap();
    let process = Process::new();
    let mut proxy = Proxy::new(&process, &config);
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let place = usize::from(input.byte());
        let key = match RECORDS.get(place) {
            Some(name) => format!("tollgate.c.{name}"),
            None => format!("tollgate.c.slot.{}", place - RECORDS.len()),
        };
        process.set(&key, input.part(), 0);
        let tenant = TENANTS[usize::from(input.byte() % 3)];
        proxy.worker.host.set_headers(&[("x-tenant", tenant)]);
        proxy.passed(3);
        proxy.worker.host.select(0).unwrap();
        proxy.tick(&mut input);
        while let Some((token, call)) = process.take_call() {
            match call.method.as_str() {
                "Refresh" if input.byte().is_multiple_of(2) => {
                    proxy.worker.handle_answer(token, &call.lend(10.0));
                }
                _ => proxy.worker.handle_failure(token, 14),
            }
        }
        proxy
            .worker
            .forget(&mut BoundStream::new(proxy.stream, Box::default()));
    }
}

/// A slot that is read and written again stays the same.
fn decoded(bytes: &[u8]) {
    let Some((scope, scope_state)) = codec::decode_slot(bytes) else {
        return;
    };
    let written = codec::encode_slot(scope, &scope_state);
    assert_eq!(codec::decode_slot(&written), Some((scope, scope_state)));
}

/// Answers of a coordinator: any bytes, or an answer to what was asked with any numbers in it.
pub fn answers(bytes: &[u8]) {
    let config = br#"{"coordinator": "c", "shards": ["s"], "max_scopes": 8, "max_pending": 4,
        "scopes": [{"name": "tenant", "key": {"header": "x-tenant"}}]}"#;
    let (config, _) = Config::parse(config).unwrap();
    let process = Process::new();
    let mut proxy = Proxy::new(&process, &config);
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let tenant = TENANTS[usize::from(input.byte() % 3)];
        proxy.worker.host.set_headers(&[("x-tenant", tenant)]);
        proxy.passed(5);
        proxy.worker.host.select(0).unwrap();
        proxy.tick(&mut input);
        while let Some((token, call)) = process.take_call() {
            match (call.method.as_str(), input.byte() % 4) {
                ("Refresh", 0) => proxy.worker.handle_answer(token, input.part()),
                ("Refresh", 1 | 2) => {
                    let answer = answer(&call.refresh(), &mut input).encode_to_vec();
                    proxy.worker.handle_answer(token, &answer);
                }
                _ => proxy.worker.handle_failure(token, input.byte().into()),
            }
        }
        if input.byte().is_multiple_of(4) {
            proxy
                .worker
                .forget(&mut BoundStream::new(proxy.stream, Box::default()));
        }
    }
}

/// Messages on the stream of nudges: any bytes, or any scopes; and root contexts that come and go.
pub fn nudges(bytes: &[u8]) {
    let config = br#"{"coordinator": "c", "max_scopes": 4,
        "scopes": [{"name": "tenant", "key": {"header": "x-tenant"}}]}"#;
    let (config, _) = Config::parse(config).unwrap();
    let process = Process::new();
    let mut proxy = Proxy::new(&process, &config);
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let tenant = TENANTS[usize::from(input.byte() % 3)];
        proxy.worker.host.set_headers(&[("x-tenant", tenant)]);
        proxy.passed(2);
        let root = u32::from(input.byte() % 3);
        proxy.worker.host.select(root).unwrap();
        match input.byte() % 8 {
            0 => proxy.worker.remove_root(root),
            1 => proxy.worker.add_root(root),
            _ => {}
        }
        proxy.worker.enter_root(root);
        proxy.tick(&mut input);
        let streams: Vec<u32> = process.streams.borrow().keys().copied().collect();
        assert!(streams.len() <= 1, "{streams:?}");
        for token in streams.into_iter().chain([0]) {
            match input.byte() % 4 {
                0 => proxy.worker.handle_nudge(token, input.part()),
                1 | 2 => {
                    let message = nudge(&mut input).encode_to_vec();
                    proxy.worker.handle_nudge(token, &message);
                }
                _ => {
                    process.streams.borrow_mut().remove(&token);
                    proxy.worker.handle_watch_end(token, input.byte().into());
                }
            }
        }
        while let Some((token, call)) = process.take_call() {
            match call.method.as_str() {
                "Refresh" if input.byte().is_multiple_of(2) => {
                    proxy.worker.handle_answer(token, &call.lend(10.0));
                }
                _ => proxy.worker.handle_failure(token, 14),
            }
        }
    }
}

/// A message that names scopes, some of which are in use.
fn nudge(input: &mut Input<'_>) -> v1::WatchResponse {
    let mut resources = Vec::new();
    for _ in 0..input.byte() % 8 {
        let scope = match usize::from(input.byte() % 5) {
            place @ 0..3 => format!("tenant/{}", TENANTS[place]),
            3 => "tenant/~overflow-0".to_owned(),
            _ => String::from_utf8_lossy(input.part()).into_owned(),
        };
        let unit = i32::from(input.byte() % 6);
        resources.push(v1::NudgedResource { scope, unit });
    }
    let client_id = match input.byte() {
        0 => "another".to_owned(),
        _ => String::new(),
    };
    v1::WatchResponse {
        client_id,
        resources,
    }
}

/// An answer to all that was asked, with the numbers that the input has.
fn answer(asked: &v1::RefreshRequest, input: &mut Input<'_>) -> v1::RefreshResponse {
    let float = |input: &mut Input<'_>| match input.byte() {
        small @ 0..=200 => f64::from(small),
        201 => 1e12,
        _ => f64::from_bits(input.word()),
    };
    let duration_ms = |input: &mut Input<'_>| match input.byte() {
        0 => input.word(),
        part => u64::from(part) * 100,
    };
    let units = Unit::ALL.map(number::from_unit).into_iter();
    let limited: Vec<i32> = units.filter(|_| input.byte().is_multiple_of(2)).collect();
    let scopes = asked.scopes.iter().map(|scope| {
        let unit = |asked: &v1::UnitRequest| v1::UnitResponse {
            unit: asked.unit,
            sequence: asked.sequence.wrapping_add(u64::from(input.byte() == 1)),
            lease: (input.byte() != 1).then(|| v1::Lease {
                capacity: float(input),
                duration_ms: duration_ms(input),
                burst: float(input),
                unlimited: input.byte() == 1,
                fingerprint: input.word(),
            }),
            refresh_interval_ms: duration_ms(input),
            safe_capacity: (input.byte() == 1).then(|| float(input)),
            capacity: float(input),
            unlimited: input.byte() == 1,
            burst: (input.byte() == 1).then(|| float(input)),
            draw: None,
            period_s: 0,
        };
        let answers = scope.units.iter().map(unit).collect();
        v1::ScopeResponse {
            scope: scope.scope.clone(),
            canonical_scope: match input.byte() {
                0..=2 => "group/gold".to_owned(),
                _ => scope.scope.clone(),
            },
            units: answers,
            error: None,
            limited: limited.clone(),
            epoch: u64::from(input.byte() / 64),
            shard: u32::from(input.byte() / 64),
            usual: Some(input.byte())
                .filter(|byte| *byte != 0)
                .map(|byte| byte == 1),
        }
    });
    v1::RefreshResponse {
        epoch: 1,
        scopes: scopes.collect(),
    }
}
