use super::*;
use crate::client::{AwaitAction, Policy, WorkerUsage};
use core::time::Duration;
use proptest::prelude::*;

/// Holdings with every optional field absent and with every one present.
fn scope_states() -> [ScopeState; 2] {
    let now = Instant::from_nanos(5);
    let policy = Policy::default();
    let idle = ScopeState::new(now, &policy);
    let at = Some(Instant::from_nanos(7));
    let lease = HeldLease {
        capacity: Capacity::UNLIMITED,
        burst: Tokens::ONE,
        expiry: now,
        fingerprint: 7,
    };
    let mut full = idle.clone();
    full.set_terms(now, &policy, &Unit::ALL, Some(&"group/gold".into()));
    for unit in [Unit::Requests, Unit::RequestBytes, Unit::ResponseBytes] {
        let limiter = full.rate_mut(unit).unwrap();
        limiter.lease.phase = Phase::Pending { until: now };
        limiter.lease.client = LeaseClient {
            lease: Some(lease),
            safe: Some(Capacity::ZERO),
            capacity: Some(Capacity::UNLIMITED),
            burst: Some(Tokens::ONE),
            period: Some(RatePeriod::Day),
            asked_at: at,
            due: at,
            failures: 3,
            origin: Origin {
                shard: Some(ShardId(u16::MAX)),
                epoch: Epoch(9),
            },
            ..limiter.lease.client.clone()
        };
        limiter.demand = DemandEstimator {
            low_since: at,
            measured: true,
            average: 9,
            ..limiter.demand
        };
    }
    full.request_bytes.as_mut().unwrap().lease.phase = Phase::Lapsed;
    full.response_bytes.as_mut().unwrap().lease.phase = Phase::Growing { until: now };
    let concurrency = full.concurrency.as_mut().unwrap();
    for worker in [7, 3, 5] {
        let usage = WorkerUsage {
            worker,
            in_use: 2,
            peak: 4,
            ..WorkerUsage::default()
        };
        concurrency.report(now, &usage);
    }
    [idle, full]
}

fn encoded(scope_state: &ScopeState) -> Vec<u8> {
    let mut bytes = Vec::new();
    scope_state.encode(&mut bytes);
    bytes
}

/// Any state that decodes can be used at any time without harm.
fn exercise(bytes: &[u8]) {
    let Some(mut scope_state) = ScopeState::decode(bytes) else {
        return;
    };
    let policy = Policy::default();
    for now in [0, 1, 1 << 40, u64::MAX / 2, u64::MAX].map(Instant::from_nanos) {
        for unit in Unit::ALL {
            if let Some(rate) = scope_state.rate_mut(unit) {
                rate.count(now, u64::MAX);
                rate.draw(now, &policy, Tokens::ONE, 2);
                rate.pay(now, &policy, u64::MAX, Tokens::from_micros(u64::MAX));
                rate.draw_bytes(now, &policy, Tokens::ONE, 2, AwaitAction::Hold);
                rate.give_back(now, &policy, Tokens::from_micros(u64::MAX));
                rate.refund(now, &policy, Instant::ZERO, Tokens::from_micros(u64::MAX));
                rate.await_refunds(now);
            }
            scope_state.handle_failure(now, unit, 1, 1);
        }
        if let Some(concurrency) = &mut scope_state.concurrency {
            let usage = WorkerUsage {
                worker: 9,
                in_use: u32::MAX,
                peak: u32::MAX,
                admitted: u32::MAX,
                refused: u32::MAX,
                turned_away: u32::MAX,
            };
            concurrency.draw(now, &policy, &usage, u32::MAX, AwaitAction::Refuse);
            concurrency.sweep(now, &[]);
        }
        scope_state.ask(now, &policy);
        scope_state.is_reusable(now);
    }
}

#[test]
fn decode_takes_back_what_encode_gave() {
    for scope_state in scope_states() {
        assert_eq!(
            ScopeState::decode(&encoded(&scope_state)),
            Some(scope_state)
        );
    }
    assert!(encoded(&scope_states()[0]).len() <= ScopeState::ENCODED_LEN_USUAL);
}

/// The fields that came with version 7.
#[derive(Clone, Default)]
struct Draws7 {
    draws: Draws,
    permits: PermitDraws,
    waiting: u32,
    tally: OpenTally,
}

impl Draws7 {
    fn mark() -> Self {
        Self {
            draws: Draws {
                granted: Tokens::from_micros(0x0102_0304_0506_0708),
                ..Draws::default()
            },
            permits: PermitDraws {
                begun: 0x0102_0304,
                most: 0x0506_0708,
                ..PermitDraws::default()
            },
            waiting: 0x1a2b_3c4d,
            tally: OpenTally {
                since: 0x1122_3344_5566_7788,
                ..OpenTally::default()
            },
        }
    }

    fn set(&self, scope_state: &mut ScopeState) {
        for unit in Unit::ALL {
            if let Some(limiter) = scope_state.rate_mut(unit) {
                limiter.draws = self.draws.clone();
                limiter.lease.client.tally = self.tally.clone();
                limiter.lease.client.period = None;
            }
        }
        if let Some(limiter) = &mut scope_state.concurrency {
            limiter.draws = self.permits.clone();
            limiter.lease.client.tally = self.tally.clone();
            let shares = limiter.shares.iter_mut();
            shares.for_each(|share| share.waiting = self.waiting);
        }
    }
}

/// The record of `scope_state`, without draws and counts, as it was before version 7.
fn encoded_without_draws(scope_state: &mut ScopeState) -> Vec<u8> {
    let mark = Draws7::mark();
    mark.set(scope_state);
    let bytes = encoded(scope_state);
    Draws7::default().set(scope_state);
    let bytes = without(without(bytes, &mark.draws), &mark.permits);
    without(
        without(bytes, &mark.waiting),
        &TallyWithoutPeriod(mark.tally),
    )
}

/// A tally, and behind it the period that came with version 8.
struct TallyWithoutPeriod(OpenTally);

impl Field for TallyWithoutPeriod {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.0.write(bytes);
        None::<RatePeriod>.write(bytes);
    }

    fn read(_: &mut Reader<'_>) -> Option<Self> {
        None
    }
}

/// The record of `scope_state`, without bursts and what buckets lack, as it was before version 6.
fn encoded_without_bursts(scope_state: &mut ScopeState) -> Vec<u8> {
    let burst = Some(Tokens::from_micros(0x1234_5678_9abc_def0));
    let lacking = Tokens::from_micros(0x0fed_cba9_8765_4321);
    set_bursts(scope_state, burst, lacking);
    let bytes = encoded_without_draws(scope_state);
    set_bursts(scope_state, None, Tokens::ZERO);
    without(without(bytes, &burst), &lacking)
}

/// `bytes` without those of the fields that are `mark`.
fn without(mut bytes: Vec<u8>, mark: &impl Field) -> Vec<u8> {
    let mut marked = Vec::new();
    mark.write(&mut marked);
    while let Some(at) = bytes.windows(marked.len()).position(|part| part == marked) {
        bytes.drain(at..at + marked.len());
    }
    bytes
}

fn set_bursts(scope_state: &mut ScopeState, burst: Option<Tokens>, lacking: Tokens) {
    for unit in Unit::ALL {
        if let Some(limiter) = scope_state.rate_mut(unit) {
            limiter.lease.client.burst = burst;
            let parts = limiter.bucket.to_parts();
            limiter.bucket = TokenBucket::from_parts(BucketState { lacking, ..parts });
        }
    }
    if let Some(limiter) = &mut scope_state.concurrency {
        limiter.lease.client.burst = burst;
    }
}

#[test]
fn decode_reads_what_a_filter_wrote_that_knew_no_period() {
    let [mut idle, _] = scope_states();
    let client = &mut idle.requests.lease.client;
    client.tally.since = 0x1122_3344_5566_7788;
    let (mut tally, mut bytes) = (Vec::new(), encoded(&idle));
    idle.requests.lease.client.tally.write(&mut tally);
    let windows = bytes.windows(tally.len());
    let at = windows.into_iter().position(|part| part == tally).unwrap();
    assert_eq!(bytes.remove(at + tally.len()), 0);
    // Nor quotas, or what came back, behind which are no other units.
    assert_eq!(bytes.split_off(bytes.len() - 28), [0; 28]);
    bytes.extend([0; 3]);
    bytes[0] = 7;
    assert_eq!(ScopeState::decode(&bytes), Some(idle));
}

#[test]
fn decode_reads_what_a_filter_wrote_to_which_nothing_came_back() {
    let [idle, _] = scope_states();
    let mut bytes = encoded(&idle);
    assert_eq!(bytes.split_off(bytes.len() - 27), [0; 27]);
    bytes.extend([0; 3]);
    bytes[0] = 8;
    assert_eq!(ScopeState::decode(&bytes), Some(idle));
}

#[test]
fn decode_reads_what_a_filter_wrote_that_drew_nothing() {
    for mut scope_state in scope_states() {
        let mut bytes = encoded_without_draws(&mut scope_state);
        bytes[0] = 6;
        assert_eq!(ScopeState::decode(&bytes), Some(scope_state));
    }
}

#[test]
fn decode_reads_what_a_filter_wrote_that_knew_no_bursts() {
    for mut scope_state in scope_states() {
        let mut bytes = encoded_without_bursts(&mut scope_state);
        bytes[0] = 5;
        assert_eq!(ScopeState::decode(&bytes), Some(scope_state));
    }
}

#[test]
fn decode_reads_what_a_filter_without_shards_wrote() {
    let [mut idle, _] = scope_states();
    idle.requests.lease.client.origin = Origin::alone(Epoch(9));
    let mut bytes = encoded_without_bursts(&mut idle);
    // Behind the version, the canonical scope, the bucket, three tags and the epoch.
    const SHARD_AT: usize = 1 + 2 + 5 * 8 + 3 + 8;
    assert_eq!(bytes[SHARD_AT - 8..=SHARD_AT], [9, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes.remove(SHARD_AT), 0);
    bytes[0] = 3;
    assert_eq!(ScopeState::decode(&bytes), Some(idle));
}

#[test]
fn decode_reads_what_a_filter_wrote_that_kept_no_earlier_lease() {
    let [mut idle, mut full] = scope_states();
    full.concurrency.as_mut().unwrap().gets = Capacity::UNLIMITED;
    let mut bytes = encoded_without_bursts(&mut full);
    // Before the counts, three times, the last use, and 24 bytes for each of three shares.
    let gets_at = bytes.len() - 3 * 24 - 2 - 8 - 4 - 8 - 4 - 4 - 8;
    let gets: Vec<u8> = bytes.drain(gets_at..gets_at + 8).collect();
    assert_eq!(gets, [0xff; 8]);
    bytes[0] = 4;
    assert_eq!(ScopeState::decode(&bytes), Some(full));
    let mut bytes = encoded_without_bursts(&mut idle);
    bytes[0] = 4;
    assert_eq!(ScopeState::decode(&bytes), Some(idle));
}

/// A filter that took any epoch for true may have left it in shared data.
#[test]
fn an_impossible_epoch_that_was_kept_does_not_keep_real_masters_out() {
    let [_, mut full] = scope_states();
    full.requests.lease.client.origin = Origin::alone(Epoch(u64::MAX));
    let scope_state = ScopeState::decode(&encoded(&full)).unwrap();
    let real = Origin::alone(Epoch(1_790_000_000_000));
    let checked = scope_state.check_origin(Instant::ZERO, Unit::Requests, real);
    assert_eq!(checked, Ok(()));
}

#[test]
fn decode_refuses_what_it_does_not_know() {
    for bytes in scope_states().map(|scope_state| encoded(&scope_state)) {
        for len in 0..bytes.len() {
            assert_eq!(
                ScopeState::decode(&bytes[..len]),
                None,
                "truncated to {len}"
            );
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(ScopeState::decode(&longer), None, "longer");
        for version in [0, 1, 2, 255] {
            let other = [&[version], &bytes[1..]].concat();
            assert_eq!(ScopeState::decode(&other), None, "version {version}");
        }
    }
}

#[test]
fn hostile_numbers_do_no_harm() {
    for bytes in scope_states().map(|scope_state| encoded(&scope_state)) {
        for position in 1..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[position] = value;
                exercise(&bytes);
            }
        }
    }
}

#[test]
fn shares_out_of_order_or_twice_of_one_worker_are_refused() {
    let changes: [fn(&mut [WorkerShare]); 2] = [
        |shares| shares.reverse(),
        |shares| shares[1].worker = shares[0].worker,
    ];
    for change in changes {
        let [_, mut full] = scope_states();
        change(&mut full.concurrency.as_mut().unwrap().shares);
        assert_eq!(ScopeState::decode(&encoded(&full)), None);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_harmless(bytes in prop::collection::vec(any::<u8>(), 0..1024)) {
        exercise(&bytes);
        let versioned = [&[*VERSIONS.end()], bytes.as_slice()].concat();
        exercise(&versioned);
    }

    #[test]
    fn any_few_changed_bytes_are_refused_or_harmless(
        full in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encoded(&scope_states()[usize::from(full)]);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(&bytes);
    }

    #[test]
    fn what_any_use_leaves_decodes_to_itself(
        ops in prop::collection::vec((0..7_u8, 0..500_u64, 0..50_u64), 0..60),
    ) {
        let policy = Policy::default();
        let mut now = Instant::from_nanos(1 << 40);
        let [_, mut scope_state] = scope_states();
        for (op, ms, n) in ops {
            now = now.saturating_add(Duration::from_millis(ms));
            match op {
                0 => { scope_state.requests.draw(now, &policy, Tokens::from_whole(n), 2); }
                1 => scope_state.requests.pay(now, &policy, n, Tokens::from_whole(n)),
                2 => { scope_state.requests.count(now, n); }
                3 => { scope_state.ask(now, &policy); }
                4 => scope_state.set_terms(now, &policy, &Unit::ALL[..(n % 5) as usize], None),
                5 => if let Some(concurrency) = &mut scope_state.concurrency {
                    let usage = WorkerUsage { worker: n, in_use: n as u32, ..WorkerUsage::default() };
                    concurrency.draw(now, &policy, &usage, 2, AwaitAction::Refuse);
                },
                _ => if let Some(concurrency) = &mut scope_state.concurrency {
                    concurrency.sweep(now, &[n]);
                },
            }
            let bytes = encoded(&scope_state);
            prop_assert_eq!(ScopeState::decode(&bytes), Some(scope_state.clone()));
        }
    }
}
