use std::future::pending;
use std::num::NonZeroU16;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tollgate_client::{
    ClientRun, Refresh, Refreshed, Release, ResourceId, Rule, Settings, Transport,
};
use tollgate_config::Config;
use tollgate_core::units::{Capacity, Rate};

use super::*;

/// Transport to a coordinator that never answers.
struct Silent;

impl Transport for Silent {
    async fn refresh(&self, _: Refresh) -> Result<Refreshed, String> {
        pending().await
    }

    async fn release(&self, _: Release) {}

    async fn watch(&self, _: ClientRun, _: mpsc::Sender<Vec<ResourceId>>) -> u32 {
        pending().await
    }
}

fn level(capacity: Option<Capacity>, left: u64) -> ScopeLevel {
    ScopeLevel {
        capacity,
        period: None,
        rate: Rate::from_whole(25),
        is_leased: capacity.is_some(),
        left: Tokens::from_whole(left),
        next_in: Some(Duration::from_millis(40)),
        full_in: Some(Duration::from_secs(1)),
        quota: None,
    }
}

#[test]
fn a_quota_is_shown_where_it_refuses_or_stands_alone() {
    let day = Duration::from_secs(86_400);
    let of = |capacity, left| {
        let quota = QuotaLevel {
            amount: Tokens::from_whole(1000),
            left: Tokens::from_whole(left),
            length: day,
            resets_in: Duration::from_secs(60),
        };
        let verdict = verdict(&ScopeLevel {
            quota: Some(quota),
            ..level(Some(Capacity::from_whole(capacity)), left)
        });
        (verdict.limit.unwrap(), verdict.remaining, verdict.reset)
    };
    let quota = CurrentLimit::per_window(1000, day);
    let resets_in = Some(Duration::from_secs(60));
    assert_eq!(of(1000, 7), (quota, 7, resets_in), "without a rate");
    assert_eq!(of(100, 0), (quota, 0, resets_in), "used up");
    let rate = CurrentLimit::per_second(100_000_000, None);
    assert_eq!(of(100, 7), (rate, 7, Some(Duration::from_secs(1))));
}

#[test]
fn the_strictest_of_a_scopes_limits_decides() {
    let hundred = Some(Capacity::from_whole(100));
    let unlimited = Some(Capacity::UNLIMITED);
    let of = |levels: &[ScopeLevel]| {
        let verdict = verdict_of(levels).unwrap();
        let limit = verdict.limit.map(CurrentLimit::requests);
        (verdict.is_over, limit, verdict.remaining)
    };
    assert_eq!(of(&[level(hundred, 7)]), (false, Some(100), 7));
    assert_eq!(of(&[level(hundred, 0)]), (true, Some(100), 0));
    assert_eq!(of(&[level(None, 7)]), (false, Some(25), 7), "a fallback");
    assert_eq!(of(&[level(unlimited, 0)]), (false, None, u64::MAX));
    let both = [level(unlimited, 0), level(hundred, 3)];
    assert_eq!(of(&both), (false, Some(100), 3));
    let both = [level(hundred, 9), level(hundred, 3)];
    assert_eq!(of(&both), (false, Some(100), 3));
    assert_eq!(verdict_of(&[]), None);
}

#[test]
fn a_share_is_the_smallest_part_that_is_leased() {
    let [hundred, thousand] = [100, 1000].map(|n| level(Some(Capacity::from_whole(n)), 1));
    let unlimited = level(Some(Capacity::UNLIMITED), 1);
    let quarter = Share::of(25_000_000, 100_000_000);
    assert_eq!(share(&[hundred], 3), quarter);
    assert_eq!(share(&[hundred, unlimited], 3), quarter);
    let fortieth = Share::of(25_000_000, 1_000_000_000);
    assert_eq!(share(&[hundred, thousand], 3), fortieth);
    let third = Share::of(1, 3);
    assert_eq!(share(&[level(None, 1), unlimited], 3), third);
    for nodes in [0, 1] {
        assert_eq!(share(&[hundred], nodes), Share::WHOLE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_caller_leaves_while_it_waits_is_charged_to_none() {
    const WAIT: Duration = Duration::from_millis(15);
    let rule = Rule::new("tenant").first_lease_wait(WAIT);
    let settings = Settings::new("http://nowhere").rule(rule.safe_capacity(10.0));
    let client = Client::start_with(&settings, Silent).unwrap();
    let (_masters, masters) = watch::channel(Arc::new(Masters::none(NonZeroU16::MIN)));
    let limiter = Limiter::new(Some(client.clone()), masters, Clock::start());
    let config = "limits: []\nrls: {domains: {edge: {scopes: [{scope: 'tenant/{tenant}'}]}}}";
    let config = Config::parse(config).unwrap();
    let rule = &config.rls["edge"].rules[0];
    let of = |tenant: &str, hits| {
        Some(DescriptorAsk {
            rule,
            scope: format!("tenant/{tenant}"),
            hits: Hits::Take(hits),
            limit: Some(OwnLimit {
                requests: 8,
                window: Duration::from_secs(3600),
            }),
        })
    };
    let ask = |descriptors| Ask {
        domain: None,
        descriptors,
    };
    let left = |verdicts: Vec<Option<Verdict>>| verdicts[0].unwrap().remaining;
    // From now on the scope has its safe capacity, and waits no more.
    assert_eq!(left(limiter.decide(&ask(vec![of("acme", 1)])).await), 7);
    for cold in ["a", "b", "c"] {
        let waiting = ask(vec![of("acme", 5), of(cold, 1)]);
        let decided = timeout(WAIT / 3, limiter.decide(&waiting)).await;
        assert!(decided.is_err(), "{decided:?}");
    }
    assert_eq!(left(limiter.decide(&ask(vec![of("acme", 5)])).await), 2);
    // All that wait do so at the same time.
    let begun = tokio::time::Instant::now();
    let tenants = ["d", "e", "f", "g", "h"].map(|cold| of(cold, 1));
    limiter.decide(&ask(tenants.into())).await;
    assert!(begun.elapsed() < 2 * WAIT, "{:?}", begun.elapsed());
}
