use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use tollgate_core::units::{Capacity, Tokens};

use super::*;

fn unit(wants: f64) -> v1::UnitRequest {
    v1::UnitRequest {
        unit: v1::Unit::Requests.into(),
        sequence: 7,
        has: 1.5,
        wants,
        ..v1::UnitRequest::default()
    }
}

fn band(priority: u32, wants: f64) -> v1::BandRequest {
    v1::BandRequest {
        priority,
        wants,
        subclients: 3,
    }
}

fn scope(name: &str) -> v1::ScopeRequest {
    v1::ScopeRequest {
        scope: name.to_owned(),
        units: vec![unit(10.0)],
    }
}

fn good() -> v1::RefreshRequest {
    v1::RefreshRequest {
        client_id: "envoy-1/f00".to_owned(),
        scopes: vec![scope("tenant/acme"), scope("tenant/umbrella")],
        incarnation: 0xf00,
        term: 0,
    }
}

/// Makes a good call a bad one.
type Change = fn(&mut v1::RefreshRequest);

/// Each change is refused, with these words.
fn refused(rows: &[(Change, &str)]) {
    assert!(Refresh::try_from(good()).is_ok());
    for (change, want) in rows {
        let mut message = good();
        change(&mut message);
        assert_eq!(Refresh::try_from(message).unwrap_err().to_string(), *want);
    }
}

#[test]
fn a_bad_refresh_names_the_field_and_the_rule() {
    refused(&[
        (|r| r.client_id.clear(), "client_id: is empty"),
        (
            |r| r.client_id = "x".repeat(257),
            "client_id: has 257 bytes, more than 256",
        ),
        (
            |r| r.client_id.push('\n'),
            "client_id: has a control character",
        ),
        (
            |r| r.incarnation = 0,
            "incarnation: is 0: a client chooses a random number when it starts, and says it in every call",
        ),
        (
            |r| r.term = 7,
            "term: 7 must be 0 beside an incarnation: only a coordinator says its term, instead of one",
        ),
        (
            |r| (r.incarnation, r.term) = (0, Epoch::MAX.0 + 1),
            "term: 4398046511104 is more than the highest term, 4398046511103",
        ),
        (|r| r.scopes.clear(), "scopes: has no entries"),
        (
            |r| r.scopes = (0..1001).map(|i| scope(&format!("t/{i}"))).collect(),
            "scopes: has 1001 entries, more than 1000",
        ),
        (
            |r| r.scopes[1] = scope("tenant/acme"),
            "scopes[1].scope: names the same as entry 0",
        ),
        (|r| r.scopes[1].scope.clear(), "scopes[1].scope: is empty"),
        (
            |r| r.scopes[0].scope = "t/\u{7f}".to_owned(),
            "scopes[0].scope: has a control character",
        ),
        (
            |r| r.scopes[0].units.clear(),
            "scopes[0].units: has no entries",
        ),
        (
            |r| r.scopes[0].units.push(unit(1.0)),
            "scopes[0].units[1].unit: names the same as entry 0",
        ),
        (
            |r| r.scopes[1].units[0].unit = 0,
            "scopes[1].units[0].unit: 0 is not a unit that is known here",
        ),
        (
            |r| r.scopes[1].units[0].unit = 99,
            "scopes[1].units[0].unit: 99 is not a unit that is known here",
        ),
    ]);
}

#[test]
fn a_bad_unit_names_the_field_and_the_rule() {
    refused(&[
        (
            |r| r.scopes[1].units[0].wants = f64::NAN,
            "scopes[1].units[0].wants: NaN is not a finite number",
        ),
        (
            |r| r.scopes[0].units[0].has = f64::INFINITY,
            "scopes[0].units[0].has: inf is not a finite number",
        ),
        (
            |r| r.scopes[0].units[0].wants = -3.0,
            "scopes[0].units[0].wants: -3 is negative",
        ),
        (
            |r| r.scopes[0].units[0].wants = 1e13,
            "scopes[0].units[0].wants: 10000000000000 is more than the largest capacity, 1e12",
        ),
        (
            |r| r.scopes[0].units[0].priority = 16,
            "scopes[0].units[0].priority: 16 is more than the highest priority, 15",
        ),
        (
            |r| r.scopes[0].units[0].has_remaining_ms = Some(86_400_001),
            "scopes[0].units[0].has_remaining_ms: 86400001 ms is more than a day",
        ),
        (
            |r| r.scopes[0].units[0].bands = vec![band(1, 5.0), band(256, 5.0)],
            "scopes[0].units[0].bands[1].priority: 256 is more than the highest priority, 15",
        ),
        (
            |r| r.scopes[0].units[0].bands = vec![band(1, -5.0)],
            "scopes[0].units[0].bands[0].wants: -5 is negative",
        ),
        (
            |r| r.scopes[0].units[0].bands = vec![band(1, f64::NAN)],
            "scopes[0].units[0].bands[0].wants: NaN is not a finite number",
        ),
        (
            |r| {
                let subclients = 0;
                r.scopes[0].units[0].bands = vec![v1::BandRequest {
                    subclients,
                    ..band(1, 5.0)
                }];
            },
            "scopes[0].units[0].bands[0].subclients: must be at least 1",
        ),
        (
            |r| r.scopes[0].units[0].bands = vec![band(1, 5.0), band(2, 5.0), band(1, 5.0)],
            "scopes[0].units[0].bands[2].priority: names the same as entry 0",
        ),
        (
            |r| r.scopes[0].units[0].bands = vec![band(1, 5.0); 17],
            "scopes[0].units[0].bands: has 17 entries, more than 16",
        ),
    ]);
}

#[test]
fn exactly_a_thousand_scopes_are_accepted() {
    let mut message = good();
    message.scopes = (0..SCOPES_MAX).map(|i| scope(&format!("t/{i}"))).collect();
    assert_eq!(Refresh::try_from(message).unwrap().scopes.len(), SCOPES_MAX);
}

#[test]
fn a_bad_release_names_the_field_and_the_rule() {
    let good = v1::ReleaseRequest {
        client_id: "envoy-1/f00".to_owned(),
        resources: vec![v1::ReleasedResource {
            scope: "tenant/acme".to_owned(),
            unit: v1::Unit::Requests.into(),
            sequence: 9,
        }],
        incarnation: 0,
        term: 7,
    };
    type Change = fn(&mut v1::ReleaseRequest);
    let rows: [(Change, &str); 8] = [
        (
            |r| r.term = u64::MAX,
            "term: 18446744073709551615 is more than the highest term, 4398046511103",
        ),
        (
            |r| r.term = 0,
            "incarnation: is 0: a client chooses a random number when it starts, and says it in every call",
        ),
        (
            |r| r.incarnation = 7,
            "term: 7 must be 0 beside an incarnation: only a coordinator says its term, instead of one",
        ),
        (|r| r.client_id.clear(), "client_id: is empty"),
        (|r| r.resources.clear(), "resources: has no entries"),
        (
            |r| r.resources = vec![r.resources[0].clone(); 1001],
            "resources: has 1001 entries, more than 1000",
        ),
        (
            |r| r.resources[0].scope.push('\t'),
            "resources[0].scope: has a control character",
        ),
        (
            |r| r.resources[0].unit = -4,
            "resources[0].unit: -4 is not a unit that is known here",
        ),
    ];
    let release = Release::try_from(good.clone()).unwrap();
    assert_eq!(v1::ReleaseRequest::from(&release), good);
    for (change, want) in rows {
        let mut message = good.clone();
        change(&mut message);
        assert_eq!(Release::try_from(message).unwrap_err().to_string(), want);
    }
}

/// Doorman's clients have no incarnation, and any node may be asked to take back what they have.
#[test]
fn a_forwarded_release_needs_no_incarnation() {
    let client = ClientRun::only(ClientId::new("doorman").unwrap());
    let id = ResourceId::new("tenant/acme", Unit::Requests).unwrap();
    let resources = vec![(id, u64::MAX)];
    let release = Release { client, resources };
    let message = v1::ReleaseRequest::from(&release);
    assert!(Release::try_from(message.clone()).is_err());
    assert_eq!(message.forwarded(), Ok(release));
}

prop_compose! {
    /// Capacities as clients have them: none, small, unlimited, and at most what a double holds.
    fn capacity()(micros in prop_oneof![Just(0), 0..5_000_000_u64, 0..1_u64 << 51]) -> Capacity {
        Capacity::from_micros(micros)
    }
}

prop_compose! {
    fn demand()(bands in btree_map(0..16_u8, (capacity(), 1..=u32::MAX), 1..17)) -> Demand {
        let bands = bands.into_iter().map(|(priority, (wants, subclients))| Band {
            priority: Priority::new(priority).unwrap(),
            wants,
            subclients: NonZeroU32::new(subclients).unwrap(),
        });
        Demand::try_from_bands(&bands.collect::<Vec<_>>()).unwrap()
    }
}

prop_compose! {
    fn draw()(
        account: u64,
        drawn: u64,
        holds: u64,
        needs: u64,
        first: u64,
        returns: u64,
        owed: u64,
        debt_max: u64,
        refunds: u64,
        refunded_for in 0..1_u64 << 40,
        spent_for in 0..1_u64 << 40,
    ) -> DrawRequest {
        DrawRequest {
            account,
            drawn: Tokens::from_micros(drawn),
            holds: Tokens::from_micros(holds),
            needs: Tokens::from_micros(needs),
            first: Tokens::from_micros(first),
            returns: Tokens::from_micros(returns),
            owed: Tokens::from_micros(owed),
            debt_max: Tokens::from_micros(debt_max),
            refunds: Tokens::from_micros(refunds),
            refunded_for: Duration::from_millis(refunded_for),
            spent_for: Duration::from_millis(spent_for),
        }
    }
}

prop_compose! {
    fn tally()(since: u64, attempts: u64, refused: u64) -> Tally {
        // One of nothing is not sent.
        let counts = Counts { attempts, refused };
        if counts == Counts::default() { Tally::default() } else { Tally { since, counts } }
    }
}

prop_compose! {
    fn ask()(
        sequence: u64,
        has in capacity(),
        remaining_ms in option::of(0..=86_400_000_u64),
        fingerprint: u64,
        claim in prop::sample::select(vec![Claim::Lease, Claim::Several, Claim::AtLeast]),
        demand in demand(),
        draw in option::of(draw()),
        tally in tally(),
    ) -> LeaseRequest {
        let remaining = remaining_ms.map(Duration::from_millis);
        LeaseRequest { sequence, has, remaining, fingerprint, claim, demand, draw, tally }
    }
}

prop_compose! {
    fn refresh()(
        client in "[a-z/]{1,256}",
        run in prop_oneof![
            any::<NonZeroU64>().prop_map(Run::Incarnation),
            (1..=Epoch::MAX.0).prop_map(|term| Run::Term(Epoch(term))),
        ],
        scopes in btree_set("[a-zäöü/0-9]{1,40}", 1..20),
        asks in vec(ask(), 20),
    ) -> Refresh {
        Refresh {
            client: ClientRun { id: ClientId::new(&client).unwrap(), run },
            scopes: scopes
                .iter()
                .zip(asks)
                .map(|(scope, ask)| ScopeRefresh {
                    scope: scope.as_str().into(),
                    asks: vec![(Unit::Requests, ask)],
                })
                .collect(),
        }
    }
}

proptest! {
    #[test]
    fn what_a_client_sends_is_what_a_coordinator_reads(refresh in refresh()) {
        use prost::Message as _;
        let bytes = v1::RefreshRequest::from(&refresh).encode_to_vec();
        let message = v1::RefreshRequest::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(Refresh::try_from(message), Ok(refresh));
    }

    #[test]
    fn no_bytes_crash_the_reader(bytes in vec(any::<u8>(), 0..200)) {
        use prost::Message as _;
        if let Ok(message) = v1::RefreshRequest::decode(bytes.as_slice()) {
            let _ = Refresh::try_from(message);
        }
    }
}
