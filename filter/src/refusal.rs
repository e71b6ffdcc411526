//! What a refused request is told: why, and when to come back, for people and for programs.
//!
//! `tollgate-reason` and `tollgate-pause-ms` are exact. `Retry-After` and the IETF fields
//! (draft-ietf-httpapi-ratelimit-headers) count whole seconds, rounded up. A refusal for want of a
//! lease says `temporary-reduced-capacity`: the limit is not the tenant's own; but its status stays
//! 429, because the remedy, to come back later, is the same.

use core::time::Duration;

use tollgate_core::units::{Instant, MICRO};

use crate::host::{GrpcStatus, Host, HostError};
use crate::scopes::Denial;

const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types";

/// A request's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A bucket of the rule at this index is empty.
    Denied { rule: usize, denial: Denial },
    /// The rule at this index found no key and must have one.
    Missing { rule: usize },
    /// The host failed, and the configuration says not to go on then.
    HostFailure,
}

/// A refusal in words.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u32,
    grpc: GrpcStatus,
    message: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

// === impl Refusal ===

impl Refusal {
    /// Answers the request at hand; `rule` is the name of the rule that refused it.
    pub(crate) fn send<H: Host>(
        self,
        host: &H,
        now: Instant,
        rule: &str,
        header: &str,
        grpc: bool,
    ) -> Result<(), HostError> {
        let reply = self.reply(now, rule, header);
        let plain = [("content-type", "application/problem+json")];
        let headers = reply
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        if grpc {
            return host.reply_grpc(reply.grpc, &reply.message, headers.collect());
        }
        let headers = headers.chain(plain).collect();
        host.reply(reply.status, headers, reply.body.as_bytes())
    }

    /// Of two refusals the one that lasts longer; one whose end is unknown lasts longest.
    pub(crate) fn stricter(self, other: Self) -> Self {
        let end = |refusal| match refusal {
            Self::Denied { denial, .. } => denial.retry_at.map_or(u64::MAX, Instant::as_nanos),
            Self::Missing { .. } | Self::HostFailure => u64::MAX,
        };
        if end(other) > end(self) { other } else { self }
    }

    fn reply(self, now: Instant, rule: &str, header: &str) -> Reply {
        match self {
            Self::Denied { denial, .. } => denied(&denial, now, rule),
            Self::Missing { .. } => missing(rule, header),
            Self::HostFailure => host_failure(),
        }
    }
}

// === free functions ===

/// Whether the request at hand wants a gRPC status rather than an HTTP one.
///
/// By Envoy's own rule, to the letter: what Envoy does not take for gRPC, such as gRPC-Web, would be
/// answered with the 200 that carries a gRPC status, but without that status.
///
/// When the host does not say, the answer is HTTP: a request that is refused must be refused.
pub(crate) fn is_grpc<H: Host>(host: &H) -> bool {
    let kind = host.request_header("content-type").unwrap_or_default();
    let rest = kind
        .as_deref()
        .and_then(|kind| kind.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+"))
}

fn denied(denial: &Denial, now: Instant, rule: &str) -> Reply {
    let pause = denial.retry_at.map(|at| at.saturating_since(now));
    let mut headers = vec![
        ("tollgate-reason", format!("{rule}/requests")),
        ("x-envoy-ratelimited", "true".to_owned()),
    ];
    let mut limit = format!("\"{rule}\";r=0");
    if let Some(pause) = pause {
        let seconds = rounded_up(pause, 1_000_000_000).max(1);
        headers.push(("retry-after", seconds.to_string()));
        headers.push((
            "tollgate-pause-ms",
            rounded_up(pause, 1_000_000).to_string(),
        ));
        limit.push_str(&format!(";t={seconds}"));
    }
    headers.push(("ratelimit", limit));
    if let Some((quota, window)) = policy(denial.limit) {
        headers.push((
            "ratelimit-policy",
            format!("\"{rule}\";q={quota};w={window}"),
        ));
    }
    let (kind, title) = match denial.without_lease {
        false => ("quota-exceeded", "Quota exceeded"),
        true => ("temporary-reduced-capacity", "Temporarily reduced capacity"),
    };
    let message = match pause {
        Some(pause) => format!(
            "{rule}/requests: too many requests, the next passes in {} ms",
            rounded_up(pause, 1_000_000)
        ),
        None => format!("{rule}/requests: no requests pass at present"),
    };
    Reply {
        status: 429,
        grpc: GrpcStatus::ResourceExhausted,
        body: format!(
            r#"{{"type":"{PROBLEM_TYPES}#{kind}","title":"{title}","status":429,"detail":"{message}","violated-policies":["{rule}"]}}"#
        ),
        message,
        headers,
    }
}

fn missing(rule: &str, header: &str) -> Reply {
    let message = format!("{rule}/missing: the request has no usable {header} header");
    Reply {
        status: 400,
        grpc: GrpcStatus::InvalidArgument,
        headers: vec![("tollgate-reason", format!("{rule}/missing"))],
        body: format!(
            r#"{{"type":"about:blank","title":"Bad Request","status":400,"detail":"{message}"}}"#
        ),
        message,
    }
}

fn host_failure() -> Reply {
    let message = "the rate limit cannot be checked at present".to_owned();
    Reply {
        status: 429,
        grpc: GrpcStatus::ResourceExhausted,
        headers: vec![("tollgate-reason", "host_failure".to_owned())],
        body: format!(
            r#"{{"type":"{PROBLEM_TYPES}#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":429,"detail":"{message}"}}"#
        ),
        message,
    }
}

/// A rate as the whole number of requests in the fewest whole seconds that it is at least one in;
/// none if nothing or everything passes.
fn policy(micros_per_second: u64) -> Option<(u64, u64)> {
    match micros_per_second {
        0 | u64::MAX => None,
        MICRO.. => Some((micros_per_second / MICRO, 1)),
        slow => Some((1, MICRO.div_ceil(slow))),
    }
}

fn rounded_up(duration: Duration, nanos: u128) -> u64 {
    let units = duration.as_nanos().div_ceil(nanos.max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
        let found = reply.headers.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.as_str())
    }

    fn refused(pause: Option<u64>, limit: u64, without_lease: bool) -> Reply {
        let now = Instant::from_nanos(1_000_000_000);
        let denial = Denial {
            until: now,
            retry_at: pause.map(|nanos| now.saturating_add(Duration::from_nanos(nanos))),
            limit,
            without_lease,
        };
        Refusal::Denied { rule: 0, denial }.reply(now, "tenant", "x-tenant")
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
        let host = crate::fake::Fake::new(&crate::fake::Process::new());
        assert!(!is_grpc(&host));
        for (kind, want) in rows {
            host.set_headers(&[("content-type", kind)]);
            assert_eq!(is_grpc(&host), want, "{kind}");
        }
    }

    #[test]
    fn the_policy_is_in_whole_numbers() {
        let rows = [
            (0, None),
            (u64::MAX, None),
            (1000 * MICRO, Some((1000, 1))),
            (MICRO, Some((1, 1))),
            (MICRO / 2, Some((1, 2))),
            (MICRO / 3, Some((1, 4))),
            (2_500_000, Some((2, 1))),
        ];
        for (limit, want) in rows {
            assert_eq!(policy(limit), want, "{limit}");
        }
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
            (missing("tenant", "x-tenant"), "about:blank", 400),
            (host_failure(), "#temporary-reduced-capacity", 429),
        ];
        for (reply, kind, status) in rows {
            let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
            assert!(body["type"].as_str().unwrap().ends_with(kind), "{body}");
            assert_eq!(body["status"], status);
            assert_eq!(reply.status, status);
        }
    }
}
