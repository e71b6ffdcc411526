use super::*;
use crate::fake::{Fake, Process};

/// A map as Envoy hands it over.
fn map(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let length = |length: usize| (length as u32).to_le_bytes();
    let mut bytes = length(entries.len()).to_vec();
    for (name, value) in entries {
        bytes.extend(length(name.len()));
        bytes.extend(length(value.len()));
    }
    for (name, value) in entries {
        bytes.extend([name.as_bytes(), b"\0", value, b"\0"].concat());
    }
    bytes
}

fn list(items: &[&str]) -> Vec<u8> {
    let entries: Vec<(&str, &[u8])> = items.iter().map(|item| (*item, &b""[..])).collect();
    map(&entries)
}

fn routes() -> Routes<u8> {
    Routes::new(vec![("tenant".to_owned(), 1), ("user".to_owned(), 2)])
}

fn host(route: Option<Vec<u8>>, virtual_host: Option<Vec<u8>>) -> Fake {
    let host = Fake::new(&Process::new());
    let path = |of| format!("xds.{of}.filter_metadata.tollgate");
    let properties = [
        ("route_metadata", route),
        ("virtual_host_metadata", virtual_host),
    ];
    let properties = properties.into_iter();
    let properties = properties.filter_map(|(of, value)| Some((path(of), value?)));
    *host.properties.borrow_mut() = properties.collect();
    host
}

#[test]
fn a_route_can_be_left_alone_cost_more_and_choose_its_rules() {
    let exceptions = map(&[
        ("cost", &2.5_f64.to_le_bytes()),
        ("scopes", &list(&["user"])),
        ("later", b"?"),
    ]);
    let mut routes = routes();
    let host = host(Some(exceptions), None);
    let want = Special {
        disabled: false,
        cost: Tokens::from_micros(2_500_000),
        rules: vec![2],
    };
    let none = |error| panic!("{error}");
    assert_eq!(routes.at_hand(&host, none), Ok(&want));
    assert_eq!(routes.at_hand(&host, none), Ok(&want));
}

#[test]
fn the_route_counts_before_its_virtual_host_and_both_before_nothing() {
    let off = || Some(map(&[("disabled", &[1])]));
    let on = || Some(map(&[("disabled", &[0])]));
    let rows = [
        (None, None, false),
        (None, off(), true),
        (on(), off(), false),
        (off(), on(), true),
    ];
    let mut routes = routes();
    for (route, virtual_host, disabled) in rows {
        let host = host(route, virtual_host);
        assert_eq!(routes.at_hand(&host, drop).unwrap().disabled, disabled);
    }
}

/// Settings for `metadata`, and what is ignored of it.
fn read(metadata: Vec<u8>) -> (Special<u8>, Vec<String>) {
    let (mut routes, host) = (routes(), host(Some(metadata), None));
    let mut errors = Vec::new();
    let mut at_hand = || {
        let special = routes.at_hand(&host, |error| errors.push(error.to_string()));
        special.unwrap().clone()
    };
    let special = at_hand();
    assert_eq!(at_hand(), special);
    (special, errors)
}

/// A field that makes no sense, and what is said of it.
fn senseless() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let number = |number: f64| number.to_le_bytes().to_vec();
    vec![
        (
            "disabled",
            b"true".to_vec(),
            "disabled is \"true\", must be true or false",
        ),
        (
            "disabled",
            Vec::new(),
            "disabled is of another type, must be true or false",
        ),
        (
            "cost",
            b"5".to_vec(),
            "cost is \"5\", must be a number from 0 to 1000000",
        ),
        (
            "cost",
            number(-1.0),
            "cost is -1, must be a number from 0 to 1000000",
        ),
        (
            "cost",
            number(f64::NAN),
            "cost is NaN, must be a number from 0 to 1000000",
        ),
        (
            "cost",
            number(1e7),
            "cost is 10000000, must be a number from 0 to 1000000",
        ),
        (
            "scopes",
            b"tenant".to_vec(),
            "scopes is \"tenant\", must be a list of names of rules",
        ),
        ("disable", vec![1], "disable (did you mean disabled?)"),
    ]
}

#[test]
fn a_field_that_makes_no_sense_is_ignored_once_and_the_others_hold() {
    let good: [(&str, Vec<u8>); 3] = [
        ("disabled", vec![1]),
        ("cost", 3.0_f64.to_le_bytes().to_vec()),
        ("scopes", list(&["user"])),
    ];
    for (name, value, want) in senseless() {
        let others = good.iter().filter(|(other, _)| *other != name);
        let mut fields: Vec<(&str, &[u8])> =
            others.map(|(name, value)| (*name, &value[..])).collect();
        fields.insert(1, (name, &value));
        let (special, errors) = read(map(&fields));
        assert_eq!(errors, [want]);
        assert_eq!(special.disabled, name != "disabled", "{want}");
        let cost = if name == "cost" { 1 } else { 3 };
        assert_eq!(special.cost, Tokens::from_whole(cost), "{want}");
        let rules: &[u8] = if name == "scopes" { &[1, 2] } else { &[2] };
        assert_eq!(special.rules, rules, "{want}");
    }
    let (special, errors) = read(b"text".to_vec());
    assert_eq!(special, routes().plain);
    assert_eq!(errors, ["it is not an object"]);
}

#[test]
fn names_of_no_rule_apply_nothing_and_repeated_ones_apply_once() {
    let rows: [(&[&str], &[u8], &[&str]); 5] = [
        (&["user", "tenant", "user"], &[1, 2], &[]),
        (
            &["address", "user"],
            &[2],
            &["scopes has \"address\", which is the name of no rule"],
        ),
        (
            &["tenat"],
            &[],
            &["scopes has \"tenat\", which is the name of no rule (did you mean tenant?)"],
        ),
        (&[], &[], &[]),
        (
            &["", "tenant"],
            &[1],
            &["scopes has \"\", which is the name of no rule"],
        ),
    ];
    for (names, rules, want) in rows {
        let (special, errors) = read(map(&[("scopes", &list(names))]));
        assert_eq!(special.rules, rules, "{names:?}");
        assert_eq!(errors, want, "{names:?}");
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut routes = routes();
    for n in 0..3 * KNOWN_MAX {
        let exceptions = map(&[("cost", &(n as f64).to_le_bytes())]);
        let host = host(Some(exceptions), None);
        let cost = routes.at_hand(&host, drop).unwrap().cost;
        assert_eq!(cost, Tokens::from_whole(n as u64));
        assert!(routes.known.len() <= KNOWN_MAX);
    }
}

#[test]
fn no_bytes_are_a_trap() {
    let whole = map(&[("name", b"value"), ("", b"")]);
    for cut in 0..whole.len() {
        assert_eq!(pairs(&whole[..cut]), None, "cut after {cut}");
    }
    for place in 0..whole.len() {
        for byte in [0, 1, 4, 8, 127, 255] {
            let mut hostile = whole.clone();
            hostile[place] = byte;
            let entries = pairs(&hostile).unwrap_or_default();
            assert!(entries.len() <= 2, "{hostile:?}");
        }
    }
    assert_eq!(pairs(&[255; 4]), None);
    assert_eq!(pairs(&[255; 400]), None);
}
