use super::*;
use crate::config::Body;
use crate::fake::{Fake, Process};
use core::time::Duration;
use tollgate_core::lease::Unit;
use tollgate_core::units::{MICRO, Rate, Tokens};
use tollgate_engine::{Denial, Formats, RuleId};

const SPEAKER: Speaker<'_> = Speaker {
    rule: "tenant",
    wanted: "x-tenant header",
    terms: &Terms::DEFAULT,
};

fn refusal(pause: Option<u64>) -> (Refusal, Instant) {
    let now = Instant::from_nanos(1_000_000_000);
    let denial = Denial {
        until: now,
        retry_at: pause.map(|nanos| now.saturating_add(Duration::from_nanos(nanos))),
        limit: 5 * MICRO,
        period: None,
        without_lease: false,
        unit: Unit::Requests,
        need: Tokens::ONE,
        rate: Rate::ZERO,
        expected_rate: None,
        most: None,
        never: false,
        quota: None,
    };
    let (rule, by) = (RuleId(0), RuleId(0));
    (Refusal::Denied { rule, by, denial }, now)
}

#[test]
fn a_request_is_answered_in_its_protocol() {
    let web = |is_text| Protocol::GrpcWeb { is_text };
    let rows = [
        ("application/grpc", Protocol::Grpc),
        ("application/grpc+proto", Protocol::Grpc),
        ("application/grpc-web", web(false)),
        ("application/grpc-web+proto", web(false)),
        ("application/grpc-web-text", web(true)),
        ("application/grpc-web-text+proto", web(true)),
        ("application/grpc-web+json", Protocol::Http),
        ("application/grpc;x=y", Protocol::Http),
        ("application/grpcx", Protocol::Http),
        ("application/json", Protocol::Http),
        ("", Protocol::Http),
    ];
    let host = Fake::new(&Process::new());
    assert_eq!(Protocol::at_hand(&host), Protocol::Http);
    for (kind, want) in rows {
        host.set_headers(&[("content-type", kind)]);
        assert_eq!(Protocol::at_hand(&host), want, "{kind}");
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
        marks: false,
    };
    let speaker = Speaker {
        terms: &terms,
        ..SPEAKER
    };
    let host = Fake::new(&Process::new());
    let (refusal, now) = refusal(Some(1_500_000_000));
    speaker.send(&host, now, refusal, Protocol::Http).unwrap();
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
        serde_json::from_str(&Reply::new(refusal, now, speaker.refuser()).body).unwrap();
    assert_eq!(problem["status"], 503);
}

#[test]
fn a_request_at_fault_is_not_told_the_operators_words() {
    let terms = Terms {
        status: 503,
        headers: vec![("x-region".to_owned(), "eu".to_owned())],
        ..Terms::DEFAULT
    };
    let speaker = Speaker {
        terms: &terms,
        wanted: "\"odd\" header",
        ..SPEAKER
    };
    let host = Fake::new(&Process::new());
    let refusal = Refusal::Missing { rule: RuleId(0) };
    speaker
        .send(&host, Instant::ZERO, refusal, Protocol::Http)
        .unwrap();
    let (_, status, headers) = host.replies.borrow_mut().pop().unwrap();
    assert_eq!((status, headers.get("x-region")), (400, None));
    let body = Reply::new(refusal, Instant::ZERO, speaker.refuser()).body;
    let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.ends_with("no usable \"odd\" header"), "{detail}");
}

#[test]
fn grpc_is_told_by_details_and_the_access_log_by_notes() {
    let host = Fake::new(&Process::new());
    for (pause, pushback) in [(Some(1_000_001), Some("2")), (None, None)] {
        let (refusal, now) = refusal(pause);
        host.notes.borrow_mut().clear();
        SPEAKER.send(&host, now, refusal, Protocol::Grpc).unwrap();
        let (_, status, headers) = host.replies.borrow_mut().pop().unwrap();
        let header = |name: &str| headers.get(name).map(String::as_str);
        assert_eq!((status, header("grpc-status")), (200, Some("8")));
        assert_eq!(header("content-type"), Some("application/grpc"));
        assert!(header("grpc-message").is_some() && header("grpc-status-details-bin").is_some());
        assert_eq!(header("grpc-retry-pushback-ms"), pushback);
        let notes = host.notes.borrow();
        let note = |name: &str| notes.get(&(0, name.to_owned())).map(String::as_str);
        assert_eq!(note("tollgate.reason"), Some("tenant/requests"));
        assert_eq!(note("tollgate.pause_ms"), pushback);
    }
}

#[test]
fn a_refusal_takes_away_the_tightest_limit_of_an_earlier_filter_whatever_its_own_fields() {
    for draft03 in [true, false] {
        let formats = Formats {
            draft03,
            ..Terms::DEFAULT.formats
        };
        let terms = Terms {
            formats,
            ..Terms::DEFAULT
        };
        let speaker = Speaker {
            terms: &terms,
            ..SPEAKER
        };
        let host = Fake::new(&Process::new());
        host.note(TIGHTEST.map(|name| (name, "4".to_owned())).into());
        let (refusal, now) = refusal(None);
        speaker.send(&host, now, refusal, Protocol::Http).unwrap();
        let notes = host.notes.borrow();
        for name in TIGHTEST {
            assert_eq!(notes[&(0, name.to_owned())], "", "{name} {draft03}");
        }
    }
}

#[test]
fn grpc_web_has_its_status_in_the_body() {
    let host = Fake::new(&Process::new());
    for (is_text, kind) in [
        (false, "application/grpc-web+proto"),
        (true, "application/grpc-web-text+proto"),
    ] {
        let (refusal, now) = refusal(None);
        let protocol = Protocol::GrpcWeb { is_text };
        SPEAKER.send(&host, now, refusal, protocol).unwrap();
        let (_, status, headers) = host.replies.borrow_mut().pop().unwrap();
        assert_eq!((status, headers["content-type"].as_str()), (200, kind));
        assert_eq!(headers["tollgate-reason"], "tenant/requests");
        assert!(!headers.contains_key("grpc-status"));
    }
}
