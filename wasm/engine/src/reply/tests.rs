use super::*;
use crate::config::RuleId;
use tollgate_core::units::{Rate, Tokens};

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    let found = reply.headers.iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| value.as_str())
}

const REFUSER: Refuser<'_> = Refuser {
    rule: "tenant",
    wanted: "x-tenant header",
    formats: Formats {
        ietf: true,
        draft03: false,
    },
    status: 429,
};

fn refused(pause: Option<u64>, limit: u64, without_lease: bool) -> Reply {
    let (refusal, now) = refusal(pause, limit, without_lease);
    Reply::new(refusal, now, REFUSER)
}

fn refusal(pause: Option<u64>, limit: u64, without_lease: bool) -> (Refusal, Instant) {
    let now = Instant::from_nanos(1_000_000_000);
    let denial = Denial {
        until: now,
        retry_at: pause.map(|nanos| now.saturating_add(Duration::from_nanos(nanos))),
        limit,
        period: None,
        without_lease,
        unit: Unit::Requests,
        need: Tokens::ONE,
        rate: Rate::ZERO,
        expected_rate: None,
        most: None,
        never: false,
        quota: None,
    };
    (
        Refusal::Denied {
            rule: RuleId(0),
            by: RuleId(0),
            denial,
        },
        now,
    )
}

#[test]
fn times_are_rounded_up() {
    let rows = [
        (0, "1", "0"),
        (1, "1", "1"),
        (1_000_000, "1", "1"),
        (1_000_001, "1", "2"),
        (1_000_000_000, "1", "1000"),
        (1_000_000_001, "2", "1001"),
    ];
    for (pause, seconds, millis) in rows {
        let reply = refused(Some(pause), 5 * MICRO, false);
        assert_eq!(header(&reply, "retry-after"), Some(seconds), "{pause}");
        assert_eq!(header(&reply, "tollgate-pause-ms"), Some(millis), "{pause}");
        let limit = format!("\"tenant\";r=0;t={seconds}");
        assert_eq!(header(&reply, "ratelimit"), Some(limit.as_str()));
    }
}

#[test]
fn an_unknown_time_is_not_told() {
    let reply = refused(None, 0, true);
    assert_eq!(header(&reply, "retry-after"), None);
    assert_eq!(header(&reply, "tollgate-pause-ms"), None);
    assert_eq!(header(&reply, "ratelimit"), Some("\"tenant\";r=0"));
    assert_eq!(header(&reply, "ratelimit-policy"), None);
    assert_eq!(header(&reply, "tollgate-reason"), Some("tenant/requests"));
}

#[test]
fn the_policy_is_in_whole_numbers_and_names_its_unit() {
    let rows = [
        (Unit::Requests, 0, None),
        (Unit::Requests, u64::MAX, None),
        (Unit::Requests, 1000 * MICRO, Some("q=1000;w=1")),
        (Unit::Requests, MICRO, Some("q=1;w=1")),
        (Unit::Requests, MICRO / 2, Some("q=30;w=60")),
        (Unit::Requests, MICRO / 3, Some("q=20;w=60")),
        (Unit::Requests, 1_666_667, Some("q=100;w=60")),
        (Unit::Requests, 2778, Some("q=10;w=3600")),
        (Unit::Requests, 2_500_000, Some("q=150;w=60")),
        (
            Unit::RequestBytes,
            7 * MICRO,
            Some("q=7;qu=\"content-bytes\";w=1"),
        ),
        (
            Unit::Concurrency,
            64 * MICRO,
            Some("q=64;qu=\"concurrent-requests\""),
        ),
    ];
    for (unit, limit, want) in rows {
        let (refusal, now) = refusal(None, limit, false);
        let Refusal::Denied { denial, rule, by } = refusal else {
            panic!("{refusal:?}")
        };
        let denial = Denial { unit, ..denial };
        let reply = Reply::new(Refusal::Denied { rule, by, denial }, now, REFUSER);
        let want = want.map(|want| format!("\"tenant\";{want}"));
        assert_eq!(header(&reply, "ratelimit-policy"), want.as_deref());
        let reason = format!("tenant/{}", unit.name());
        assert_eq!(header(&reply, "tollgate-reason"), Some(reason.as_str()));
    }
}

#[test]
fn a_limit_is_told_for_the_period_for_which_it_was_written() {
    let rows = [
        (11_574_074, Some(RatePeriod::Day), "q=1000000;w=86400"),
        (11_574_074, None, "q=694;w=60"),
        (1_666_667, Some(RatePeriod::Minute), "q=100;w=60"),
        (60 * MICRO, Some(RatePeriod::Minute), "q=3600;w=60"),
        (1389, Some(RatePeriod::Hour), "q=5;w=3600"),
        (20 * MICRO, Some(RatePeriod::Second), "q=20;w=1"),
        (20 * MICRO, None, "q=20;w=1"),
        // 1.5 a minute is not whole.
        (25_000, Some(RatePeriod::Minute), "q=90;w=3600"),
    ];
    for (limit, period, want) in rows {
        let (quota, window) = policy(limit, period, Unit::Requests).unwrap();
        assert_eq!(format!("q={quota}{window}"), want);
    }
}

#[test]
fn what_can_never_pass_says_so_and_names_no_time() {
    let (refusal, now) = refusal(None, MICRO, false);
    let Refusal::Denied { denial, rule, by } = refusal else {
        panic!("{refusal:?}")
    };
    let denial = Denial {
        expected_rate: None,
        never: true,
        ..denial
    };
    let reply = Reply::new(Refusal::Denied { rule, by, denial }, now, REFUSER);
    assert_eq!(header(&reply, "tollgate-reason"), Some("tenant/cost"));
    assert_eq!(header(&reply, "retry-after"), None);
    assert_eq!(header(&reply, "tollgate-pause-ms"), None);
    assert!(reply.message.contains("costs more"), "{}", reply.message);
}

#[test]
fn bodies_are_json_and_name_the_problem() {
    let rows = [
        (refused(Some(1), MICRO, false), "#quota-exceeded", 429),
        (
            refused(None, MICRO, true),
            "#temporary-reduced-capacity",
            429,
        ),
        (
            Reply::new(Refusal::Missing { rule: RuleId(0) }, Instant::ZERO, REFUSER),
            "about:blank",
            400,
        ),
        (
            Reply::new(Refusal::HostFailure, Instant::ZERO, REFUSER),
            "#temporary-reduced-capacity",
            429,
        ),
    ];
    for (reply, kind, status) in rows {
        let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        assert!(body["type"].as_str().unwrap().ends_with(kind), "{body}");
        assert_eq!(body["status"], status);
        assert_eq!(reply.status, status);
    }
}
