use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use tollgate_core::fleet::{EndedWindow, QuotaCredit, QuotaEvent, QuotaRecord, UsedPart};
use tollgate_core::lease::{
    Band, ClientId, ClientRun, Demand, Epoch, LeaseRequest, Priority, ResourceId, Run, Unit,
};
use tollgate_core::lease_server::{Bounds, LeaseServer, ResourceSnapshot, Terms};
use tollgate_core::limit::{Algorithm, Guarantees, Limit, Part, SafeCapacity};
use tollgate_core::pool::PoolSnapshot;
use tollgate_core::resource::{ClientDraws, ClientSnapshot, LeaseSnapshot, PresenceSnapshot};
use tollgate_core::units::{Capacity, Instant, RatePeriod, Tokens, WallTime};

use super::*;

mod draws;
mod refusals;

use draws::{bucket, draws};

const BOUNDS: Bounds = Bounds {
    max_resources: 100,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

fn capacity() -> impl Strategy<Value = Capacity> {
    prop_oneof![
        8 => (0..=Capacity::MAX.as_micros()).prop_map(Capacity::from_micros),
        1 => Just(Capacity::UNLIMITED),
    ]
}

fn ms(most: u64) -> impl Strategy<Value = Duration> {
    (0..most).prop_map(Duration::from_millis)
}

fn lent() -> impl Strategy<Value = LeaseSnapshot> {
    (capacity(), ms(86_400_000)).prop_map(|(capacity, remaining)| LeaseSnapshot {
        capacity,
        remaining,
    })
}

fn demand() -> impl Strategy<Value = Demand> {
    let band = (capacity(), 1_u32..).prop_map(|(wants, subclients)| (wants, subclients));
    btree_map(0_u8..16, band, 1..4).prop_map(|bands| {
        let band = |(level, (wants, subclients)): (u8, (Capacity, u32))| Band {
            priority: Priority::new(level).unwrap(),
            wants,
            subclients: NonZeroU32::new(subclients).unwrap(),
        };
        let bands: Vec<_> = bands.into_iter().map(band).collect();
        Demand::try_from_bands(&bands).unwrap()
    })
}

fn run() -> impl Strategy<Value = Run> {
    prop_oneof![
        Just(Run::Only),
        any::<NonZeroU64>().prop_map(Run::Incarnation),
        (1..=Epoch::MAX.0).prop_map(|term| Run::Term(Epoch(term))),
    ]
}

fn presence() -> impl Strategy<Value = PresenceSnapshot> {
    let times = (ms(1 << 40), ms(1 << 40), ms(1 << 40));
    let of = (times, any::<bool>(), any::<bool>());
    of.prop_map(
        |((missed_in, asked_ago, young_for), silent, missed)| PresenceSnapshot {
            missed_in,
            silent,
            missed,
            asked_ago,
            young_for,
        },
    )
}

fn client_snapshot(client: &str) -> impl Strategy<Value = ClientSnapshot> + use<> {
    let id = ClientId::new(client).unwrap();
    let lents = (lent(), option::of(lent()), option::of(capacity()));
    let of = (any::<u64>(), run(), draws());
    let times = (ms(1 << 40), option::of(ms(1 << 40)), presence());
    (of, demand(), lents, times, any::<u64>()).prop_map(
        move |((sequence, run, draws), demand, (granted, prior, max_rate), times, fingerprint)| {
            let (granted_ago, throttled_for, presence) = times;
            ClientSnapshot {
                client: ClientRun {
                    id: id.clone(),
                    run,
                },
                sequence,
                demand,
                granted,
                granted_ago,
                max_rate,
                fingerprint,
                prior,
                presence,
                throttled_for,
                draws,
            }
        },
    )
}

fn limit() -> impl Strategy<Value = Limit> {
    let algorithm = prop::sample::select(
        &[
            Algorithm::None,
            Algorithm::Static,
            Algorithm::ProportionalShare,
            Algorithm::FairShare,
            Algorithm::UsageShare,
            Algorithm::MaxRate,
        ][..],
    );
    let parts = (0..=1_000_000_u32, 0..=1_000_000_u32);
    let safe = (0..4_u8, any::<bool>());
    (
        capacity(),
        algorithm,
        parts,
        safe,
        2..86_400_000_000_000_u64,
    )
        .prop_map(
            |(capacity, algorithm, (headroom, reserve), (safe, bands), lease)| {
                let mut limit = Limit::new(capacity);
                limit.period = RatePeriod::ALL
                    .get(usize::from(safe))
                    .copied()
                    .filter(|_| bands);
                limit.algorithm = algorithm;
                limit.headroom = Part::try_from_micros(headroom).unwrap();
                limit.reserve = Part::try_from_micros(reserve).unwrap();
                limit.safe = match safe {
                    0 => SafeCapacity::Dynamic,
                    1 => SafeCapacity::Fixed(capacity),
                    _ => SafeCapacity::Client,
                };
                if bands {
                    limit.guaranteed = Guarantees::default().with(Priority::HIGHEST, capacity);
                }
                limit.lease = Duration::from_nanos(lease);
                limit.learning = limit.lease * 2;
                limit.refresh = Duration::from_nanos(lease - 1);
                limit.min_refresh = Duration::from_nanos(1);
                limit
            },
        )
}

fn id(scope: &str, unit: Unit) -> ResourceId {
    ResourceId::new(scope, unit).unwrap()
}

/// Up to three resources of up to three clients, some of them in a pool.
fn snapshot() -> impl Strategy<Value = Snapshot> {
    let names = btree_set(prop::sample::select(&["x", "y", "z/0"][..]), 0..3);
    let clients =
        names.prop_flat_map(|names| names.into_iter().map(client_snapshot).collect::<Vec<_>>());
    let unit = prop::sample::select(&Unit::ALL[..]);
    let member = option::of(1_u32..);
    let resource = (limit(), member, ms(1 << 40), option::of(bucket()), clients);
    let whole = (any::<u64>(), option::of(ms(1 << 40)), unit);
    (whole, limit(), vec(resource, 0..3), vec(ms(1 << 40), 0..3)).prop_map(
        |((epoch, learning_for, unit), pool, resources, drains)| {
            let gold = id("group/gold", unit);
            let resource = |(i, (limit, weight, learning, bucket, clients)): (
                usize,
                (_, Option<u32>, _, _, _),
            )| {
                let weight = weight.and_then(NonZeroU32::new);
                ResourceSnapshot {
                    id: id(&format!("tenant/{i}"), unit),
                    limit,
                    pool: weight.map(|weight| (gold.clone(), weight)),
                    learning,
                    crowded: learning,
                    balance: learning,
                    bucket,
                    quotas: quotas(i),
                    clients,
                }
            };
            let drain =
                |(i, time): (usize, Duration)| (ClientId::new(&format!("x/{i}")).unwrap(), time);
            Snapshot {
                epoch: Epoch(epoch),
                learning_for,
                pools: vec![PoolSnapshot {
                    id: gold.clone(),
                    limit: pool,
                    crowded: Duration::from_secs(1),
                    bucket: resources.first().and_then(|(_, _, _, bucket, _)| *bucket),
                    quotas: quotas(resources.len()),
                }],
                resources: resources.into_iter().enumerate().map(resource).collect(),
                drains: drains.into_iter().enumerate().map(drain).collect(),
            }
        },
    )
}

/// So many quotas, each with one part more than the one before.
fn quotas(count: usize) -> Vec<QuotaRecord> {
    let part = |i: usize| UsedPart {
        until: WallTime::from_millis(i as u64),
        used: Tokens::from_micros(u64::MAX - i as u64),
        credited: Tokens::from_micros(i as u64),
    };
    let credit = |i: usize| QuotaCredit {
        id: format!("refund {i}"),
        amount: Tokens::from_micros(u64::MAX),
        left: Tokens::from_micros(i as u64),
        until: WallTime::from_millis(i as u64),
    };
    let ended = |i: usize| EndedWindow {
        start: WallTime::from_millis(i as u64),
        end: WallTime::from_millis(u64::MAX),
        used: Tokens::from_micros(i as u64),
    };
    let event = |i: usize| QuotaEvent {
        at: WallTime::from_millis(i as u64),
        by: format!("person {i}"),
        credit: i.is_multiple_of(2).then(|| format!("refund {i}")),
        tokens: Tokens::from_micros(i as u64),
    };
    let quotas = (0..count).map(|i| QuotaRecord {
        name: format!("{i}h"),
        parts: (0..i).map(part).collect(),
        credits: (0..i).map(credit).collect(),
        ended: (0..i).map(ended).collect(),
        events: (0..i).map(event).collect(),
    });
    quotas.collect()
}

/// Lets a master go on with what `bytes` say, if they say anything: it answers, and it lends
/// nothing beyond the capacity and what the snapshot claims.
fn go_on_with(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(mut snapshot) = decode(bytes) else {
        return Ok(());
    };
    snapshot.epoch = Epoch(3);
    let mut now = Instant::from_nanos(1 << 50);
    let Ok(mut node) = LeaseServer::take_over(now, Epoch(4), BOUNDS, &snapshot) else {
        return Ok(());
    };
    let limit = Limit::new(Capacity::from_whole(100));
    let newcomer = ClientRun::only(ClientId::new("newcomer").unwrap());
    for step in 1..30 {
        now = now.saturating_add(Duration::from_secs(1 << step));
        node.handle_timeout(now);
        let ids: Vec<_> = node.resources().map(|(id, _)| id.clone()).collect();
        for id in ids {
            let lent =
                |node: &LeaseServer| node.resource(&id).map_or(0, |snapshot| snapshot.sum_has());
            let before = lent(&node);
            let sequence = step.try_into().unwrap();
            let ask = LeaseRequest::new(sequence, Capacity::ZERO, Capacity::from_whole(80));
            let answer = node.handle_refresh(now, &newcomer, &id, &ask, &Terms::of(&limit));
            prop_assert!(answer.is_ok());
            let most = before.max(limit.capacity.as_micros().into());
            prop_assert!(
                lent(&node) <= most,
                "{} of {most} lent of {id:?}",
                lent(&node)
            );
        }
    }
    let _ = node.hand_over(now);
    Ok(())
}

proptest! {
    #[test]
    fn books_survive_the_wire(snapshot in snapshot()) {
        prop_assert_eq!(decode(&encode(&snapshot)).unwrap(), snapshot);
    }

    #[test]
    fn times_are_rounded_so_that_nothing_ends_early(mut snapshot in snapshot(), nanos in 1..1_000_000_u32) {
        let more = Duration::from_nanos(nanos.into());
        let lines = snapshot.resources.iter_mut().flat_map(|snapshot| &mut snapshot.clients);
        for client_snapshot in lines {
            client_snapshot.granted.remaining += more;
            client_snapshot.granted_ago += more;
            client_snapshot.throttled_for = client_snapshot.throttled_for.map(|time| time + more);
        }
        let read = decode(&encode(&snapshot)).unwrap();
        let lines = |snapshot: &Snapshot| -> Vec<ClientSnapshot> {
            let clients = snapshot.resources.iter().map(|snapshot| snapshot.clients.clone());
            clients.flatten().collect()
        };
        for (read, written) in lines(&read).iter().zip(lines(&snapshot)) {
            prop_assert!(read.granted.remaining >= written.granted.remaining);
            prop_assert!(read.granted_ago <= written.granted_ago);
            prop_assert!(read.throttled_for <= written.throttled_for);
        }
    }

    #[test]
    fn any_books_can_be_gone_on_with(snapshot in snapshot()) {
        go_on_with(&encode(&snapshot))?;
    }

    #[test]
    fn damaged_books_do_no_damage(
        snapshot in snapshot(),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = encode(&snapshot);
        for (at, byte) in flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
        go_on_with(&bytes)?;
    }
}

fn good() -> v1::Snapshot {
    let limit = Limit::new(Capacity::from_whole(100));
    v1::Snapshot {
        epoch: 3,
        form: FORM,
        clients: vec!["x".to_owned(), "y".to_owned()],
        limits: vec![(&limit).into()],
        pools: vec![v1::PoolSnapshot {
            scope: "group/gold".to_owned(),
            unit: 1,
            limit: 0,
            ..v1::PoolSnapshot::default()
        }],
        resources: vec![v1::ResourceSnapshot {
            scope: "tenant/a".to_owned(),
            unit: 1,
            pool: Some(0),
            weight: 1,
            clients: vec![v1::ClientSnapshot {
                client: 1,
                prior: Some(v1::LeaseSnapshot::default()),
                bands: vec![v1::BandSnapshot {
                    subclients: 1,
                    ..v1::BandSnapshot::default()
                }],
                ..v1::ClientSnapshot::default()
            }],
            ..v1::ResourceSnapshot::default()
        }],
        drains: vec![v1::DrainSnapshot::default()],
        ..v1::Snapshot::default()
    }
}

#[test]
fn what_occurs_often_is_there_once() {
    let limit = Limit::new(Capacity::from_whole(100));
    let client_snapshot = |client: &str| ClientSnapshot {
        client: ClientRun {
            id: ClientId::new(client).unwrap(),
            run: Run::Incarnation(NonZeroU64::MAX),
        },
        sequence: 1 << 50,
        demand: Demand::of(Capacity::from_whole(10)),
        granted: LeaseSnapshot {
            capacity: Capacity::from_whole(10),
            remaining: Duration::from_secs(9),
        },
        granted_ago: Duration::from_secs(1),
        max_rate: None,
        fingerprint: 77,
        prior: None,
        presence: PresenceSnapshot::default(),
        throttled_for: None,
        draws: ClientDraws::default(),
    };
    let resource = |i: u32| ResourceSnapshot {
        id: id(&format!("tenant/{i}"), Unit::Requests),
        limit: limit.clone(),
        pool: None,
        learning: Duration::ZERO,
        crowded: Duration::ZERO,
        balance: Duration::ZERO,
        bucket: None,
        quotas: Vec::new(),
        clients: vec![
            client_snapshot("node-1/0123456789abcdef"),
            client_snapshot("node-2/0123456789abcdef"),
        ],
    };
    let snapshot = Snapshot {
        resources: (0..100).map(resource).collect(),
        ..Snapshot::default()
    };
    let message = v1::Snapshot::from(&snapshot);
    assert_eq!((message.clients.len(), message.limits.len()), (2, 1));
    let bytes = encode(&snapshot).len();
    assert!(bytes < 200 * 60, "{bytes}");
}

/// A master of an older version does not write the time, and one that reads it anew starts at the
/// next refresh.
#[test]
fn a_snapshot_without_throttled_times_is_read() {
    let read = Snapshot::try_from(good()).unwrap();
    assert_eq!(read.resources[0].clients[0].throttled_for, None);
    let mut message = good();
    message.resources[0].clients[0].throttled_for_ms = Some(0);
    let read = Snapshot::try_from(message).unwrap();
    let since = read.resources[0].clients[0].throttled_for;
    assert_eq!(since, Some(Duration::ZERO), "throttled just now");
}

/// Those of an older build do not tell the runs of a client apart: all leases would count twice.
#[test]
fn books_of_another_form_are_not_read() {
    for form in [0, 1, 3] {
        let message = v1::Snapshot {
            form,
            ..v1::Snapshot::default()
        };
        let error = decode(&message.encode_to_vec()).unwrap_err();
        let want = format!(
            "the lease table cannot be used: form: {form} is not the form that is read here, 2"
        );
        assert_eq!(error.to_string(), want);
    }
}
