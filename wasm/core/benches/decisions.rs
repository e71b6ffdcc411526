//! Cost of one decision: `cargo bench -p tollgate-core`. The time is given, as it is to all of
//! core.
//!
//! A bucket's take is meant to cost at most 10 ns and a token cache's 3 ns. A refresh is meant to cost
//! at most three times as much with 100 000 clients as with 1 000; the figures of one group are to
//! be compared with each other, for machines differ.

// Criterion needs threads and a clock of its own.
#[cfg(target_family = "wasm")]
fn main() {}

#[cfg(not(target_family = "wasm"))]
criterion::criterion_main!(native::decisions);

#[cfg(not(target_family = "wasm"))]
mod native {
    use core::num::{NonZeroU32, NonZeroU64};
    use core::time::Duration;
    use std::hint::black_box;

    use criterion::{BenchmarkId, Criterion};
    use tollgate_core::bucket::TokenBucket;
    use tollgate_core::lease::{ClientId, ClientRun, Epoch, LeaseRequest, ResourceId, Run, Unit};
    use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
    use tollgate_core::limit::{Algorithm, Limit};
    use tollgate_core::share::FairShare;
    use tollgate_core::token_cache::TokenCache;
    use tollgate_core::units::{Capacity, Instant, Rate, Tokens};

    const CLIENTS: [usize; 4] = [10, 1_000, 10_000, 100_000];

    pub(super) fn decisions() {
        let mut criterion = Criterion::default()
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2))
            .configure_from_args();
        bucket(&mut criterion);
        cache_size(&mut criterion);
        fair_share(&mut criterion);
        node(&mut criterion);
        newcomers(&mut criterion);
        by_usage(&mut criterion);
    }

    fn bucket(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("bucket");
        let rate = Rate::from_whole(1_000_000);
        // A microsecond earns a token, so each take refills, passes and leaves the balance as it was.
        let mut bucket = TokenBucket::new(Instant::ZERO, rate, Tokens::from_whole(100));
        let mut nanos = 0;
        group.bench_function("take", |bencher| {
            bencher.iter(|| {
                nanos += 1_000;
                black_box(&mut bucket).take(black_box(Instant::from_nanos(nanos)), Tokens::ONE)
            });
        });
        // Half the tokens that are asked for are earned, so half of the takes are refused.
        group.bench_function("take, half refused", |bencher| {
            bencher.iter(|| {
                nanos += 500;
                black_box(&mut bucket).take(black_box(Instant::from_nanos(nanos)), Tokens::ONE)
            });
        });
        group.finish();
    }

    fn cache_size(criterion: &mut Criterion) {
        let mut cache = TokenCache::new(Tokens::from_micros(u64::MAX));
        criterion.bench_function("cache/take", |bencher| {
            bencher.iter(|| black_box(&mut cache).take(black_box(Tokens::ONE)));
        });
    }

    /// Wants of client `i` in its `round`: over its equal part always, never twice the same.
    fn wants(i: usize, round: u64) -> Capacity {
        let spread = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        Capacity::from_micros(1_000_000_000 + spread * 1_000 + round % 1_000)
    }

    /// Capacity that `clients` share: a tenth of the least that they want.
    fn capacity(clients: usize) -> Capacity {
        Capacity::from_micros(100_000_000 * clients as u64)
    }

    fn fair_share(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("fair_share refresh");
        for clients in CLIENTS {
            let mut fair = FairShare::new();
            let mut handles: Vec<_> = (0..clients)
                .map(|i| fair.insert(i, wants(i, 0), NonZeroU32::MIN))
                .collect();
            let capacity = capacity(clients);
            let mut at = 0;
            group.bench_function(BenchmarkId::from_parameter(clients), |bencher| {
                bencher.iter(|| {
                    at += 1;
                    let i = at % clients;
                    let wants = wants(i, (at / clients) as u64 + 1);
                    fair.update(&mut handles[i], wants, NonZeroU32::MIN);
                    fair.share(&handles[i], capacity)
                });
            });
        }
        group.finish();
    }

    /// One client of the coordinator and what it has.
    struct Client {
        run: ClientRun,
        has: Capacity,
    }

    /// A node with one over-demanded resource, whose clients refresh one after the other.
    struct Busy {
        node: LeaseServer,
        resource: ResourceId,
        limit: Limit,
        clients: Vec<Client>,
        now: Instant,
        at: usize,
    }

    impl Busy {
        fn new(clients: usize) -> Self {
            let bounds = Bounds {
                max_resources: 1,
                max_clients_per_resource: clients,
                max_leases: 1_000_000,
                max_durable: 100_000,
            };
            let client = |i| Client {
                run: ClientRun {
                    id: ClientId::new(&format!("node-{i}/5f3a")).expect("a good id"),
                    run: Run::Incarnation(NonZeroU64::MIN.saturating_add(i as u64)),
                },
                has: Capacity::ZERO,
            };
            Self {
                node: LeaseServer::new(Instant::ZERO, Epoch(1), bounds, Start::Fresh),
                resource: ResourceId::new("tenant/acme", Unit::Requests).expect("a good id"),
                limit: Limit::new(capacity(clients)),
                clients: (0..clients).map(client).collect(),
                now: Instant::ZERO,
                at: 0,
            }
        }

        /// The next client's refresh. Between two of the same client passes more than the minimum
        /// interval, so that each is a decision and none a repetition.
        fn refresh(&mut self) {
            let count = self.clients.len();
            let step = 2 * self.limit.min_refresh.as_nanos() as u64 / count as u64;
            self.now = self.now.saturating_add(Duration::from_nanos(step));
            self.at += 1;
            let i = self.at % count;
            let Some(client) = self.clients.get_mut(i) else {
                return;
            };
            let wants = wants(i, (self.at / count) as u64);
            let request = LeaseRequest::new(self.at as u64, client.has, wants);
            let terms = Terms::of(&self.limit);
            let answer =
                self.node
                    .handle_refresh(self.now, &client.run, &self.resource, &request, &terms);
            let lease = answer.expect("every refresh is answered").lease;
            client.has = lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        }
    }

    fn node(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("node refresh");
        for clients in CLIENTS {
            let mut busy = Busy::new(clients);
            // All leases given and settled, as in a coordinator that has been up for a while.
            (0..5 * clients).for_each(|_| busy.refresh());
            group.bench_function(BenchmarkId::from_parameter(clients), |bencher| {
                bencher.iter(|| busy.refresh());
            });
        }
        group.finish();
    }

    /// A resource that is new, and is released again, beside others that stay.
    fn newcomers(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("new resource, refresh and release");
        let bounds = Bounds {
            max_resources: 100_000,
            max_clients_per_resource: 100_000,
            max_leases: 1_000_000,
            max_durable: 100_000,
        };
        let limit = Limit::new(Capacity::from_whole(100));
        let client = ClientRun {
            id: ClientId::new("node/5f3a").expect("a good id"),
            run: Run::Incarnation(NonZeroU64::MIN),
        };
        let id = |n: usize| {
            let scope = format!("tenant/{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            ResourceId::new(&scope, Unit::Requests).expect("a good id")
        };
        let wants = Capacity::from_whole(10);
        for others in [0, 1_000, 50_000] {
            let mut node = LeaseServer::new(Instant::ZERO, Epoch(1), bounds, Start::Fresh);
            let mut ask = |sequence: u64, resource: &ResourceId, releases: bool| {
                let request = LeaseRequest::new(sequence, Capacity::ZERO, wants);
                let now = Instant::from_nanos(sequence);
                let terms = Terms::of(&limit);
                let answer = node.handle_refresh(now, &client, resource, &request, &terms);
                if releases {
                    node.handle_release(&client, resource, sequence);
                }
                answer.expect("there is room")
            };
            for n in 0..others {
                ask(1, &id(1_000_000 + n), false);
            }
            let ids: Vec<_> = (0..1_000).map(id).collect();
            let mut at = 1;
            group.bench_function(BenchmarkId::from_parameter(others), |bencher| {
                bencher.iter(|| {
                    at += 1;
                    ask(at, &ids[at as usize % ids.len()], true)
                });
            });
        }
        group.finish();
    }

    /// The same with the algorithms that go by usage, of which one has rounds over all clients.
    fn by_usage(criterion: &mut Criterion) {
        let algorithms = [
            ("usage_share", Algorithm::UsageShare),
            ("max_rate", Algorithm::MaxRate),
        ];
        for (name, algorithm) in algorithms {
            let mut group = criterion.benchmark_group(format!("node refresh by {name}"));
            for clients in CLIENTS {
                let mut busy = Busy::new(clients);
                busy.limit.algorithm = algorithm;
                (0..5 * clients).for_each(|_| busy.refresh());
                group.bench_function(BenchmarkId::from_parameter(clients), |bencher| {
                    bencher.iter(|| busy.refresh());
                });
            }
            group.finish();
        }
    }
}
