//! Limits of the configuration: values that are refused, and values that are taken.

use super::*;

#[test]
fn bad_amounts_name_line_field_and_rule() {
    let rows = [
        ("{}", "3:13: limits[0].requests.rate: is missing"),
        (
            "",
            "2:3: limits[0]: names no unit; one of requests, request_bytes, response_bytes and \
             concurrency is needed",
        ),
        (
            "7",
            "3:13: limits[0].requests: `7` is not a mapping; write `requests: {rate: 7}`",
        ),
        (
            "{rate: [5]}",
            "3:20: limits[0].requests.rate: is a list, not a single value",
        ),
        (
            "{rate: -5}",
            "3:20: limits[0].requests.rate: -5 is negative",
        ),
        (
            "{rate: nan}",
            "3:20: limits[0].requests.rate: nan is not a finite number",
        ),
        (
            "{rate: .nan}",
            "3:20: limits[0].requests.rate: \".nan\" is neither a number nor `unlimited`",
        ),
        (
            "{rate: Unlimited}",
            "3:20: limits[0].requests.rate: \"Unlimited\" is neither a number nor `unlimited`",
        ),
        (
            "{rate: 1e13}",
            "3:20: limits[0].requests.rate: 1e13 is more than the largest capacity, 1e12",
        ),
        (
            "{rate: 1e-9}",
            "3:20: limits[0].requests.rate: 1e-9 is less than the smallest capacity, 0.000001; 0 \
             blocks",
        ),
        (
            "{rate: 5, burst: unlimited}",
            "3:30: limits[0].requests.burst: \"unlimited\" is not a number",
        ),
        (
            "{rate: 5, safe: -1}",
            "3:29: limits[0].requests.safe: -1 is negative",
        ),
        (
            "{rate: 5, safe: 6}",
            "3:29: limits[0].requests.safe: 6 is more than the capacity, 5",
        ),
        (
            "{rate: 5, safe: half}",
            "3:29: limits[0].requests.safe: \"half\" is neither a number nor `dynamic`",
        ),
        (
            "{rate: 5MiB}",
            "3:20: limits[0].requests.rate: \"5MiB\" is a number of bytes, but requests are counted \
             here",
        ),
        (
            "{rate: 5x}",
            "3:20: limits[0].requests.rate: \"5x\" ends in \"x\", which is none of k, M, G, T, Ki, Mi, \
             Gi, Ti",
        ),
    ];
    for (requests, want) in rows {
        assert_eq!(limit_errors(requests), want, "{requests}");
    }
}

#[test]
fn bad_quotas_name_line_field_and_rule() {
    let rows = [
        (
            "{quota: {amount: 0.5, per: day}}",
            "3:30: limits[0].requests.quota.amount: \"0.5\" is less than one",
        ),
        (
            "{quota: {per: fortnight}}",
            "3:13: limits[0].requests.quota.amount: is missing\n\
             3:27: limits[0].requests.quota.per: \"fortnight\" is none of minute, hour, day, week, month, \
             year, and no duration like 24h",
        ),
        (
            "{quota: {amount: 5, per: 10s}}",
            "3:38: limits[0].requests.quota.per: \"10s\" is not between 1m and 366d",
        ),
        (
            "{quota: {amount: 5, per: day, timezone: Berlin}}",
            "3:53: limits[0].requests.quota.timezone: \"Berlin\" is no time zone, such as Europe/Berlin",
        ),
        (
            "{quota: {amount: 5, per: month, anchor: 32}}",
            "3:53: limits[0].requests.quota.anchor: \"32\" is not a day of a month, 1 to 31",
        ),
        (
            "{quota: {amount: 5, per: day, anchor: 2}}",
            "3:51: limits[0].requests.quota.anchor: is the day on which a month begins",
        ),
        (
            "{quota: {amount: 5, per: 24h, timezone: UTC}}",
            "3:53: limits[0].requests.quota.timezone: goes with a period of the calendar",
        ),
        (
            "{quota: [{amount: 5, per: day}, {amount: 6, per: day}]}",
            "3:13: limits[0].requests.quota: \"day\" is there twice: the smaller amount would be enough",
        ),
        (
            "{rate: 5, algorithm: max_rate, quota: {amount: 5, per: day}}",
            "3:13: limits[0].requests.quota: goes with algorithm fair_share alone, not with max_rate",
        ),
        (
            "{quota: {amount: 5, per: day}, safe: dynamic}",
            "3:50: limits[0].requests.safe: is a part of a rate, and there is none",
        ),
    ];
    for (requests, want) in rows {
        assert_eq!(limit_errors(requests), want, "{requests}");
    }
}

#[test]
fn a_quota_bounds_also_without_a_rate_and_sets_the_safe_capacity() {
    let rows = [
        ("{quota: {amount: 86400, per: day}}", 86_400, 1),
        (
            "{rate: unlimited, quota: {amount: 86400, per: day}}",
            86_400,
            1,
        ),
        ("{rate: 100, quota: {amount: 864000, per: day}}", 100, 10),
        ("{rate: 3, quota: {amount: 864000, per: day}}", 3, 3),
    ];
    for (requests, capacity, safe) in rows {
        let text = format!("limits:\n- match: a\n  requests: {requests}\n");
        let config = Config::parse(&text).unwrap();
        let limits = config.catalog.limits.exact("a").unwrap();
        let limit = limits.limits.get(Unit::Requests).unwrap();
        let safe = SafeCapacity::Fixed(Capacity::from_whole(safe));
        assert_eq!(limit.capacity, Capacity::from_whole(capacity), "{requests}");
        assert_eq!((limit.safe, limit.quotas.iter().count()), (safe, 1));
    }
}

#[test]
fn bad_durations_name_line_field_and_rule() {
    let rows = [
        (
            "{rate: 5, lease: 10}",
            "3:30: limits[0].requests.lease: \"10\" is not a duration like 10s or 100ms: time unit \
             needed, for example 10sec or 10ms",
        ),
        (
            "{rate: 5, lease: -1s}",
            "3:30: limits[0].requests.lease: \"-1s\" is not a duration like 10s or 100ms: expected \
             number at 0",
        ),
        (
            "{rate: 5, refresh: 1500us}",
            "3:32: limits[0].requests.refresh: \"1500us\" is not a whole number of milliseconds",
        ),
        (
            "{rate: 5, lease: 0s}",
            "3:30: limits[0].requests.lease: must be longer than zero",
        ),
        (
            "{rate: 5, lease: 25h}",
            "3:30: limits[0].requests.lease: 90000s is longer than a day",
        ),
        (
            "{rate: 5, lease: 1s}",
            "3:30: limits[0].requests.refresh: 1s is not shorter than the lease, 1s",
        ),
        (
            "{rate: 5, refresh: 20s}",
            "3:32: limits[0].requests.refresh: 20s is not shorter than the lease, 10s",
        ),
        (
            "{rate: 5, min_refresh: 2s}",
            "3:36: limits[0].requests.min_refresh: 2s is longer than refresh, 1s",
        ),
        (
            "{rate: 5, min_refresh: 0s}",
            "3:36: limits[0].requests.min_refresh: must be longer than zero",
        ),
        (
            "{rate: 5, learning: 9s}",
            "3:23: limits[0].requests.learning: unknown field, removed: learning mode lasts as \
             long as a lease",
        ),
    ];
    for (requests, want) in rows {
        assert_eq!(limit_errors(requests), want, "{requests}");
    }
}

#[test]
fn bad_parts_and_words_name_line_field_and_rule() {
    let rows = [
        (
            "{rate: 5, headroom: 1.5}",
            "3:33: limits[0].requests.headroom: \"1.5\" is not a part between 0 and 1",
        ),
        (
            "{rate: 5, headroom: half}",
            "3:33: limits[0].requests.headroom: \"half\" is not a part between 0 and 1",
        ),
        (
            "{rate: 5, reserve: 2}",
            "3:32: limits[0].requests.reserve: \"2\" is not a part between 0 and 1",
        ),
        (
            "{rate: 5, algorithm: fairshare}",
            "3:34: limits[0].requests.algorithm: \"fairshare\" is none of fair_share, \
             proportional_share, usage_share, max_rate, static, none",
        ),
        (
            "{rate: 5, guaranteed: {16: 1}}",
            "3:40: limits[0].requests.guaranteed.16: \"16\" is not a band, a whole number from 0 to 15",
        ),
        (
            "{rate: 5, guaranteed: {3: 4, 9: 2}}",
            "3:39: limits[0].requests.guaranteed: the bands' sum of 6 is more than the capacity, 5",
        ),
        (
            "{rate: 5, burts: 6}",
            "3:23: limits[0].requests.burts: unknown field, did you mean `burst`? Expected one of rate, burst, quota, safe, lease, refresh, \
             min_refresh, headroom, reserve, algorithm, guaranteed",
        ),
    ];
    for (requests, want) in rows {
        assert_eq!(limit_errors(requests), want, "{requests}");
    }
}

#[test]
fn a_burst_below_one_token_is_refused() {
    let message = limit_errors("{rate: 5, burst: 0.5}");
    assert!(
        message.starts_with("3:30: limits[0].requests.burst: "),
        "{message}"
    );
    assert!(message.ends_with("less than one token"), "{message}");
}

#[test]
fn matches_are_checked_against_each_other() {
    let rows: [(&[&str], &str); 7] = [
        (
            &["tenant/a", "tenant/a", "*"],
            "3:11: limits[1].match: \"tenant/a\" is matched by limits[0] already",
        ),
        (
            &["tenant/*", "tenant/b", "tenant/*", "*"],
            "4:11: limits[2].match: \"tenant/*\" is matched by limits[0] already",
        ),
        (&["tenant/*"], "good"),
        (
            &["*", "tenant/a", "tenant/b"],
            "2:11: limits[0].match: `*` matches every scope, so it must be the last limit; 2 come \
             after it",
        ),
        (&["", "*"], "2:11: limits[0].match: is empty"),
        (
            &["tenant/[a", "*"],
            "2:11: limits[0].match: error parsing glob 'tenant/[a': unclosed character class; \
             missing ']'",
        ),
        (&["tenant/*", "tenant/a", "*"], "good"),
    ];
    for (patterns, want) in rows {
        let limit = |pattern: &&str| format!("- {{match: '{pattern}', requests: {{rate: 5}}}}\n");
        let limits: String = patterns.iter().map(limit).collect();
        assert_eq!(errors(&format!("limits:\n{limits}")), want, "{patterns:?}");
    }
}

#[test]
fn all_fields_that_do_not_go_together_are_reported() {
    let message = limit_errors("{rate: 5, burst: 0.5, safe: 6, lease: 2s, refresh: 3s}");
    let want = [
        "3:30: limits[0].requests.burst: 0.5 is less than one token",
        "3:41: limits[0].requests.safe: 6 is more than the capacity, 5",
        "3:64: limits[0].requests.refresh: 3s is not shorter than the lease, 2s",
    ];
    assert_eq!(message, want.join("\n"));
    // Not beside a default in the place of what cannot be read.
    let message = limit_errors("{rate: 5, lease: 1x, refresh: 20s}");
    assert!(
        message.contains(".lease: ") && !message.contains(".refresh: "),
        "{message}"
    );
}

#[test]
fn what_goes_by_usage_divides_rates_only() {
    let concurrency = |algorithm| {
        let text = "limits: [{match: a, concurrency: {max: 5, algorithm: ";
        errors(&format!("{text}{algorithm}}}}}]"))
    };
    for algorithm in ["usage_share", "max_rate"] {
        let want = format!(
            "1:54: limits[0].concurrency.algorithm: {algorithm} divides rates, not requests in \
             flight; use fair_share or proportional_share"
        );
        assert_eq!(concurrency(algorithm), want);
    }
    assert_eq!(concurrency("proportional_share"), "good");
}

#[test]
fn every_unit_has_its_own_limit() {
    let text = "
limits:
- match: tenant/acme
  requests: {rate: 1.5k, safe: dynamic, reserve: 0.1, algorithm: proportional_share,
             guaranteed: {0: 100, 15: 0.5k}}
  request_bytes: {rate: 50MiB, burst: 100MB, algorithm: usage_share}
  response_bytes: {rate: 2G, algorithm: max_rate}
  concurrency: {max: 64, safe: 2}
";
    let config = Config::parse(text).unwrap();
    let matched = config.catalog.limits.exact("tenant/acme").unwrap();
    let get = |unit| matched.limits.get(unit).unwrap();
    let requests = get(Unit::Requests);
    assert_eq!(requests.capacity, Capacity::from_whole(1500));
    assert_eq!(requests.safe, SafeCapacity::Dynamic);
    assert_eq!(Some(requests.reserve), Part::try_from_f64(0.1));
    assert_eq!(requests.algorithm, Algorithm::ProportionalShare);
    let guaranteed = |priority| requests.guaranteed.of(priority);
    assert_eq!(guaranteed(Priority::LOWEST), Capacity::from_whole(100));
    assert_eq!(guaranteed(Priority::HIGHEST), Capacity::from_whole(500));
    let bytes = get(Unit::RequestBytes);
    assert_eq!(bytes.capacity, Capacity::from_whole(50 << 20));
    assert_eq!(bytes.burst, Tokens::from_whole(100_000_000));
    assert_eq!(bytes.algorithm, Algorithm::UsageShare);
    let bytes = get(Unit::ResponseBytes);
    assert_eq!(bytes.capacity, Capacity::from_whole(2_000_000_000));
    assert_eq!(bytes.algorithm, Algorithm::MaxRate);
    let concurrency = get(Unit::Concurrency);
    assert_eq!(concurrency.capacity, Capacity::from_whole(64));
    assert_eq!(
        concurrency.safe,
        SafeCapacity::Fixed(Capacity::from_whole(2))
    );
    let units: Vec<_> = matched.limits.iter().map(|(unit, _)| unit).collect();
    assert_eq!(units, Unit::ALL);
}

/// Limits with these globs, one a line.
fn globs(globs: impl Iterator<Item = String>) -> String {
    let limit = |glob| format!("\n- {{match: '{glob}', requests: {{rate: 5}}}}");
    format!("limits:{}", globs.map(limit).collect::<String>())
}

#[test]
fn globs_that_need_a_huge_matcher_are_refused_with_their_line() {
    let at_most = "?".repeat(64);
    assert_eq!(errors(&globs([at_most.clone()].into_iter())), "good");
    let rows = [
        format!("{at_most}?"),
        "[!a]*".repeat(13),
        "{a,b}".repeat(33),
    ];
    for (glob, count) in rows.into_iter().zip([65, 65, 66]) {
        let text = globs(["tenant/*".to_owned(), glob].into_iter());
        let want = format!(
            "3:11: limits[1].match: has {count} wildcards, classes and alternatives, more than 64; \
             a class counts as 4"
        );
        assert_eq!(errors(&text), want);
    }
    let many = globs((0..700).map(|i| format!("{i}{at_most}")));
    let want = "627:11: limits[625].match: with this glob there are 40064 wildcards, classes and \
                alternatives in all globs, more than 40000; a class counts as 4";
    assert_eq!(errors(&many), want);
    let long = "x".repeat(200);
    let large = (0..5000).map(|i| match i {
        700 => format!("{i}{long}**?"),
        _ => format!("{i}{long}*x"),
    });
    let message = errors(&globs(large));
    let want = "702:11: limits[700].match: is the largest of all globs, and the matcher of all is \
                too large: ";
    assert!(message.starts_with(want), "{message}");
}
