//! Requests at their limits.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_client::{AcquireError, Charge, Client, Permit, Rule, Settings};

use crate::lender::Lender;

const ACME: &str = "tenant/acme";

/// Settings with one rule.
fn settings(rule: Rule) -> Settings {
    Settings::new("http://unused").rule(rule)
}

fn client(rule: Rule, lender: &Lender) -> Client {
    Client::start_with(&settings(rule), lender.clone()).unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Number of `tries` that are admitted at once.
fn admitted(client: &Client, scope: &str, tries: u32) -> usize {
    let charge = Charge::of(scope);
    let tries = (0..tries).filter_map(|_| client.try_admit(&charge).ok());
    tries.count()
}

async fn leased(rule: Rule, lender: &Lender) -> Client {
    let client = client(rule, lender);
    drop(client.acquire(ACME, 1).await.unwrap());
    client
}

fn refused(result: Result<Permit, AcquireError>) -> tollgate_client::Refused {
    match result {
        Err(AcquireError::Refused(refused)) => *refused,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_lent_passes_and_no_more() {
    let lender = Lender::new(100, None);
    let client = leased(Rule::new("tenant"), &lender).await;
    assert_eq!(admitted(&client, ACME, 300), 99);
    let refused = refused(client.acquire(ACME, 1).await);
    assert_eq!(refused.reason(), "tenant/requests");
    assert_eq!((refused.rule(), refused.is_reduced()), ("tenant", false));
    let pause = refused.retry_after().unwrap();
    assert!(pause > ms(5) && pause <= ms(10), "{pause:?}");
    sleep(ms(500)).await;
    assert_eq!(admitted(&client, ACME, 300), 50);
    assert_eq!(admitted(&client, "tenant/other", 1), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_may_wait_for_its_turn() {
    let lender = Lender::new(100, None);
    let client = leased(Rule::new("tenant").max_wait(ms(1000)), &lender).await;
    assert_eq!(admitted(&client, ACME, 300), 99);
    let since = Instant::now();
    let permit = client.acquire(ACME, 20).await.unwrap();
    let waited = since.elapsed();
    assert!(waited > ms(150) && waited < ms(260), "{waited:?}");
    assert!(permit.waited() <= waited && permit.waited() > ms(150));
    let short = Charge::of(ACME).cost(50).max_wait(ms(100));
    let since = Instant::now();
    refused(client.admit(&short).await);
    assert!(since.elapsed() <= ms(100));
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_its_queue_costs_nothing() {
    let lender = Lender::new(100, None);
    let client = leased(Rule::new("tenant").max_wait(ms(2000)), &lender).await;
    assert_eq!(admitted(&client, ACME, 300), 99);
    let left = tokio::time::timeout(ms(300), client.acquire(ACME, 90)).await;
    assert!(left.is_err());
    let since = Instant::now();
    client.acquire(ACME, 30).await.unwrap().settle(30);
    assert!(since.elapsed() < ms(100), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_dropped_makes_room() {
    let lender = Lender::new(1000, Some(2));
    let client = leased(Rule::new("tenant"), &lender).await;
    sleep(ms(100)).await;
    let first = client.acquire(ACME, 1).await.unwrap();
    let second = client.acquire(ACME, 1).await.unwrap();
    let refused = refused(client.acquire(ACME, 1).await);
    assert_eq!(refused.reason(), "tenant/concurrency");
    drop(first);
    let third = client.acquire(ACME, 1).await.unwrap();
    drop((second, third));
    assert_eq!(admitted(&client, ACME, 2), 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_coordinator_the_safe_capacity_holds() {
    let lender = Lender::new(100, None);
    lender.set_away(true);
    let client = client(Rule::new("tenant").safe_capacity(5.0), &lender);
    let since = Instant::now();
    drop(client.acquire(ACME, 1).await.unwrap());
    assert!(since.elapsed() < ms(80), "{:?}", since.elapsed());
    let few = admitted(&client, ACME, 100);
    assert!(few < 10, "{few}");
    assert!(refused(client.acquire(ACME, 1).await).is_reduced());
    lender.set_away(false);
    for _ in 0..10 {
        sleep(ms(100)).await;
        admitted(&client, ACME, 100);
    }
    sleep(ms(500)).await;
    assert_eq!(admitted(&client, ACME, 300), 50);
}

#[tokio::test(start_paused = true)]
async fn what_is_named_is_asked_for_at_once() {
    let lender = Lender::new(100, None);
    let client = leased(Rule::new("tenant"), &lender).await;
    sleep(ms(100)).await;
    let before = lender.refreshes();
    lender.set_rate(500);
    lender.nudge(ACME).await;
    sleep(ms(20)).await;
    assert_eq!(lender.refreshes(), before + 1);
    admitted(&client, ACME, 1000);
    sleep(ms(200)).await;
    let more = admitted(&client, ACME, 1000);
    assert!((95..=105).contains(&more), "{more}");
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_is_known_at_the_end_is_charged_then() {
    let lender = Lender::new(100, None);
    let client = leased(Rule::new("tenant").final_cost(), &lender).await;
    let permit = client.acquire(ACME, 1).await.unwrap();
    permit.settle(149);
    let refused = refused(client.acquire(ACME, 1).await);
    let pause = refused.retry_after().unwrap();
    assert!(pause > ms(450) && pause < ms(600), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn all_scopes_are_charged_or_none() {
    let lender = Lender::new(100, None);
    let settings = settings(Rule::new("tenant")).rule(Rule::new("user"));
    let client = Client::start_with(&settings, lender.clone()).unwrap();
    let both = Charge::of(ACME).and("user/7");
    drop(client.admit(&both).await.unwrap());
    assert_eq!(admitted(&client, "user/7", 300), 99);
    for _ in 0..50 {
        assert_eq!(refused(client.try_admit(&both)).reason(), "user/requests");
    }
    assert_eq!(admitted(&client, ACME, 300), 99);
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_is_none_is_an_error() {
    let client = client(Rule::new("tenant"), &Lender::new(100, None));
    let long = format!("tenant/{}", "x".repeat(201));
    for (scope, rule) in [
        ("acme", "a rule's name, a slash and a key"),
        ("group/acme", "no rule of that name"),
        ("tenant/", "1 to 200 bytes"),
        ("tenant/a\nb", "none of control"),
        (long.as_str(), "1 to 200 bytes"),
    ] {
        let error = client.acquire(scope, 1).await.unwrap_err();
        assert!(error.to_string().contains(rule), "{scope}: {error}");
        assert_eq!(error.refused(), None);
    }
    let many = (0..16).fold(Charge::of(ACME), |many, i| many.and(format!("tenant/{i}")));
    let error = client.admit(&many).await.unwrap_err();
    assert!(matches!(error, AcquireError::TooManyScopes(17)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn permits_tell_how_the_limits_stand_if_asked() {
    let lender = Lender::new(100, None);
    let settings = settings(Rule::new("tenant")).report_limits(true);
    let client = Client::start_with(&settings, lender.clone()).unwrap();
    let permit = client.acquire(ACME, 10).await.unwrap();
    let [(rule, status)] = permit.limits() else {
        panic!("{:?}", permit.limits())
    };
    assert_eq!((rule.as_str(), status.limit), ("tenant", 100_000_000));
    assert_eq!(status.left.whole(), 90);
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_not_used_are_given_back_and_the_task_ends() {
    let lender = Lender::new(100, None);
    let client = leased(Rule::new("tenant"), &lender).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(lender.releases(), 1);
    drop(client.acquire(ACME, 1).await.unwrap());
    let refreshes = lender.refreshes();
    drop(client);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lender.refreshes(), refreshes);
}
