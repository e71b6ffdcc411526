//! Costs that only the ends of streams tell.

use super::*;

#[test]
fn final_costs_are_read_from_metadata_and_unreadable_ones_are_counted() {
    let place = "metadata.filter_metadata.tollgate.cost";
    let rule = r#", "final_cost": {"metadata": ["tollgate", "cost"]}"#;
    let mut proxy = Proxy::new(&rule_with(rule, ""));
    proxy.lease("acme", 100.0);
    let end = |proxy: &mut Proxy, cost: &[u8]| {
        assert_eq!(proxy.of("acme"), Decision::Admit);
        assert!(proxy.worker.remembers(proxy.streams));
        let properties = Rc::clone(&proxy.host().properties);
        properties
            .borrow_mut()
            .insert(place.to_owned(), cost.to_vec());
        proxy.end(proxy.streams);
        properties.borrow_mut().clear();
    };
    for cost in [&b"1"[..], b"0", b"", b"-5", &f64::NAN.to_le_bytes()] {
        end(&mut proxy, cost);
    }
    proxy.tick(TICK);
    assert_eq!(proxy.metric("invalid_costs"), 3);
    // Six are spent, and two have come in: 96 pay, 403 are owed, and one more is needed.
    end(&mut proxy, &500.0_f64.to_le_bytes());
    let retry_at = denial(proxy.of("acme")).retry_at.unwrap();
    let pause = retry_at.saturating_since(proxy.host().now());
    assert_eq!(pause, Duration::from_millis(4040));
}

#[test]
fn a_response_that_costs_nothing_gives_back_what_its_request_took() {
    let rule = r#", "final_cost": {"only": [401, "5xx"], "on_abort": "nothing"}"#;
    let mut proxy = Proxy::new(&rule_with(rule, ""));
    proxy.lease("acme", 100.0);
    let mut taken_by = |statuses: &[i64], count: usize| {
        for status in statuses.iter().cycle().take(count) {
            assert_eq!(proxy.of("acme"), Decision::Admit);
            let properties = Rc::clone(&proxy.host().properties);
            properties
                .borrow_mut()
                .insert("response.code".to_owned(), status.to_le_bytes().to_vec());
            proxy.end(proxy.streams);
            properties.borrow_mut().clear();
        }
        proxy.tick(TICK);
        proxy.metric("tokens_reserved") - proxy.metric("tokens_refunded")
    };
    assert_eq!(
        taken_by(&[200, 302, 404, 0], 200),
        1,
        "the one that was held"
    );
    assert_eq!(taken_by(&[401, 503], 90), 91);
    assert_eq!(proxy.metric("costs_unknown"), 50);
}
