//! Streams: their first reports, their ends, and what is taken for a stream of the same proxy.

use tonic::metadata::MetadataValue;

use super::*;

const LIMITS: &str = "- {match: tenant/blocked, requests: {rate: 0}}
- {match: tenant/slow, requests: {rate: 0.25}}
- {match: tenant/safe, requests: {rate: 100, safe: 7, lease: 20s}}
- {match: 'tenant/*', requests: {rate: 100, burst: 20, headroom: 0, min_refresh: 20ms, lease: 20s}}";

#[tokio::test]
async fn a_first_report_without_time_is_answered_with_what_envoy_reads() {
    let coordinator = coordinator(LIMITS).await;
    let mut proxy = Proxy::start(&coordinator, "edge", &[("acme", 0, 1)]).await;
    let (strategy, seconds) = proxy.assigned("acme").await;
    let Strategy::TokenBucket(bucket) = strategy else {
        panic!("{strategy:?}")
    };
    assert_eq!((bucket.tokens_per_fill, bucket.max_tokens), (Some(10), 2));
    assert_eq!(bucket.fill_interval.unwrap().seconds, 1);
    assert!((15..20).contains(&seconds), "{seconds}");
    for (tenant, want) in [("blocked", 0.0), ("slow", 0.25)] {
        proxy.report("", &[(tenant, 0, 1)]).await;
        assert_eq!(proxy.rate(tenant).await, want);
    }
    // Each report is answered, also one of no requests.
    for _ in 0..3 {
        proxy.report("edge", &[("acme", 5, 0)]).await;
        assert!(proxy.rate("acme").await >= 1.0);
    }
}

#[tokio::test]
async fn what_has_no_limit_is_allowed() {
    let coordinator = coordinator("- {match: nothing, requests: {rate: 1}}").await;
    let mut proxy = Proxy::start(&coordinator, "edge", &[("acme", 0, 1)]).await;
    assert_eq!(proxy.rate("acme").await, f64::INFINITY);
}

#[tokio::test]
async fn a_domain_must_be_known_and_stay_the_same() {
    let coordinator = coordinator(LIMITS).await;
    let rows = [
        ("", None, Code::InvalidArgument),
        ("other", None, Code::NotFound),
        ("edge", Some("inner"), Code::InvalidArgument),
    ];
    for (first, second, code) in rows {
        let proxy = Proxy::start(&coordinator, first, &[("acme", 0, 1)]).await;
        if let Some(second) = second {
            proxy.report(second, &[("acme", 5, 1)]).await;
        }
        assert_eq!(proxy.end().await.code(), code, "{first} {second:?}");
    }
    let metrics = coordinator.get("/metrics").await.body;
    let invalid = "tollgate_rlqs_ended_streams_total{reason=\"invalid\"} 3";
    assert!(metrics.contains(invalid), "{metrics}");
}

#[tokio::test]
async fn a_name_that_is_no_text_is_refused_and_counted() {
    let coordinator = coordinator(LIMITS).await;
    let mut request = Request::new(tokio_stream::once(report("edge", &[])));
    let name = MetadataValue::try_from(&[0xe9][..]).unwrap();
    request.metadata_mut().insert("tollgate-client", name);
    let mut stub = RateLimitQuotaServiceClient::new(connect(&coordinator));
    let refused = stub.stream_rate_limit_quotas(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let metrics = coordinator.get("/metrics").await.body;
    let invalid = "tollgate_rlqs_ended_streams_total{reason=\"invalid\"} 1";
    assert!(metrics.contains(invalid), "{metrics}");
}

/// Of two proxies behind one address, the one that comes back is given its own lease and not the
/// other's.
#[tokio::test]
async fn a_stream_with_other_buckets_takes_over_nothing() {
    let coordinator = coordinator(LIMITS).await;
    let mut cut = Proxy::start(&coordinator, "edge", &[("acme", 5, 5000)]).await;
    cut.until_rate("acme", |rate| rate == 100.0).await;
    drop(cut);
    let both = [("acme", 5, 5000), ("beta", 5, 5000)];
    let mut other = Proxy::start(&coordinator, "edge", &both).await;
    // It keeps what it has of the tenant whose lease is another's.
    for (tenant, rate) in other.rates().await {
        assert!(tenant == "beta" || rate == 0.0, "{tenant}: {rate}");
    }
    let mut again = Proxy::start(&coordinator, "edge", &[("acme", 5, 5000)]).await;
    // The other one wants half of it.
    assert!(again.rate("acme").await >= 40.0);
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_stream_with_a_reason() {
    let coordinator = coordinator(LIMITS).await;
    let proxy = Proxy::start(&coordinator, "edge", &[]).await;
    let large = "x".repeat(5 << 20);
    proxy.report("edge", &[(&large, 5, 1)]).await;
    assert_eq!(proxy.end().await.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn buckets_without_the_keys_are_ignored_and_the_others_answered() {
    let coordinator = coordinator(LIMITS).await;
    let mut proxy = Proxy::start(&coordinator, "edge", &[]).await;
    let mut message = report("edge", &[("acme", 0, 1)]);
    for id in [
        None,
        Some(wire::BucketId::default()),
        Some(bucket("user", "x")),
    ] {
        let usage = BucketQuotaUsage {
            bucket_id: id,
            ..BucketQuotaUsage::default()
        };
        message.bucket_quota_usages.push(usage);
    }
    proxy.reports.send(message).await.unwrap();
    assert_eq!(proxy.actions().await.unwrap().len(), 1);
    let metrics = coordinator.get("/metrics").await.body;
    for line in [
        "tollgate_rlqs_ignored_buckets_total{reason=\"unmatched\"} 3",
        "tollgate_rlqs_buckets 1",
        "tollgate_rlqs_streams 1",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
}

/// The proxy goes on with its assignment, so its lease is not anyone else's; and it gets it back at
/// once.
#[tokio::test]
async fn a_cut_stream_keeps_its_share_for_the_next_one_of_its_proxy() {
    let coordinator = coordinator(LIMITS).await;
    for name in [None, Some("edge-1")] {
        let tenant = name.unwrap_or("acme");
        let busy = [(tenant, 5, 5000)];
        let mut cut = Proxy::named(&coordinator, name, "edge", &busy).await;
        cut.until_rate(tenant, |rate| rate == 100.0).await;
        drop(cut);
        let mut other = Proxy::named(&coordinator, Some("other"), "edge", &[(tenant, 0, 1)]).await;
        assert_eq!(other.rate(tenant).await, 0.0);
        let mut again = Proxy::named(&coordinator, name, "edge", &busy).await;
        assert!(again.rate(tenant).await >= 90.0);
    }
}

#[tokio::test]
async fn a_restarted_coordinator_learns_and_leaves_proxies_what_they_have() {
    let yaml = format!("{DOMAINS}\nlimits:\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Learning).await;
    let usages = [("acme", 5, 500), ("safe", 0, 1)];
    let mut proxy = Proxy::start(&coordinator, "edge", &usages).await;
    // Of one it is told its safe capacity, of the other nothing.
    let actions = proxy.actions().await.unwrap();
    let of = |action: &BucketAction| action.bucket_id.as_ref().unwrap().bucket["tenant"].clone();
    assert_eq!(actions.iter().map(of).collect::<Vec<_>>(), ["safe"]);
    assert_eq!(proxy.rate("safe").await, 7.0);
}

#[tokio::test]
async fn a_shutdown_ends_the_streams_and_is_not_kept_waiting() {
    let coordinator = coordinator(LIMITS).await;
    let mut proxy = Proxy::start(&coordinator, "edge", &[("acme", 0, 1)]).await;
    proxy.rate("acme").await;
    let (stopped, status) = tokio::join!(coordinator.stop(), proxy.end());
    stopped.unwrap();
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn streams_are_bounded_and_their_places_are_used_again() {
    const MAX: usize = 1024;
    let coordinator = coordinator(LIMITS).await;
    let mut streams = Vec::new();
    let mut channel = connect(&coordinator);
    for i in 0..MAX {
        // A connection has 64 at a time.
        if i % 60 == 0 {
            channel = connect(&coordinator);
        }
        let stream = Proxy::over(channel.clone(), None, "edge", &[]).await;
        streams.push(stream.unwrap());
    }
    let refused = Proxy::over(connect(&coordinator), None, "edge", &[]).await;
    let status = refused.err().expect("one stream too many");
    assert_eq!(status.code(), Code::ResourceExhausted);
    streams.pop();
    let free = async {
        while Proxy::over(connect(&coordinator), None, "edge", &[])
            .await
            .is_err()
        {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(NEVER, free).await.expect("no place is free");
}

/// Sums a metric over its labels.
async fn sum(coordinator: &Coordinator, name: &str) -> u64 {
    let metrics = coordinator.get("/metrics").await.body;
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    values.sum()
}

/// A message to a proxy is decided on when it can be sent. Until then one message waits, and the memory of
/// it is counted.
#[tokio::test]
async fn a_stream_that_is_not_read_holds_one_message() {
    const MESSAGE_MAX: u64 = 64 << 10;
    let yaml = format!("connections: {{response_timeout: 60s}}\n{DOMAINS}\nlimits:\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let endpoint = Endpoint::try_from(format!("http://{}", coordinator.grpc)).unwrap();
    // Not even a byte may be sent.
    let channel = endpoint.initial_stream_window_size(0).connect_lazy();
    let tenants: Vec<_> = (0..1000).map(|i| format!("{i:0>200}")).collect();
    let usages: Vec<_> = tenants.iter().map(|name| (name.as_str(), 0, 1)).collect();
    let unread = Proxy::over(channel, None, "edge", &usages).await.unwrap();
    let assigned = async {
        while sum(&coordinator, "tollgate_rlqs_actions_total").await == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(NEVER, assigned).await.expect("nothing is assigned");
    let mut other = Proxy::start(&coordinator, "edge", &[("acme", 0, 1)]).await;
    for _ in 0..5 {
        unread.report("edge", &usages).await;
        other.report("edge", &[("acme", 5, 1)]).await;
        other.rate("acme").await;
    }
    let actions = sum(&coordinator, "tollgate_rlqs_actions_total").await;
    assert!(actions < 200, "{actions} actions");
    let held = sum(&coordinator, "tollgate_call_memory_bytes").await;
    assert!(held < MESSAGE_MAX, "{held} bytes");
}
