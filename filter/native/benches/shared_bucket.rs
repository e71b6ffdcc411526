//! Cost of a decision while the worker threads of a process draw on the same buckets:
//! `cargo bench -p tollgate-native`.
//!
//! Each thread has an engine of its own, as in Envoy, and all share slots in memory as the module's do. The
//! clock is given: it moves so that a bucket earns a little more than is taken, and nothing is refused for
//! want of tokens. Without a coordinator the buckets have their safe capacity; a lease makes no difference to a draw.
//!
//! A figure is the wall time of a decision of the whole process. Threads that do not hinder each other,
//! on a core each, divide it by their number.

use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant as WallClock;

use criterion::{BenchmarkId, Criterion, criterion_main};
use tollgate_core::client::Policy;
use tollgate_core::message::Release;
use tollgate_core::units::{Capacity, Instant, Tokens};
use tollgate_engine::{
    Call, Cas, Decision, Engine, EngineConfig, Host, HostError, HostFailure, Identity, InUse,
    Level, Overflow, OwnSlots, Root, RuleConfig, SharedMemory, Written,
};

criterion_main!(shared_bucket);

const THREADS: [u64; 3] = [1, 2, 4];

/// Requests of a thread between two moves of the clock, so that the clock itself is not what threads
/// contend for.
const BATCH: u64 = 64;

/// The fewest requests of a thread in a sample, so that its start and end do not count.
const REQUESTS_MIN: u64 = 5_000;

/// A kind of load.
struct Case {
    name: &'static str,
    /// Tenants that requests are of in turn.
    tenants: u64,
    /// Rate of each bucket per second.
    rate: u64,
}

const CASES: [Case; 3] = [
    // 5 ms of 10 000 a second: a draw brings the tokens of many requests.
    Case {
        name: "one tenant, cached tokens",
        tenants: 1,
        rate: 10_000,
    },
    // 5 ms of 300 a second are less than two tokens, so each request draws its own.
    Case {
        name: "one tenant, a draw each",
        tenants: 1,
        rate: 300,
    },
    Case {
        name: "1 000 tenants, a draw each",
        tenants: 1_000,
        rate: 300,
    },
];

/// The parts of a process that its threads share.
struct Process {
    slots: OwnSlots,
    records: Mutex<SharedMemory>,
    /// The clock, in nanoseconds.
    now: AtomicU64,
    /// Requests that were refused, because others were faster again and again.
    refused: AtomicU64,
}

/// Host of one thread's engine, without coordinators.
struct ThreadHost {
    process: Arc<Process>,
}

/// One thread's engine.
struct Worker {
    engine: Engine<ThreadHost>,
    root: Root,
    _user: InUse,
    process: Arc<Process>,
    keys: Arc<Vec<String>>,
    next: usize,
    stream: u32,
    /// Time in which the buckets earn the tokens of a batch, and a tenth more.
    batch_nanos: u64,
}

fn shared_bucket() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for case in CASES {
        let mut group = criterion.benchmark_group(case.name);
        for threads in THREADS {
            let process = Process::new();
            let id = BenchmarkId::from_parameter(format!("{threads} threads"));
            let mut decided = 0;
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|iterations| {
                    let each = iterations.div_ceil(threads).max(REQUESTS_MIN);
                    decided += each * threads;
                    let took = run(&process, &case, threads, each);
                    took.mul_f64(iterations as f64 / (each * threads) as f64)
                });
            });
            let refused = process.refused.load(Ordering::Relaxed);
            if refused > 0 {
                let part = refused as f64 * 100.0 / decided as f64;
                eprintln!("  refused for contention: {part:.4} %");
            }
        }
        group.finish();
    }
}

/// Time in which each of several threads decides on `each` requests.
fn run(process: &Arc<Process>, case: &Case, threads: u64, each: u64) -> Duration {
    let keys: Arc<Vec<_>> = Arc::new((0..case.tenants).map(|i| format!("name-{i}")).collect());
    let ready = Arc::new(Barrier::new(threads as usize + 1));
    let workers: Vec<_> = (0..threads)
        .map(|index| {
            let (process, keys, ready) = (process.clone(), keys.clone(), ready.clone());
            let first = (index * case.tenants / threads) as usize;
            let rate = case.rate;
            thread::spawn(move || {
                let mut worker = Worker::new(index + 1, process, keys, first, rate);
                worker.warm_up();
                ready.wait();
                worker.decide(each);
            })
        })
        .collect();
    ready.wait();
    #[expect(clippy::disallowed_methods, reason = "what is measured is wall time")]
    let since = WallClock::now();
    for worker in workers {
        worker.join().expect("a worker does not panic");
    }
    since.elapsed()
}

// === impl Process ===

impl Process {
    /// Returns a process whose clock stands at one hour.
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: OwnSlots::default(),
            records: Mutex::default(),
            now: AtomicU64::new(3_600_000_000_000),
            refused: AtomicU64::new(0),
        })
    }

    fn records(&self) -> MutexGuard<'_, SharedMemory> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Worker ===

impl Worker {
    fn new(
        id: u64,
        process: Arc<Process>,
        keys: Arc<Vec<String>>,
        first: usize,
        rate: u64,
    ) -> Self {
        let config = config(rate);
        let identity = Identity {
            worker: id,
            node: "node".to_owned(),
            plugin: String::new(),
            process: id.into(),
        };
        let host = ThreadHost {
            process: process.clone(),
        };
        let mut engine = Engine::new(host, identity, config.clone());
        let earned_per_second = rate * keys.len() as u64;
        let user = InUse::default();
        Self {
            root: engine.configure(&config, &user),
            _user: user,
            engine,
            batch_nanos: BATCH * 1_100_000_000 / earned_per_second,
            process,
            keys,
            next: first,
            stream: 0,
        }
    }

    /// Makes this worker and its scopes known.
    fn warm_up(&mut self) {
        self.engine.handle_tick();
        self.decide(self.keys.len() as u64);
        self.process.refused.store(0, Ordering::Relaxed);
    }

    fn decide(&mut self, count: u64) {
        let mut refused = 0;
        for i in 0..count {
            if i.is_multiple_of(BATCH) {
                let nanos = self.batch_nanos;
                self.process.now.fetch_add(nanos, Ordering::Relaxed);
            }
            refused += u64::from(self.decide_one() != Decision::Admit);
        }
        self.process.refused.fetch_add(refused, Ordering::Relaxed);
    }

    fn decide_one(&mut self) -> Decision {
        let key = &self.keys[self.next];
        self.next = (self.next + 1) % self.keys.len();
        self.stream = self.stream.wrapping_add(1);
        let mut request = self
            .engine
            .begin(self.root.settings, self.stream, Tokens::ONE);
        let rule = self.root.rules[0];
        if !self.engine.add(&mut request, rule, key.as_bytes())
            && let Err(decision) = self.engine.add_new(&mut request, rule, key)
        {
            return decision;
        }
        self.engine.admit(&mut request, || None)
    }
}

// === impl ThreadHost ===

impl Host for ThreadHost {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.process.now.load(Ordering::Relaxed))
    }

    fn log(&self, _: Level, _: &str) {}

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        Ok(self.process.records().get(key))
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        Ok(self.process.records().set(key, value, cas))
    }

    fn own_slots(&self) -> Option<&OwnSlots> {
        Some(&self.process.slots)
    }

    fn call(&self, _: &str, _: &Call, _: Duration) -> Result<u32, HostError> {
        Err(HostError {
            call: "call",
            status: 10,
        })
    }

    fn lacks_cluster(&self, _: &str, _: &Release, _: Duration) -> bool {
        false
    }
}

// === free functions ===

/// One rule whose scopes have `rate` tokens per second without a lease.
fn config(rate: u64) -> EngineConfig {
    EngineConfig {
        coordinator: "none".to_owned(),
        shards: Vec::new(),
        enabled: true,
        rules: vec![RuleConfig {
            name: "tenant".to_owned(),
            policy: Policy {
                safe: Capacity::from_whole(rate),
                first_lease_wait: Duration::ZERO,
                ..Policy::default()
            },
            enforced: 100,
            on_overflow: Overflow::Share,
            final_cost: None,
            shape: None,
            marks: false,
        }],
        max_scopes: 10_000,
        max_pending: 1000,
        max_waiting: 4000,
        tick: Duration::from_millis(20),
        call_timeout: Duration::from_secs(1),
        host_failure: HostFailure::Closed,
        reports_limits: false,
    }
}
