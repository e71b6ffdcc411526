//! Costs of single things, measured: bytes, memory, CPU.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::Duration;

use prost::Message;
use tollgate_core::lease::{
    Answer, Claim, ClientId, ClientRun, Epoch, LeaseRequest, LeaseTerms, Origin, ResourceId, Run,
    Unit, UnitAnswer,
};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::message::{Refresh, Refreshed, Release, ScopeAnswer, ScopeRefresh};
use tollgate_core::units::{Capacity, Instant, Tokens};
use tollgate_proto::{snapshot, v1};
use tollgate_sim::limits::FixedLimits;
use tollgate_sim::scenario::{
    Amount, DemandSpec, EnvoyGroup, NetworkSpec, Program, Scenario, ScopeSpread, Span,
};
use tollgate_sim::simulation::Simulation;

use crate::memory::{cpu_seconds, grown};

const BOUNDS: Bounds = Bounds {
    max_resources: usize::MAX,
    max_clients_per_resource: usize::MAX,
    max_leases: usize::MAX,
    max_durable: 100_000,
};
/// Leases of the tables that are measured.
const LEASES: u64 = 50_000;
/// Envoys of the simulations that are measured.
const ENVOYS: u32 = 500;
/// Scopes of each in the second of these.
const SCOPES: u32 = 41;

/// Cost of a message: of itself, and of each resource in it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageCost {
    pub(crate) head: f64,
    pub(crate) row: f64,
}

/// Unit costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub(crate) request: MessageCost,
    pub(crate) answer: MessageCost,
    /// Memory of a lease, of a resource, and of a resource that is borrowed of a parent, in bytes.
    pub(crate) lease: f64,
    pub(crate) resource: f64,
    pub(crate) borrowed: f64,
    /// Memory of a simulated Envoy, and of each scope that it knows, in bytes.
    pub(crate) envoy: f64,
    pub(crate) slot: f64,
    /// CPU of a refresh in the core, in µs: one of many clients, and one of many resources.
    pub(crate) refresh_of_client: f64,
    pub(crate) refresh_of_resource: f64,
    /// Bytes of a lease in a snapshot that is handed over: of one resource, and of a resource each.
    snapshot_of_client: f64,
    snapshot_of_resource: f64,
}

// === impl Units ===

impl Units {
    /// Measures all. The simulations come first, while nothing has been freed.
    pub(crate) fn measure() -> Self {
        let (few, small) = grown(|| fleet(1));
        let (many, large) = grown(|| fleet(SCOPES));
        // Without the leases at the coordinator, which the other rows have.
        let (clients, refresh_of_client, one) = table(1, LEASES);
        let (resources, refresh_of_resource, wide) = table(LEASES, 1);
        let lease = clients / LEASES as f64;
        let resource = resources / LEASES as f64 - lease;
        let borrowed = borrowing() / LEASES as f64 - lease - resource;
        let envoys = f64::from(ENVOYS);
        let each = |bytes: f64| bytes / envoys;
        let slot = (each(many) - each(few)) / f64::from(SCOPES - 1) - lease;
        let envoy = each(few) - slot - lease;
        drop((small, large));
        Self {
            request: cost(request),
            answer: cost(answer),
            lease,
            resource,
            borrowed,
            envoy,
            slot,
            refresh_of_client,
            refresh_of_resource,
            snapshot_of_client: snapshot_len(one) / LEASES as f64,
            snapshot_of_resource: snapshot_len(wide) / LEASES as f64,
        }
    }

    pub(crate) fn print(&self) {
        println!("\n| unit cost | measured |");
        println!("|---|---|");
        let rows = [
            ("request, bytes", self.request.head),
            ("… each resource in it", self.request.row),
            ("answer, bytes", self.answer.head),
            ("… each resource in it", self.answer.row),
            ("lease in a table, bytes", self.lease),
            ("resource in a table, bytes", self.resource),
            ("… if it is borrowed, bytes more", self.borrowed),
            (
                "lease in a snapshot, all of one resource, bytes",
                self.snapshot_of_client,
            ),
            (
                "… and of a resource of its own each",
                self.snapshot_of_resource,
            ),
            ("simulated Envoy, bytes", self.envoy),
            ("… each scope that it knows", self.slot),
        ];
        for (name, value) in rows {
            println!("| {name} | {value:.0} |");
        }
        println!(
            "| refresh in the core, one resource of {LEASES} clients, µs | {:.2} |",
            self.refresh_of_client
        );
        println!(
            "| refresh in the core, {LEASES} resources of a client each, µs | {:.2} |",
            self.refresh_of_resource
        );
    }
}

// === free functions: messages ===

/// Returns the bytes of a refresh on the wire.
pub(crate) fn refresh_len(refresh: &Refresh) -> usize {
    v1::RefreshRequest::from(refresh).encoded_len()
}

/// Returns the bytes of a release on the wire.
pub(crate) fn release_len(release: &Release) -> usize {
    v1::ReleaseRequest::from(release).encoded_len()
}

/// Returns the bytes of an answer on the wire.
pub(crate) fn answer_len(answer: &Refreshed) -> usize {
    let scopes: Vec<ScopeAnswer> = answer.scopes.iter().flatten().cloned().collect();
    v1::RefreshResponse::new(&scopes).encoded_len()
}

/// Returns the bytes of the snapshot of a lease server that hands over.
fn snapshot_len(server: LeaseServer) -> f64 {
    let snapshot = server.hand_over(Instant::from_nanos(10_000_000_000));
    snapshot::encode(&snapshot).len() as f64
}

fn cost(len: impl Fn(u64) -> usize) -> MessageCost {
    let (few, many) = (len(1) as f64, len(101) as f64);
    let row = (many - few) / 100.0;
    MessageCost {
        head: few - row,
        row,
    }
}

fn request(rows: u64) -> usize {
    refresh_len(&Refresh {
        client: client(1_000_000),
        scopes: (0..rows)
            .map(|i| ScopeRefresh {
                scope: resource(i).scope,
                asks: vec![(
                    Unit::Requests,
                    LeaseRequest {
                        has: odd(i),
                        ..ask(i, 1000 + i)
                    },
                )],
            })
            .collect(),
    })
}

fn answer(rows: u64) -> usize {
    let answer = |i: u64| ScopeAnswer {
        scope: resource(i).scope,
        canonical: resource(i).scope,
        limited: vec![Unit::Requests],
        usual: Some(true),
        origin: Origin {
            shard: None,
            epoch: Epoch(7),
        },
        outcome: Ok(vec![UnitAnswer {
            unit: Unit::Requests,
            sequence: 1000 + i,
            answer: Answer {
                lease: Some(LeaseTerms {
                    capacity: odd(i),
                    burst: Tokens::from_micros(odd(i).as_micros()),
                    duration: Duration::from_secs(60),
                    fingerprint: u64::MAX - i,
                }),
                refresh_interval: Duration::from_secs(2),
                safe: Some(Capacity::from_whole(1)),
                capacity: Capacity::from_whole(4000),
                period: None,
                burst: Some(Tokens::from_whole(200)),
                draw: None,
            },
        }]),
    };
    answer_len(&Refreshed {
        scopes: (0..rows).map(|i| Ok(answer(i))).collect(),
    })
}

// === free functions: tables and fleets ===

fn client(i: u64) -> ClientRun {
    // As an Envoy calls itself: its node and 16 digits of its process.
    let id = ClientId::new(&format!("envoy-{i}/0123456789abcdef")).expect("a good id");
    let run = Run::Incarnation(NonZeroU64::MIN.saturating_add(i));
    ClientRun { id, run }
}

fn resource(i: u64) -> ResourceId {
    let scope = format!("tenant/t{:07}", i % 10_000_000);
    ResourceId::new(&scope, Unit::Requests).expect("a good id")
}

/// Returns a capacity that needs all digits of its encoding.
fn odd(i: u64) -> Capacity {
    Capacity::from_micros(10_333_333 + 7_777 * i)
}

fn ask(i: u64, sequence: u64) -> LeaseRequest {
    LeaseRequest {
        remaining: Some(Duration::from_millis(58_000)),
        fingerprint: u64::MAX - i,
        claim: Claim::Lease,
        ..LeaseRequest::new(sequence, Capacity::ZERO, odd(i))
    }
}

fn limit() -> Limit {
    Limit {
        lease: Duration::from_secs(3600),
        learning: Duration::from_secs(3600),
        ..Limit::new(Capacity::from_whole(1_000_000))
    }
}

/// Returns the memory of a table of so many resources with so many clients each, the CPU of a refresh
/// in µs, and the table.
fn table(resources: u64, clients: u64) -> (f64, f64, LeaseServer) {
    let mut server = LeaseServer::new(Instant::ZERO, Epoch(1), BOUNDS, Start::Fresh);
    let terms = limit();
    let mut now = Instant::ZERO;
    let mut round = |server: &mut LeaseServer, sequence: u64| {
        for r in 0..resources {
            let id = resource(r);
            for c in 0..clients {
                now = now.saturating_add(Duration::from_micros(5));
                let request = ask(r + c, sequence);
                let answer =
                    server.handle_refresh(now, &client(c), &id, &request, &Terms::of(&terms));
                black_box(answer.expect("an answer"));
            }
        }
    };
    let (bytes, ()) = grown(|| round(&mut server, 1));
    let before = cpu_seconds();
    for sequence in 2..4 {
        round(&mut server, sequence);
    }
    let spent = cpu_seconds() - before;
    // The ids of the requests are made meanwhile, too.
    let ids = ids_cpu(resources, clients);
    let each = (spent / 2.0 - ids) / (resources * clients) as f64 * 1e6;
    (bytes, each, server)
}

/// Returns the CPU of making the requests of one round, in seconds.
fn ids_cpu(resources: u64, clients: u64) -> f64 {
    let before = cpu_seconds();
    for r in 0..resources {
        black_box(resource(r));
        for c in 0..clients {
            black_box((client(c), ask(r + c, 1)));
        }
    }
    cpu_seconds() - before
}

/// Returns the memory of a table of borrowed resources with a client each.
fn borrowing() -> f64 {
    let mut server = LeaseServer::new(Instant::ZERO, Epoch(1), BOUNDS, Start::Fresh);
    server.borrow_from_parent(Instant::ZERO, 1, Duration::from_secs(1));
    let terms = limit();
    let client = client(1);
    let (bytes, ()) = grown(|| {
        for r in 0..LEASES {
            let answer = server.handle_refresh(
                Instant::ZERO,
                &client,
                &resource(r),
                &ask(r, 1),
                &Terms::of(&terms),
            );
            black_box(answer.expect("an answer"));
        }
    });
    black_box(&server);
    bytes
}

/// Returns a simulation of Envoys that know so many scopes, after some seconds.
fn fleet(scopes: u32) -> Simulation {
    let scenario = Scenario {
        name: String::new(),
        description: String::new(),
        duration: Span::from_secs(3),
        seed: 0,
        sample: Span::from_secs(3),
        measure_from: Span::default(),
        envoys: vec![EnvoyGroup {
            count: ENVOYS,
            max_scopes: scopes + 1,
            ..EnvoyGroup::default()
        }],
        coordinators: Vec::new(),
        network: NetworkSpec::default(),
        nudges: false,
        demand: vec![DemandSpec {
            scopes: Some(ScopeSpread {
                prefix: "tenant/t".to_owned(),
                count: scopes,
                zipf: Amount(0.0),
            }),
            each: Some(Program::Constant(Amount(3.0 * f64::from(scopes)))),
            ..DemandSpec::default()
        }],
        events: Vec::new(),
        mishaps: None,
    };
    let limit = Limit {
        refresh: Duration::from_secs(2),
        ..limit()
    };
    let limits = FixedLimits::new([("tenant/".to_owned(), limit)]);
    let simulation = Simulation::new(scenario, vec![Box::new(limits)]);
    let mut simulation = simulation.expect("the scenario breaks no rule");
    while simulation.step() {}
    simulation
}
