//! Limit status of admitted requests, for their responses, if the configuration asks for it.
//!
//! The filter writes no header of a response: to be called for it would cost every stream an entry
//! into the VM, whether anybody asks or not. It leaves the values in the stream's filter state, and
//! Envoy's own `response_headers_to_add` puts them into the response.

use tollgate_core::lease::Unit;
use tollgate_engine::{LimitStatus, policy, seconds};

use crate::config::Formats;
use crate::notes::{Notes, RATELIMIT, RATELIMIT_POLICY, TIGHTEST};

/// The notes for a request that has passed these rules, by name; those without a limit are not told.
pub(crate) fn notes(formats: Formats, rules: &[(&str, LimitStatus)]) -> Notes {
    let limited = |(_, status): &&(&str, LimitStatus)| quota(status).is_some();
    let limited = rules.iter().filter(limited);
    let mut notes = Notes::new();
    if formats.ietf {
        let each = |item: fn(&str, &LimitStatus) -> String| {
            let items = limited.clone().map(|(rule, status)| item(rule, status));
            items.collect::<Vec<_>>().join(", ")
        };
        notes.push((RATELIMIT, each(state)));
        notes.push((RATELIMIT_POLICY, each(rule_of)));
        notes.retain(|(_, value)| !value.is_empty());
    }
    if formats.draft03
        && let Some((rule, least)) = limited.min_by_key(|(_, status)| status.left)
    {
        let (quota, window) = quota(least).unwrap_or_default();
        let limit = format!("{quota}, {quota}{window};name=\"{rule}\"");
        let left = left(least).to_string();
        let full_in = least.full_in.map(|full_in| seconds(full_in).to_string());
        notes.extend(
            TIGHTEST
                .into_iter()
                .zip([limit, left, full_in.unwrap_or_default()]),
        );
    }
    notes
}

// === free functions ===

/// The item of `RateLimit`.
fn state(rule: &str, status: &LimitStatus) -> String {
    let left = left(status);
    let full = status
        .full_in
        .map_or_else(String::new, |full_in| format!(";t={}", seconds(full_in)));
    format!("\"{rule}\";r={left}{full}")
}

/// The item of `RateLimit-Policy`.
fn rule_of(rule: &str, status: &LimitStatus) -> String {
    let (quota, window) = quota(status).unwrap_or_default();
    format!("\"{rule}\";q={quota}{window}")
}

/// The whole tokens that are left, of which no more are told than the limit says.
fn left(status: &LimitStatus) -> u64 {
    let most = quota(status).map_or(u64::MAX, |(quota, _)| quota);
    status.left.whole().min(most)
}

fn quota(status: &LimitStatus) -> Option<(u64, String)> {
    policy(status.limit, status.period, Unit::Requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use tollgate_core::units::{RatePeriod, Tokens};

    const BOTH: Formats = Formats {
        ietf: true,
        draft03: true,
    };

    fn status(limit: u64, left: u64, full_ms: u64) -> LimitStatus {
        LimitStatus {
            limit: limit.saturating_mul(1_000_000),
            period: None,
            left: Tokens::from_micros(left * 1_000_000 + 999_999),
            full_in: Some(Duration::from_millis(full_ms)),
        }
    }

    #[test]
    fn every_limit_is_told_and_the_tightest_in_the_older_fields() {
        let rules = [
            ("tenant", status(100, 40, 1200)),
            ("user", status(5, 3, 0)),
            ("free", status(u64::MAX, 9, 0)),
        ];
        let want = [
            ("tollgate.ratelimit", r#""tenant";r=40;t=2, "user";r=3;t=0"#),
            (
                "tollgate.ratelimit_policy",
                r#""tenant";q=100;w=1, "user";q=5;w=1"#,
            ),
            ("tollgate.x_ratelimit_limit", r#"5, 5;w=1;name="user""#),
            ("tollgate.x_ratelimit_remaining", "3"),
            ("tollgate.x_ratelimit_reset", "0"),
        ];
        let noted = notes(BOTH, &rules);
        let noted: Vec<_> = noted
            .iter()
            .map(|(name, value)| (*name, &value[..]))
            .collect();
        assert_eq!(noted, want);
    }

    #[test]
    fn no_more_is_left_than_the_limit_says_that_stands_beside_it() {
        for written in [None].into_iter().chain(RatePeriod::ALL.map(Some)) {
            for limit in [
                1,
                12,
                1_389,
                1_666_667,
                11_574_074,
                20_000_000,
                u64::MAX - 1,
            ] {
                let status = LimitStatus {
                    limit,
                    period: written,
                    left: Tokens::from_micros(u64::MAX),
                    full_in: None,
                };
                let (quota, _) = quota(&status).unwrap();
                assert!(quota >= 1 && left(&status) <= quota, "{limit} {written:?}");
            }
        }
        let day = LimitStatus {
            period: Some(RatePeriod::Day),
            limit: 11_574_074,
            ..status(0, 500_000, 0)
        };
        let noted = notes(BOTH, &[("tenant", day)]);
        assert_eq!(noted[1].1, r#""tenant";q=1000000;w=86400"#);
        assert_eq!(noted[3].1, "500000");
    }

    #[test]
    fn without_a_limit_there_is_nothing_to_tell() {
        assert_eq!(notes(BOTH, &[("free", status(u64::MAX, 9, 0))]), []);
        assert_eq!(notes(BOTH, &[]), []);
        let none = Formats::default();
        assert_eq!(notes(none, &[("tenant", status(100, 40, 0))]), []);
    }
}
