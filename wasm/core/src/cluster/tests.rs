use std::collections::BTreeMap;
use std::format;
use std::string::String;

use proptest::prelude::*;

use super::*;

fn count(shards: u16) -> NonZeroU16 {
    NonZeroU16::new(shards).unwrap()
}

/// Node that is assigned each shard, by name.
fn by_name<'a>(shards: u16, members: &[&'a str]) -> Vec<Option<&'a str>> {
    let assigned = assign(count(shards), members);
    let name = |member: Option<usize>| member.map(|index| members[index]);
    assigned.into_iter().map(name).collect()
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let names = prop::collection::btree_set("[a-z0-9.-]{1,12}", 1..12);
    names.prop_map(|names| names.into_iter().collect())
}

#[test]
fn a_scope_has_the_same_shard_in_every_version() {
    // Another hash would move resources between nodes of two versions.
    let rows = [
        ("tenant/acme", 3, 1),
        ("tenant/bolt", 3, 1),
        ("group/gold", 3, 1),
        ("namespace/acme/orders", 64, 52),
        ("", 64, 27),
        ("anything", 1, 0),
    ];
    for (key, shards, want) in rows {
        assert_eq!(shard_of(key, count(shards)), ShardId(want), "{key}");
    }
}

#[test]
fn shards_have_about_as_many_scopes_each() {
    for shards in [2, 3, 5, 64] {
        let mut scopes = BTreeMap::<ShardId, usize>::new();
        for tenant in 0..20_000 {
            let shard = shard_of(&format!("tenant/t-{tenant}"), count(shards));
            *scopes.entry(shard).or_default() += 1;
        }
        let fair = 20_000 / usize::from(shards);
        assert_eq!(scopes.len(), usize::from(shards));
        for (shard, scopes) in scopes {
            assert!(scopes.abs_diff(fair) * 5 <= fair, "{shard} has {scopes}");
        }
    }
}

#[test]
fn without_members_nobody_is_assigned() {
    assert_eq!(assign(count(3), &[]), [None, None, None]);
}

#[test]
fn three_shards_on_three_members_are_one_each() {
    let mut assigned = by_name(3, &["a", "b", "c"]);
    assigned.sort_unstable();
    assert_eq!(assigned, [Some("a"), Some("b"), Some("c")]);
}

/// Dealing out anew would move nearly all.
#[test]
fn a_member_that_leaves_moves_little_besides_its_own() {
    let (mut own, mut moved) = (0, 0);
    for (size, shards) in (2..=9).flat_map(|size| [3, 5, 16, 64].map(|shards| (size, shards))) {
        for fleet in 0..20 {
            let names: Vec<String> = (0..size).map(|n| format!("fleet-{fleet}-{n}")).collect();
            let members: Vec<&str> = names.iter().map(String::as_str).collect();
            let (leaves, rest) = members.split_first().unwrap();
            let after = by_name(shards, rest);
            for (old, new) in by_name(shards, &members).into_iter().zip(after) {
                own += usize::from(old == Some(leaves));
                moved += usize::from(old != new);
            }
        }
    }
    assert!(moved * 2 <= own * 3, "{moved} moved, of which {own} had to");
}

proptest! {
    #[test]
    fn everything_is_assigned_and_nobody_has_more_than_its_part(
        names in names(), shards in 1..=SHARDS_MAX,
    ) {
        let members: Vec<&str> = names.iter().map(String::as_str).collect();
        let assigned = assign(count(shards), &members);
        prop_assert_eq!(assigned.len(), usize::from(shards));
        let most = usize::from(shards).div_ceil(members.len());
        for (member, name) in members.iter().enumerate() {
            let has = assigned.iter().filter(|one| **one == Some(member)).count();
            prop_assert!(has <= most, "{} has {}, more than {}", name, has, most);
        }
        prop_assert!(assigned.iter().all(Option::is_some));
    }

    #[test]
    fn the_order_of_members_does_not_matter(
        names in names().prop_flat_map(|names| (Just(names.clone()), Just(names).prop_shuffle())),
        shards in 1..=SHARDS_MAX,
    ) {
        let (sorted, shuffled) = &names;
        let sorted: Vec<&str> = sorted.iter().map(String::as_str).collect();
        let shuffled: Vec<&str> = shuffled.iter().map(String::as_str).collect();
        prop_assert_eq!(by_name(shards, &sorted), by_name(shards, &shuffled));
    }
}
