use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;
use tollgate_core::cluster::ShardId;
use tollgate_core::fleet::QuotaLevel;
use tollgate_core::lease::Unit;
use tollgate_core::units::Tokens;

use super::*;

fn good() -> v1::RefreshResponse {
    let unit = v1::UnitResponse {
        unit: v1::Unit::Requests.into(),
        sequence: 7,
        lease: Some(v1::Lease {
            capacity: 100.0,
            duration_ms: 10_000,
            burst: 20.0,
            unlimited: false,
            fingerprint: 99,
        }),
        refresh_interval_ms: 1000,
        safe_capacity: Some(5.0),
        capacity: 1000.0,
        unlimited: false,
        burst: Some(200.0),
        draw: None,
        period_s: 60,
    };
    let scope = |name: &str| v1::ScopeResponse {
        scope: name.to_owned(),
        canonical_scope: name.to_owned(),
        units: vec![unit],
        error: None,
        limited: vec![4, 1, 77, 4],
        epoch: 0,
        shard: 0,
        usual: Some(true),
    };
    v1::RefreshResponse {
        epoch: 3,
        scopes: vec![scope("tenant/acme"), scope("tenant/umbrella")],
    }
}

#[test]
fn a_bad_scope_is_its_own_error_and_leaves_the_others() {
    type Change = fn(&mut v1::ScopeResponse);
    let rows: [(Change, &str); 12] = [
        (|s| s.scope.clear(), "scopes[0].scope: is empty"),
        (
            |s| s.canonical_scope.push('\0'),
            "scopes[0].canonical_scope: has a control character",
        ),
        (
            |s| s.units[0].unit = 0,
            "scopes[0].units[0].unit: 0 is not a unit that is known here",
        ),
        (
            |s| s.units[0].refresh_interval_ms = 0,
            "scopes[0].units[0].refresh_interval_ms: 0 ms is not between 1 ms and a day",
        ),
        (
            |s| s.units[0].safe_capacity = Some(f64::NAN),
            "scopes[0].units[0].safe_capacity: NaN is not a finite number",
        ),
        (
            |s| s.units[0].burst = Some(-1.0),
            "scopes[0].units[0].burst: -1 is negative",
        ),
        (
            |s| s.units[0].capacity = f64::INFINITY,
            "scopes[0].units[0].capacity: inf is not a finite number",
        ),
        (
            |s| lease(s).capacity = -1.0,
            "scopes[0].units[0].lease.capacity: -1 is negative",
        ),
        (
            |s| lease(s).burst = f64::NEG_INFINITY,
            "scopes[0].units[0].lease.burst: -inf is not a finite number",
        ),
        (
            |s| lease(s).duration_ms = 0,
            "scopes[0].units[0].lease.duration_ms: 0 ms is not between 1 ms and a day",
        ),
        (
            |s| lease(s).duration_ms = u64::MAX,
            "scopes[0].units[0].lease.duration_ms: 18446744073709551615 ms is not between 1 ms \
             and a day",
        ),
        (
            |s| s.shard = 65537,
            "scopes[0].shard: 65537 is more than the highest shard, 65536",
        ),
    ];
    for (change, want) in rows {
        let mut message = good();
        change(&mut message.scopes[0]);
        let refreshed = Refreshed::try_from(message).unwrap();
        let error = refreshed.scopes[0].as_ref().unwrap_err();
        assert_eq!(error.to_string(), want);
        assert!(refreshed.scopes[1].is_ok(), "{want}");
    }
}

fn lease(scope: &mut v1::ScopeResponse) -> &mut v1::Lease {
    scope.units[0].lease.as_mut().unwrap()
}

#[test]
fn a_good_answer_is_read_as_it_was_meant() {
    let mut message = good();
    lease(&mut message.scopes[1]).unlimited = true;
    message.scopes[1].epoch = 5;
    message.scopes[1].shard = 2;
    let refreshed = Refreshed::try_from(message).unwrap();
    let origin = |i: usize| refreshed.scopes[i].as_ref().unwrap().origin;
    assert_eq!(origin(0), Origin::alone(Epoch(3)));
    let of_shard = Origin {
        shard: Some(ShardId(1)),
        epoch: Epoch(5),
    };
    assert_eq!(origin(1), of_shard);
    let units = |i: usize| {
        refreshed.scopes[i]
            .as_ref()
            .unwrap()
            .outcome
            .as_ref()
            .unwrap()
    };
    let want = Answer {
        lease: Some(LeaseTerms {
            capacity: Capacity::from_whole(100),
            burst: Tokens::from_whole(20),
            duration: Duration::from_secs(10),
            fingerprint: 99,
        }),
        refresh_interval: Duration::from_secs(1),
        safe: Some(Capacity::from_whole(5)),
        capacity: Capacity::from_whole(1000),
        period: Some(RatePeriod::Minute),
        burst: Some(Tokens::from_whole(200)),
        draw: None,
    };
    assert_eq!(units(0)[0].answer, want);
    let limited = &refreshed.scopes[0].as_ref().unwrap().limited;
    assert_eq!(*limited, [Unit::Requests, Unit::Concurrency]);
    assert!(units(1)[0].answer.lease.unwrap().capacity.is_unlimited());
}

#[test]
fn an_error_message_is_cut_and_cannot_forge_log_lines() {
    let message = v1::ScopeError {
        code: 8,
        message: format!("full\nFAKE {}", "ü".repeat(1000)),
    };
    let error = ScopeError::from(message);
    assert!(error.message.starts_with("full FAKE üü"));
    assert!(error.message.len() <= MESSAGE_LEN_MAX);
}

#[test]
fn a_lease_that_is_over_is_not_sent() {
    let mut unit = UnitAnswer {
        unit: Unit::Requests,
        sequence: 1,
        answer: Answer {
            lease: Some(LeaseTerms {
                capacity: Capacity::from_whole(1),
                burst: Tokens::ONE,
                duration: Duration::from_micros(999),
                fingerprint: 1,
            }),
            refresh_interval: Duration::ZERO,
            safe: None,
            capacity: Capacity::UNLIMITED,
            period: None,
            burst: None,
            draw: None,
        },
    };
    let message = v1::UnitResponse::from(&unit);
    assert_eq!(message.lease, None);
    assert_eq!(message.refresh_interval_ms, 1);
    unit.answer.lease = None;
    unit.answer.refresh_interval = Duration::from_millis(1);
    assert_eq!(UnitAnswer::try_from(&message), Ok(unit));
}

prop_compose! {
    fn capacity()(micros in prop_oneof![Just(u64::MAX), 0..1_u64 << 51]) -> Capacity {
        match micros {
            u64::MAX => Capacity::UNLIMITED,
            micros => Capacity::from_micros(micros),
        }
    }
}

prop_compose! {
    fn terms()(
        capacity in capacity(),
        burst in 0..1_u64 << 51,
        ms in 1..=86_400_000_u64,
        fingerprint: u64,
    ) -> LeaseTerms {
        LeaseTerms {
            capacity,
            burst: Tokens::from_micros(burst),
            duration: Duration::from_millis(ms),
            fingerprint,
        }
    }
}

prop_compose! {
    fn draw()(
        granted: u64,
        left: u64,
        next in option::of(0..=86_400_000_u64),
        standby in 0..1_u64 << 51,
        quota in option::of((any::<u64>(), any::<u64>(), 0..1_u64 << 40, 0..1_u64 << 40)),
    ) -> DrawAnswer {
        DrawAnswer {
            granted: Tokens::from_micros(granted),
            left: Tokens::from_micros(left),
            next: next.map(Duration::from_millis),
            standby: Capacity::from_micros(standby),
            quota: quota.map(|(amount, left, length, resets_in)| QuotaLevel {
                amount: Tokens::from_micros(amount),
                left: Tokens::from_micros(left),
                length: Duration::from_millis(length),
                resets_in: Duration::from_millis(resets_in),
            }),
        }
    }
}

prop_compose! {
    fn unit_answer()(
        unit in proptest::sample::select(Unit::ALL.to_vec()),
        sequence: u64,
        lease in option::of(terms()),
        ms in 1..=86_400_000_u64,
        safe in option::of((0..1_u64 << 51).prop_map(Capacity::from_micros)),
        capacity in capacity(),
        period in option::of(proptest::sample::select(&RatePeriod::ALL[..])),
        burst in option::of(0..1_u64 << 51),
        draw in option::of(draw()),
    ) -> UnitAnswer {
        let refresh_interval = Duration::from_millis(ms);
        let burst = burst.map(Tokens::from_micros);
        let answer = Answer { lease, refresh_interval, safe, capacity, period, burst, draw };
        UnitAnswer { unit, sequence, answer }
    }
}

prop_compose! {
    fn scope_answer()(
        scope in "[a-zäöü/0-9]{1,40}",
        canonical in option::of("[a-z/]{1,40}"),
        limited in subsequence(Unit::ALL.to_vec(), 0..=4),
        usual: Option<bool>,
        outcome in prop_oneof![
            vec(unit_answer(), 0..2).prop_map(Ok),
            (any::<u32>(), "[ -~]{0,80}").prop_map(
                |(code, message)| Err(ScopeError { code, message })
            ),
        ],
    ) -> ScopeAnswer {
        let scope: Arc<str> = scope.into();
        let canonical = canonical.map_or_else(|| scope.clone(), Into::into);
        let origin = Origin::default();
        ScopeAnswer { scope, canonical, limited, origin, usual, outcome }
    }
}

proptest! {
    #[test]
    fn what_a_coordinator_sends_is_what_a_client_reads(
        epoch: u64,
        shards in option::of(vec((any::<u16>(), 1..u64::MAX), 10)),
        mut scopes in vec(scope_answer(), 1..10),
    ) {
        use prost::Message as _;
        for (place, scope) in scopes.iter_mut().enumerate() {
            let of_shard = |(shard, epoch)| Origin {
                shard: Some(ShardId(shard)),
                epoch: Epoch(epoch),
            };
            let shard = shards.as_ref().map(|shards| of_shard(shards[place]));
            scope.origin = shard.unwrap_or_else(|| Origin::alone(Epoch(epoch)));
        }
        let bytes = v1::RefreshResponse::new(&scopes).encode_to_vec();
        let message = v1::RefreshResponse::decode(bytes.as_slice()).unwrap();
        let refreshed = Refreshed::try_from(message).unwrap();
        let read: Vec<_> = refreshed.scopes.into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(read, scopes);
    }

    #[test]
    fn no_bytes_crash_the_reader(bytes in vec(any::<u8>(), 0..300)) {
        use prost::Message as _;
        if let Ok(message) = v1::RefreshResponse::decode(bytes.as_slice()) {
            let _ = Refreshed::try_from(message);
        }
    }
}
