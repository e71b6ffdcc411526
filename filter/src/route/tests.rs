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
    let said = [
        ("route_metadata", route),
        ("virtual_host_metadata", virtual_host),
    ];
    let said = said.into_iter();
    let said = said.filter_map(|(of, value)| Some((path(of), value?)));
    *host.properties.borrow_mut() = said.collect();
    host
}

#[test]
fn a_route_can_be_left_alone_cost_more_and_choose_its_rules() {
    let said = map(&[
        ("cost", &2.5_f64.to_le_bytes()),
        ("scopes", &list(&["user"])),
        ("later", b"?"),
    ]);
    let mut routes = routes();
    let host = host(Some(said), None);
    let want = Special {
        disabled: false,
        cost: Tokens::from_micros(2_500_000),
        rules: vec![2],
    };
    assert_eq!(routes.at_hand(&host), Ok(&want));
    assert_eq!(routes.at_hand(&host), Ok(&want));
    assert!(host.process.logs.borrow().is_empty());
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
        assert_eq!(routes.at_hand(&host).unwrap().disabled, disabled);
    }
}

#[test]
fn metadata_that_makes_no_sense_is_logged_once_and_counts_as_none() {
    let number = |number: f64| map(&[("cost", &number.to_le_bytes())]);
    let rows = [
        (b"text".to_vec(), "not an object"),
        (map(&[("disabled", b"true")]), "disabled must be"),
        (map(&[("cost", b"5")]), "cost must be"),
        (number(-1.0), "cost must be"),
        (number(f64::NAN), "cost must be"),
        (number(1e7), "cost must be"),
        (map(&[("scopes", b"tenant")]), "\"tenant\" is none"),
        (map(&[("scopes", &list(&["tenant", "x"]))]), "\"x\" is none"),
        (
            map(&[("scopes", &list(&["user", "tenant", "user"]))]),
            "\"user\" is there twice",
        ),
    ];
    for (said, want) in rows {
        let mut routes = routes();
        let host = host(Some(said), None);
        for _ in 0..3 {
            assert_eq!(routes.at_hand(&host).unwrap().rules, [1, 2]);
        }
        let logs = host.process.logs.borrow();
        assert_eq!(logs.len(), 1);
        assert!(logs[0].1.contains(want), "{}: {want}", logs[0].1);
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut routes = routes();
    for n in 0..3 * KNOWN_MAX {
        let said = map(&[("cost", &(n as f64).to_le_bytes())]);
        let cost = routes.at_hand(&host(Some(said), None)).unwrap().cost;
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
