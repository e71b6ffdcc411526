use super::*;
use crate::config::Body;
use crate::fake::{Fake, Process};
use tollgate_core::units::{Rate, Tokens};
use tollgate_engine::RuleId;

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    let found = reply.headers.iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| value.as_str())
}

const REFUSER: Refuser<'_> = Refuser {
    rule: "tenant",
    wanted: "x-tenant header",
    terms: &Terms::DEFAULT,
};

fn refused(pause: Option<u64>, limit: u64, without_lease: bool) -> Reply {
    let (refusal, now) = refusal(pause, limit, without_lease);
    reply(refusal, now, REFUSER)
}

fn refusal(pause: Option<u64>, limit: u64, without_lease: bool) -> (Refusal, Instant) {
    let now = Instant::from_nanos(1_000_000_000);
    let denial = Denial {
        until: now,
        retry_at: pause.map(|nanos| now.saturating_add(Duration::from_nanos(nanos))),
        limit,
        without_lease,
        unit: Unit::Requests,
        need: Tokens::ONE,
        rate: Rate::ZERO,
        expected_rate: None,
        never: false,
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
fn only_what_the_host_takes_for_grpc_is_answered_in_grpc() {
    let rows = [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("application/grpc-web", false),
        ("application/grpc-web+proto", false),
        ("application/grpc;x=y", false),
        ("application/grpcx", false),
        ("application/json", false),
        ("", false),
    ];
    let host = Fake::new(&Process::new());
    assert!(!is_grpc(&host));
    for (kind, want) in rows {
        host.set_headers(&[("content-type", kind)]);
        assert_eq!(is_grpc(&host), want, "{kind}");
    }
}

#[test]
fn the_policy_is_in_whole_numbers_and_names_its_unit() {
    let rows = [
        (Unit::Requests, 0, None),
        (Unit::Requests, u64::MAX, None),
        (Unit::Requests, 1000 * MICRO, Some("q=1000;w=1")),
        (Unit::Requests, MICRO, Some("q=1;w=1")),
        (Unit::Requests, MICRO / 2, Some("q=1;w=2")),
        (Unit::Requests, MICRO / 3, Some("q=1;w=4")),
        (Unit::Requests, 2_500_000, Some("q=2;w=1")),
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
        let reply = reply(Refusal::Denied { rule, by, denial }, now, REFUSER);
        let want = want.map(|want| format!("\"tenant\";{want}"));
        assert_eq!(header(&reply, "ratelimit-policy"), want.as_deref());
        let reason = format!("tenant/{}", unit.name());
        assert_eq!(header(&reply, "tollgate-reason"), Some(reason.as_str()));
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
    let reply = reply(Refusal::Denied { rule, by, denial }, now, REFUSER);
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
            reply(Refusal::Missing { rule: RuleId(0) }, Instant::ZERO, REFUSER),
            "about:blank",
            400,
        ),
        (
            reply(Refusal::HostFailure, Instant::ZERO, REFUSER),
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

#[test]
fn the_operator_chooses_status_headers_body_and_drafts() {
    let terms = Terms {
        formats: Formats {
            ietf: false,
            draft03: true,
        },
        status: 503,
        headers: vec![("x-region".to_owned(), "eu".to_owned())],
        body: Some(Body {
            content_type: "text/html".to_owned(),
            text: "<p>later</p>".to_owned(),
        }),
    };
    let refuser = Refuser {
        terms: &terms,
        ..REFUSER
    };
    let host = Fake::new(&Process::new());
    let (refusal, now) = refusal(Some(1_500_000_000), 5 * MICRO, false);
    send(&host, now, refusal, refuser, false).unwrap();
    let (_, status, headers) = host.replies.borrow_mut().pop().unwrap();
    assert_eq!(status, 503);
    let rows = [
        ("x-region", Some("eu")),
        ("content-type", Some("text/html")),
        ("ratelimit", None),
        ("ratelimit-policy", None),
        ("x-ratelimit-limit", Some("5, 5;w=1;name=\"tenant\"")),
        ("x-ratelimit-remaining", Some("0")),
        ("x-ratelimit-reset", Some("2")),
        ("retry-after", Some("2")),
    ];
    for (name, want) in rows {
        assert_eq!(headers.get(name).map(String::as_str), want, "{name}");
    }
    let problem: serde_json::Value =
        serde_json::from_str(&reply(refusal, now, refuser).body).unwrap();
    assert_eq!(problem["status"], 503);
}

#[test]
fn a_request_at_fault_is_not_told_the_operators_words() {
    let terms = Terms {
        status: 503,
        headers: vec![("x-region".to_owned(), "eu".to_owned())],
        ..Terms::DEFAULT
    };
    let refuser = Refuser {
        terms: &terms,
        wanted: "\"odd\" header",
        ..REFUSER
    };
    let host = Fake::new(&Process::new());
    let refusal = Refusal::Missing { rule: RuleId(0) };
    send(&host, Instant::ZERO, refusal, refuser, false).unwrap();
    let (_, status, headers) = host.replies.borrow_mut().pop().unwrap();
    assert_eq!((status, headers.get("x-region")), (400, None));
    let body = reply(refusal, Instant::ZERO, refuser).body;
    let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.ends_with("no usable \"odd\" header"), "{detail}");
}

#[test]
fn grpc_is_told_by_details_and_the_access_log_by_notes() {
    let host = Fake::new(&Process::new());
    for (pause, pushback) in [(Some(1_000_001), Some("2")), (None, None)] {
        let (refusal, now) = refusal(pause, MICRO, false);
        host.notes.borrow_mut().clear();
        send(&host, now, refusal, REFUSER, true).unwrap();
        let (_, status, headers) = host.replies.borrow_mut().pop().unwrap();
        assert_eq!(status, 8);
        assert!(headers.contains_key("grpc-status-details-bin"));
        assert!(!headers.contains_key("content-type"));
        let told = headers.get("grpc-retry-pushback-ms").map(String::as_str);
        assert_eq!(told, pushback);
        let notes = host.notes.borrow();
        let note = |name: &str| notes.get(&(0, name.to_owned())).map(String::as_str);
        assert_eq!(note("tollgate.reason"), Some("tenant/requests"));
        assert_eq!(note("tollgate.pause_ms"), pushback);
    }
}
