//! Limit status of admitted requests, for their responses, if the configuration asks for it.
//!
//! The filter writes no header of a response: to be called for it would cost every stream an entry
//! into the VM, whether anybody asks or not. It leaves the values in the stream's filter state, and
//! Envoy's own `response_headers_to_add` puts them into the response.

use core::time::Duration;

use tollgate_core::fleet::QuotaLevel;
use tollgate_core::lease::Unit;
use tollgate_engine::{LimitStatus, QuotaPolicy, policy, policy_of, quota_name, seconds};

use crate::config::Formats;
use crate::notes::{Notes, RATELIMIT, RATELIMIT_POLICY, TIGHTEST};

/// A limit that is told.
struct Item {
    name: String,
    quota: u64,
    window: String,
    /// Whole tokens that are left.
    left: u64,
    /// Time until it is full again.
    full_in: Option<Duration>,
}

/// The notes for a request that has passed these rules, by name; those without a limit are not told.
pub(crate) fn notes(formats: Formats, rules: &[(&str, LimitStatus)]) -> Notes {
    let items: Vec<Item> = rules.iter().flat_map(items).collect();
    let limited = items.iter();
    let mut notes = Notes::new();
    if formats.ietf {
        let each = |text: fn(&Item) -> String| {
            let items = limited.clone().map(text);
            items.collect::<Vec<_>>().join(", ")
        };
        notes.push((RATELIMIT, each(Item::state)));
        notes.push((RATELIMIT_POLICY, each(Item::policy)));
        notes.retain(|(_, value)| !value.is_empty());
    }
    if formats.draft03
        && let Some(least) = limited.min_by_key(|item| item.left)
    {
        let Item {
            name,
            quota,
            window,
            ..
        } = least;
        let limit = format!("{quota}, {quota}{window};name=\"{name}\"");
        let left = least.left.to_string();
        let full_in = least.full_in.map(|full_in| seconds(full_in).to_string());
        notes.extend(
            TIGHTEST
                .into_iter()
                .zip([limit, left, full_in.unwrap_or_default()]),
        );
    }
    notes
}

// === impl Item ===

impl Item {
    /// The item of `RateLimit`.
    fn state(&self) -> String {
        let Self { name, left, .. } = self;
        let full = self
            .full_in
            .map_or_else(String::new, |full_in| format!(";t={}", seconds(full_in)));
        format!("\"{name}\";r={left}{full}")
    }

    /// The item of `RateLimit-Policy`.
    fn policy(&self) -> String {
        let Self {
            name,
            quota,
            window,
            ..
        } = self;
        format!("\"{name}\";q={quota}{window}")
    }
}

// === free functions ===

/// The limits of a rule that are told: its rate, unless that bounds nothing, and its quota.
fn items((rule, status): &(&str, LimitStatus)) -> impl Iterator<Item = Item> {
    let bounds_alone = |quota: QuotaLevel| quota.bounds_alone(status.limit);
    let rate = policy(status.limit, status.period, Unit::Requests);
    let rate = rate.filter(|_| !status.quota.is_some_and(bounds_alone));
    let rate = rate.map(|(quota, window)| Item {
        name: (*rule).to_owned(),
        // No more is told than the limit says.
        left: status.left.whole().min(quota),
        quota,
        window,
        full_in: status.full_in,
    });
    let quota = status.quota.map(|level| {
        let (quota, window) = policy_of(QuotaPolicy::from(&level));
        Item {
            name: quota_name(rule),
            quota,
            window,
            // With credits there may be more.
            left: level.left.min(level.amount).whole(),
            full_in: Some(level.resets_in),
        }
    });
    [rate, quota].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
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
            quota: None,
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
    fn a_quota_is_told_beside_the_rate_and_alone_without_one() {
        let quota = Some(QuotaLevel {
            amount: Tokens::from_whole(1000),
            left: Tokens::from_whole(7),
            length: Duration::from_secs(86_400),
            resets_in: Duration::from_secs(3600),
        });
        let of = |limit| LimitStatus {
            quota,
            ..status(limit, 40, 1200)
        };
        let ietf = Formats {
            ietf: true,
            draft03: false,
        };
        let noted = notes(ietf, &[("tenant", of(100))]);
        let beside = [
            r#""tenant";r=40;t=2, "tenant/quota";r=7;t=3600"#,
            r#""tenant";q=100;w=1, "tenant/quota";q=1000;w=86400"#,
        ];
        assert_eq!(
            noted.iter().map(|note| &*note.1).collect::<Vec<_>>(),
            beside
        );
        let noted = notes(ietf, &[("tenant", of(1000))]);
        let alone = [
            r#""tenant/quota";r=7;t=3600"#,
            r#""tenant/quota";q=1000;w=86400"#,
        ];
        assert_eq!(noted.iter().map(|note| &*note.1).collect::<Vec<_>>(), alone);
        let older = notes(BOTH, &[("tenant", of(100))]);
        assert_eq!(older[2].1, r#"1000, 1000;w=86400;name="tenant/quota""#);
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
                    quota: None,
                };
                let item = items(&("tenant", status)).next().unwrap();
                assert!(
                    item.quota >= 1 && item.left <= item.quota,
                    "{limit} {written:?}"
                );
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
