//! The corpus, and mutations of it that are the same in each run.

use super::*;
use core::time::Duration;
use tollgate_core::client::{LeaderLock, Policy, ScopeState, WorkerUsage};
use tollgate_core::lease::{Answer, Epoch, LeaseTerms, Origin, UnitAnswer};
use tollgate_core::units::{Capacity, Instant, Tokens};

use tollgate_engine::codec::{DirtyQueue, Heartbeat, Levels};

/// Mutations of a corpus.
const ROUNDS: usize = 2000;
/// Numbers and texts that parsers trip over.
const AWKWARD: [&[u8]; 14] = [
    b"\0",
    b"%",
    b"%2",
    b"%00",
    b"//",
    b"[",
    b"-1",
    b"1e400",
    b"18446744073709551616",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\xf4\x8f\xbf\xbf",
    b"{{{{{{{{{{{{{{{{",
    b"\"\\ud800\"",
];
/// A slot as version 1 wrote it: a filter that cannot read it any more loses all leases when it is
/// loaded into a running Envoy.
const SLOT_V1: &[u8] = include_bytes!("../../fuzz/corpus/records/slot-v1");

struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// Shows the input when the target panics.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was b\"{}\"", self.0.escape_ascii());
        }
    }
}

fn feed(target: fn(&[u8]), corpus: &[&[u8]]) {
    let feed = |bytes: &[u8]| {
        let shown = Shown(bytes);
        target(shown.0);
    };
    for seed in corpus {
        (0..=seed.len().min(300)).for_each(|len| feed(&seed[..len]));
        feed(seed);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..ROUNDS {
        let mut bytes = corpus[random.below(corpus.len())].to_vec();
        for _ in 0..=random.below(6) {
            mutate(&mut bytes, corpus, &mut random);
        }
        feed(&bytes);
    }
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[&[u8]], random: &mut Random) {
    let from = random.below(bytes.len() + 1);
    let to = from + random.below((bytes.len() - from).min(16) + 1);
    let other = corpus[random.below(corpus.len())];
    let part = random.below(other.len() + 1);
    let with: Vec<u8> = match random.below(6) {
        0 => vec![random.below(256) as u8],
        1 => AWKWARD[random.below(AWKWARD.len())].to_vec(),
        2 => bytes[from..to].repeat(2),
        3 => Vec::new(),
        4 => other[part..].iter().take(64).copied().collect(),
        _ => (0..random.below(20))
            .map(|_| random.below(256) as u8)
            .collect(),
    };
    bytes.splice(from..to, with);
}

#[test]
fn any_plugin_configuration_is_refused_or_can_be_used() {
    feed(
        configuration,
        &[
            EVERY_KEY.as_bytes(),
            include_bytes!("../../fuzz/corpus/configuration/every-field"),
            include_bytes!("../../fuzz/corpus/configuration/address"),
            br#"{"coordinator": "c", "scopes": [{"name": "a", "key": {"constant": "x"}}]}"#,
        ],
    );
}

#[test]
fn any_request_has_a_printable_key_of_bounded_length_or_none() {
    feed(
        request,
        &[
            include_bytes!("../../fuzz/corpus/request/usual"),
            include_bytes!("../../fuzz/corpus/request/escapes"),
            include_bytes!("../../fuzz/corpus/request/route-metadata"),
        ],
    );
}

#[test]
fn any_nudge_is_borne_and_there_is_one_stream_at_most() {
    feed(nudges, &[include_bytes!("../../fuzz/corpus/nudges/named")]);
}

#[test]
fn any_record_in_shared_data_is_borne() {
    let slot = part(4, &codec::encode_slot("tenant/acme", &scope_state()));
    let gauge = part(5, SLOT_V1);
    let process = codec::ProcessRecord {
        random: 3,
        slots: 4,
    };
    let at = Instant::from_nanos(3_600_000_000_000);
    let lock = LeaderLock {
        owner: 9,
        heartbeat: at,
    };
    let heartbeat = |worker| Heartbeat {
        worker,
        at,
        levels: Levels::default(),
    };
    let dirty = DirtyQueue {
        slots: vec![0, 3, 4_000_000_000],
        spilled: true,
    };
    let workers = codec::encode_workers(&[heartbeat(7), heartbeat(8)]);
    let small = [
        part(0, &process.encode()),
        part(1, &lock.encode()),
        part(2, &workers),
        part(3, &dirty.encode()),
    ];
    let all = [slot.clone(), small.concat(), gauge.clone()].concat();
    let mut corpus: Vec<&[u8]> = vec![SLOT_V1, &slot, &gauge, &all];
    corpus.extend(small.iter().map(Vec::as_slice));
    feed(records, &corpus);
}

#[test]
fn any_answer_of_a_coordinator_is_borne() {
    feed(
        answers,
        &[
            include_bytes!("../../fuzz/corpus/answers/numbers"),
            include_bytes!("../../fuzz/corpus/answers/bytes"),
        ],
    );
}

#[test]
fn a_slot_of_version_1_is_read() {
    let now = Instant::from_nanos(3_600_000_000_000);
    let (scope, slot) = codec::decode_slot(SLOT_V1).unwrap();
    let expected = scope_state();
    assert_eq!(scope, "tenant/acme");
    let of_requests = |state: &ScopeState| {
        let limiter = &state.requests;
        (
            limiter.level(now),
            limiter.has(now),
            limiter.due(),
            limiter.wants(),
        )
    };
    // Only the account of draws and the counts are not as old as the record.
    assert_eq!(of_requests(&slot), of_requests(&expected));
    assert_eq!(slot.request_bytes, expected.request_bytes);
    assert_eq!(slot.response_bytes, expected.response_bytes);
    let in_flight = |state: &ScopeState| {
        let limiter = state.concurrency.as_ref()?;
        Some((
            limiter.held(),
            limiter.wants(),
            limiter.has(now),
            limiter.due(),
        ))
    };
    assert_eq!(in_flight(&slot), in_flight(&expected));
}

/// A record for [`records`], with its place, its length, and what happens after it.
fn part(place: u8, bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u16).to_le_bytes();
    [&[place], &len[..], bytes, &[0, 1, 30, 0]].concat()
}

/// State of a scope in mid-lease, with each unit.
fn scope_state() -> ScopeState {
    let now = Instant::from_nanos(3_600_000_000_000);
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(now, &policy);
    let group = "group/gold".into();
    scope_state.set_terms(now, &policy, &Unit::ALL, Some(&group));
    scope_state.requests.count(now, 3);
    scope_state.requests.draw(now, &policy, Tokens::ONE, 2);
    let usage = WorkerUsage {
        worker: 7,
        in_use: 2,
        peak: 3,
        admitted: 5,
        refused: 1,
        ..WorkerUsage::default()
    };
    scope_state
        .concurrency
        .as_mut()
        .unwrap()
        .report(now, &usage);
    for (unit, todo) in scope_state.ask(now, &policy) {
        let tollgate_core::client::LeaseMessage::Refresh(ask) = todo else {
            continue;
        };
        let capacity = Capacity::from_whole(100);
        let answer = Answer {
            lease: Some(LeaseTerms {
                capacity,
                duration: Duration::from_secs(10),
                burst: Tokens::from_whole(20),
                fingerprint: 77,
            }),
            refresh_interval: Duration::from_secs(1),
            safe: Some(Capacity::from_whole(5)),
            capacity,
            period: None,
            burst: None,
            draw: None,
        };
        let answer = UnitAnswer {
            unit,
            sequence: ask.sequence,
            answer,
        };
        scope_state.handle_answer(now, &policy, Origin::alone(Epoch(3)), &answer);
    }
    scope_state
}
