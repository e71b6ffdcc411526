//! Shares of several proxies.

use super::*;

const LIMITS: &str = "- match: 'tenant/*'
  requests: {rate: 100, burst: 20, headroom: 0, refresh: 100ms, min_refresh: 20ms, lease: 20s}
- {match: 'group/*', requests: {rate: 100}}";

/// Interval of reports; a real proxy's is 5 s.
const REPORTS: Duration = Duration::from_millis(250);

/// Reports that `tenant` wants `per_second`, until `enough` is assigned.
async fn until_assigned(
    proxy: &mut Proxy,
    tenant: &str,
    per_second: u64,
    enough: impl Fn(f64) -> bool,
) -> f64 {
    let started = Instant::now();
    let mut last = started;
    loop {
        assert!(started.elapsed() < NEVER, "not assigned enough");
        sleep(REPORTS).await;
        let requests = per_second as f64 * last.elapsed().as_secs_f64();
        last = Instant::now();
        proxy.report("edge", &[(tenant, 5, requests as u64)]).await;
        let rate = proxy.rate(tenant).await;
        if enough(rate) {
            return rate;
        }
    }
}

#[tokio::test]
async fn two_proxies_with_unequal_demand_get_max_min_shares() {
    let coordinator = coordinator(LIMITS).await;
    let mut small = Proxy::named(&coordinator, Some("small"), "edge", &[("acme", 5, 150)]).await;
    let mut large = Proxy::named(&coordinator, Some("large"), "edge", &[("acme", 5, 5000)]).await;
    let (a, b) = tokio::join!(
        until_assigned(&mut small, "acme", 30, |rate| (28.0..=36.0).contains(&rate)),
        until_assigned(&mut large, "acme", 1000, |rate| (64.0..=72.0)
            .contains(&rate)),
    );
    assert!(a + b <= 108.0, "{a} and {b}");
    let (a, b) = tokio::join!(
        until_assigned(&mut small, "acme", 1000, |rate| rate == 50.0),
        until_assigned(&mut large, "acme", 1000, |rate| rate == 50.0),
    );
    assert_eq!((a, b), (50.0, 50.0));
}

/// Without a report of its own: by a nudge, at once.
#[tokio::test]
async fn a_share_that_changes_is_assigned_without_a_report() {
    let slow = "- {match: 'tenant/*', requests: {rate: 100, headroom: 0, refresh: 15s, lease: 20s, \
                min_refresh: 20ms}}";
    let coordinator = coordinator(slow).await;
    let busy = [("acme", 5, 5000)];
    let mut first = Proxy::named(&coordinator, Some("first"), "edge", &busy).await;
    first.until_rate("acme", |rate| rate == 100.0).await;
    let mut second = Proxy::named(&coordinator, Some("second"), "edge", &busy).await;
    first.until_rate("acme", |rate| rate == 50.0).await;
    second.until_rate("acme", |rate| rate == 50.0).await;
}

#[tokio::test]
async fn members_of_a_group_share_its_capacity() {
    let yaml = format!(
        "{DOMAINS}\nlimits: []\ngroups:\n  gold: {{fair_between: clients, requests: {{rate: 100, \
         headroom: 0, min_refresh: 20ms, lease: 20s}}}}\n\
         attach: {{tenants: {{acme: gold, beta: gold}}}}"
    );
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let busy = [("acme", 5, 5000), ("beta", 5, 100)];
    let mut proxy = Proxy::named(&coordinator, Some("one"), "edge", &busy).await;
    let mut rates = BTreeMap::new();
    let until = async {
        while rates.values().sum::<f64>() != 100.0 {
            rates.extend(proxy.rates().await);
        }
        rates.clone()
    };
    let rates = timeout(NEVER, until).await.expect("not shared");
    assert_eq!((rates["acme"], rates["beta"]), (80.0, 20.0));
}
