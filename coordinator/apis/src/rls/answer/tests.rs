use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_config::catalog::template::Template;
use tollgate_config::{RlsDomain, RlsRule};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

use super::super::ask::Hits;
use super::*;
use crate::rls::current_limit::CurrentLimit;

fn rule(name: &str) -> RlsRule {
    RlsRule {
        scope: Template::parse("tenant/{tenant}").unwrap(),
        values: BTreeMap::new(),
        more_keys: false,
        name: (!name.is_empty()).then(|| name.to_owned()),
        replaces: Vec::new(),
        shadow: false,
        quota_mode: false,
        debt: false,
    }
}

fn verdict(remaining: u64) -> Option<Verdict> {
    Some(Verdict {
        is_over: false,
        limit: Some(CurrentLimit::per_second(10_000_000, None)),
        remaining,
        reset: Some(Duration::from_millis(100)),
    })
}

fn over() -> Option<Verdict> {
    verdict(0).map(|verdict| Verdict {
        is_over: true,
        ..verdict
    })
}

fn unlimited() -> Option<Verdict> {
    Some(Verdict {
        is_over: false,
        limit: None,
        remaining: u64::MAX,
        reset: None,
    })
}

/// Returns the answer to a request of one descriptor for each rule.
fn answer(
    domain: &RlsDomain,
    decided: &[(Option<&RlsRule>, Option<Verdict>)],
) -> RateLimitResponse {
    let ask = Ask {
        domain: Some(domain),
        descriptors: decided
            .iter()
            .map(|(rule, _)| {
                Some(DescriptorAsk {
                    rule: (*rule)?,
                    scope: "tenant/acme".to_owned(),
                    hits: Hits::Take(1),
                    limit: None,
                })
            })
            .collect(),
    };
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry {
                key: "tenant".to_owned(),
                value: "acme".to_owned(),
            }],
            hits_addend: Some(2),
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 3,
    };
    let verdicts: Vec<_> = decided.iter().map(|(_, verdict)| *verdict).collect();
    response(&request, &ask, &verdicts)
}

fn codes(response: &RateLimitResponse) -> (Code, Vec<Code>) {
    let statuses = response.statuses.iter();
    (
        response.overall_code(),
        statuses.map(DescriptorStatus::code).collect(),
    )
}

#[test]
fn each_descriptor_has_its_status_in_order() {
    let usual = rule("usual");
    let response = answer(
        &RlsDomain::default(),
        &[
            (Some(&usual), verdict(7)),
            (None, None),
            (Some(&usual), over()),
            (Some(&usual), unlimited()),
        ],
    );
    let want = vec![Code::Ok, Code::Ok, Code::OverLimit, Code::Ok];
    assert_eq!(codes(&response), (Code::OverLimit, want));
    let [passes, unmatched, over, unlimited] = &response.statuses[..] else {
        panic!("{response:?}");
    };
    let limit = passes.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, &*limit.name), (10, "usual"));
    assert_eq!(passes.limit_remaining, 7);
    assert_eq!(
        *unmatched,
        DescriptorStatus {
            code: Code::Ok.into(),
            ..DescriptorStatus::default()
        }
    );
    assert_eq!(over.limit_remaining, 0);
    assert!(over.current_limit.is_some());
    assert_eq!(over.duration_until_reset.unwrap().nanos, 100_000_000);
    assert_eq!(unlimited.limit_remaining, u32::MAX);
    assert_eq!(unlimited.current_limit, None);
    assert_eq!(unlimited.duration_until_reset, None);
    assert!(response.response_headers_to_add.is_empty());
    assert_eq!(response.dynamic_metadata, None);
}

#[test]
fn a_rule_in_shadow_mode_never_refuses() {
    let shadow = RlsRule {
        shadow: true,
        ..rule("")
    };
    let response = answer(&RlsDomain::default(), &[(Some(&shadow), over())]);
    assert_eq!(codes(&response), (Code::Ok, vec![Code::Ok]));
    assert_eq!(response.statuses[0].limit_remaining, 0);
}

#[test]
fn quotas_refuse_only_all_together_and_others_each() {
    let quota = RlsRule {
        quota_mode: true,
        ..rule("")
    };
    let shadow = RlsRule {
        shadow: true,
        ..quota.clone()
    };
    let usual = rule("");
    let passes = verdict(1);
    let rows = [
        (vec![(&quota, over())], Code::OverLimit),
        (vec![(&quota, over()), (&quota, passes)], Code::Ok),
        (vec![(&quota, over()), (&quota, over())], Code::OverLimit),
        (vec![(&quota, over()), (&usual, passes)], Code::OverLimit),
        (vec![(&quota, passes), (&usual, over())], Code::OverLimit),
        (vec![(&quota, over()), (&shadow, over())], Code::Ok),
        (vec![(&usual, passes)], Code::Ok),
    ];
    for (row, (decided, want)) in rows.into_iter().enumerate() {
        let decided: Vec<_> = decided
            .into_iter()
            .map(|(rule, verdict)| (Some(rule), verdict))
            .collect();
        let response = answer(&RlsDomain::default(), &decided);
        assert_eq!(response.overall_code(), want, "row {row}");
        let over = decided
            .iter()
            .map(|(rule, verdict)| verdict.unwrap().is_over && !rule.unwrap().shadow);
        let shown = response.statuses.iter();
        assert!(over.eq(shown.map(|status| status.code() == Code::OverLimit)));
    }
}

#[test]
fn headers_tell_of_the_strictest_limit_and_of_all() {
    let domain = RlsDomain {
        response_headers: true,
        ..RlsDomain::default()
    };
    let (named, plain) = (rule("per tenant"), rule(""));
    let headers = |decided: &[(Option<&RlsRule>, Option<Verdict>)]| {
        let response = answer(&domain, decided);
        let headers = response.response_headers_to_add.into_iter();
        headers
            .map(|header| format!("{}: {}", header.key, header.value))
            .collect::<Vec<_>>()
    };
    let got = headers(&[
        (Some(&named), verdict(7)),
        (Some(&plain), over()),
        (None, None),
    ]);
    assert_eq!(
        got,
        [
            r#"x-ratelimit-limit: 10, 10;w=1;name="per tenant", 10;w=1"#,
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1",
        ]
    );
    let got = headers(&[(Some(&plain), verdict(9)), (Some(&plain), verdict(3))]);
    assert_eq!(got[1], "x-ratelimit-remaining: 3");
    assert!(headers(&[(None, None), (Some(&plain), unlimited())]).is_empty());
}

#[test]
fn metadata_has_the_request() {
    let domain = RlsDomain {
        dynamic_metadata: true,
        ..RlsDomain::default()
    };
    let response = answer(&domain, &[(None, None)]);
    let metadata = format!("{:?}", response.dynamic_metadata.unwrap());
    for part in [
        "StringValue(\"edge\")",
        "StringValue(\"tenant=acme\")",
        "NumberValue(3.0)",
        "NumberValue(2.0)",
    ] {
        assert!(metadata.contains(part), "{part} in {metadata}");
    }
}

#[test]
fn the_stricter_of_two_decisions_counts() {
    let [seven, three] = [7, 3].map(|left| verdict(left).unwrap());
    let (none, refused) = (unlimited().unwrap(), over().unwrap());
    let later = Verdict {
        reset: Some(Duration::from_secs(9)),
        ..refused
    };
    let never = Verdict {
        reset: None,
        ..refused
    };
    let rows = [
        (seven, three, three),
        (none, three, three),
        (seven, refused, refused),
        (refused, later, later),
        (never, later, never),
        (none, none, none),
    ];
    for (one, other, want) in rows {
        assert_eq!(one.stricter(other), want);
        assert_eq!(other.stricter(one), want);
    }
}
