//! Snapshots that are refused, with the field and the rule.

use super::*;

/// Damages a good snapshot.
type Change = fn(&mut v1::Snapshot);

/// Each change is refused, with these words.
fn refused(rows: &[(Change, &str)]) {
    assert!(Snapshot::try_from(good()).is_ok());
    for (change, want) in rows {
        let mut message = good();
        change(&mut message);
        assert_eq!(Snapshot::try_from(message).unwrap_err().to_string(), *want);
    }
}

#[test]
fn bad_lists_name_the_field_and_the_rule() {
    refused(&[
        (|b| b.clients[1].clear(), "clients[1].client_id: is empty"),
        (
            |b| b.limits[0].capacity = u64::MAX - 1,
            "limits[0].capacity: 18446744073709551614 millionths are more than the largest \
             capacity, 1e12",
        ),
        (
            |b| b.limits[0].algorithm = 0,
            "limits[0].algorithm: 0 is not an algorithm that is known here",
        ),
        (
            |b| b.limits[0].headroom = 1_000_001,
            "limits[0].headroom: 1000001 millionths are more than the whole",
        ),
        (
            |b| b.limits[0].guaranteed = vec![0; 17],
            "limits[0].guaranteed: has 17 entries, more than 16",
        ),
        (
            |b| b.limits[0].lease_ns = 0,
            "limits[0].limit: lease: must be longer than zero",
        ),
        (
            |b| b.pools[0].limit = 1,
            "pools[0].limit: 1 is not in the list, which has 1 entries",
        ),
        (
            |b| b.drains[0].client = 2,
            "drains[0].client: 2 is not in the list, which has 2 entries",
        ),
    ]);
}

#[test]
fn bad_resources_name_the_field_and_the_rule() {
    refused(&[
        (
            |b| b.resources[0].scope.push('\n'),
            "resources[0].scope: has a control character",
        ),
        (
            |b| b.resources[0].unit = 9,
            "resources[0].unit: 9 is not a unit that is known here",
        ),
        (
            |b| b.resources[0].limit = 7,
            "resources[0].limit: 7 is not in the list, which has 1 entries",
        ),
        (
            |b| b.resources[0].pool = Some(1),
            "resources[0].pool: 1 is not in the list, which has 1 entries",
        ),
        (
            |b| b.resources[0].weight = 0,
            "resources[0].weight: must be at least 1",
        ),
        (
            |b| b.resources[0].clients[0].client = 2,
            "resources[0].clients[0].client: 2 is not in the list, which has 2 entries",
        ),
        (
            |b| {
                (
                    b.resources[0].clients[0].incarnation,
                    b.resources[0].clients[0].term,
                ) = (1, 2)
            },
            "resources[0].clients[0].term: 2 must be 0 beside an incarnation: only a coordinator says \
             its term, instead of one",
        ),
        (
            |b| b.resources[0].clients[0].remaining_ms = 86_400_001,
            "resources[0].clients[0].remaining_ms: 86400001 ms is more than a day",
        ),
        (
            |b| {
                b.resources[0].clients[0]
                    .prior
                    .as_mut()
                    .unwrap()
                    .remaining_ms = u64::MAX
            },
            "resources[0].clients[0].prior.remaining_ms: 18446744073709551615 ms is more than a \
             day",
        ),
        (
            |b| b.resources[0].clients[0].bands[0].subclients = 0,
            "resources[0].clients[0].bands[0].subclients: must be at least 1",
        ),
        (
            |b| {
                let bands = &mut b.resources[0].clients[0].bands;
                bands.push(bands[0]);
            },
            "resources[0].clients[0].bands: names priority 0 twice",
        ),
    ]);
}
