//! Buckets that come and go, and groups of them.

use super::*;

#[test]
fn an_idle_bucket_is_abandoned_its_lease_released_and_it_comes_back() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1)]);
    test.answer(|_| granted(10));
    test.act();
    let mut abandoned = Vec::new();
    for second in 1..=70 {
        test.wait(1000);
        if second % 5 == 0 {
            test.report(&[("acme", 5, 0)]);
        }
        test.answer(|_| granted(10));
        let actions = test.act();
        if actions.iter().any(|(_, kind)| *kind == ActionKind::Abandon) {
            abandoned.push(second);
            break;
        }
    }
    assert_eq!(abandoned, [60]);
    assert_eq!(test.state.len(), 0);
    // The proxy may not know yet.
    test.wait(900);
    test.ask();
    assert_eq!(test.released, Vec::<String>::new());
    test.wait(100);
    assert_eq!(test.ask(), []);
    assert_eq!(test.released, ["tenant/acme"]);
    assert!(test.state.scopes.is_empty() && test.state.poll_timeout().is_none());

    test.report(&[("acme", 0, 1)]);
    test.answer(|_| granted(20));
    assert_eq!(test.tokens(), [of("acme", 20, 9)]);
}

#[test]
fn a_bucket_that_comes_back_before_its_release_keeps_its_lease() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1)]);
    test.answer(|_| granted(10));
    test.act();
    test.wait(60_000);
    assert_eq!(test.act(), [("acme".to_owned(), ActionKind::Abandon)]);
    test.wait(500);
    test.report(&[("acme", 0, 1)]);
    test.wait(1000);
    test.answer(|_| granted(10));
    assert_eq!(test.released, Vec::<String>::new());
    assert_eq!(test.tokens(), [of("acme", 10, 9)]);
}

#[test]
fn a_proxy_that_is_not_known_keeps_its_assignment_rather_than_get_less() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 5, 500), ("beta", 5, 500)]);
    let left = |scope: &str| match scope {
        "tenant/acme" => granted(3),
        _ => granted(100),
    };
    test.answer(left);
    assert_eq!(test.tokens(), [of("beta", 100, 9)], "as much as it wants");
    for _ in 0..9 {
        test.wait(1000);
        test.answer(left);
        assert!(test.tokens().iter().all(|(bucket, ..)| bucket == "beta"));
    }
    // By now the lease that it had before is over.
    test.wait(1000);
    test.answer(left);
    assert_eq!(test.tokens(), [of("acme", 3, 9)]);
}

#[test]
fn a_proxy_that_is_known_is_assigned_at_once() {
    let mut test = StreamContext::of(true);
    test.report(&[("acme", 5, 500), ("beta", 5, 500)]);
    test.answer(|scope| match scope {
        "tenant/acme" => granted(3),
        // In learning mode it keeps what it has.
        _ => NO_LEASE,
    });
    assert_eq!(test.tokens(), [of("acme", 3, 9)]);
}

#[test]
fn a_group_bounds_its_members_together() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 5, 5), ("beta", 5, 500), ("gamma", 5, 500)]);
    let in_group = |scope: &str| match scope {
        "group/gold" => granted(41),
        "tenant/gamma" => Granted {
            canonical: Some("group/gold"),
            ..granted(5)
        },
        _ => Granted {
            canonical: Some("group/gold"),
            capacity: Some(Capacity::UNLIMITED),
            ..granted(0)
        },
    };
    test.wait(10_000);
    test.answer_all(in_group);
    assert!(test.state.scopes.contains_key("group/gold"));
    // 1 for acme, which wants no more; the others 20 each, of which gamma may have 5.
    assert_eq!(
        test.tokens(),
        [of("acme", 1, 9), of("beta", 20, 9), of("gamma", 5, 9)]
    );
    // Out of the group again.
    test.wait(2000);
    test.answer(|_| granted(50));
    test.act();
    test.wait(1000);
    test.answer(|_| granted(50));
    assert_eq!(test.released, ["group/gold"]);
}
