//! Answer to a refused request: the reason, and when to come back, for people and for programs.
//!
//! `tollgate-reason` and `tollgate-pause-ms` are exact. `Retry-After` and the fields of the two drafts
//! of draft-ietf-httpapi-ratelimit-headers count whole seconds, rounded up. A refusal for want of a
//! lease says `temporary-reduced-capacity`: the limit is not the tenant's own; but its status stays
//! the same, because the remedy, to come back later, is the same. gRPC calls are told in gRPC's own
//! way ([`details`]).

use core::time::Duration;

use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, MICRO};

use tollgate_engine::{Denial, Refusal};

use crate::config::{Formats, Terms};
use crate::host::{GrpcStatus, Host, HostError};

mod details;

const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types";
/// Nanoseconds.
const SECOND: u128 = 1_000_000_000;
/// Nanoseconds.
const MILLI: u128 = 1_000_000;

/// The rule that refuses, as its refusals speak of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refuser<'a> {
    /// Its name.
    pub(crate) rule: &'a str,
    /// Where it looks for a key, in words.
    pub(crate) wanted: &'a str,
    pub(crate) terms: &'a Terms,
}

/// A refusal in words.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    /// `tenant/requests`, and for the metadata of gRPC in capitals.
    reason: String,
    code: &'static str,
    pause: Option<Duration>,
    status: u32,
    grpc: GrpcStatus,
    message: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

// === impl Reply ===

impl Reply {
    fn send_http<H: Host>(&self, host: &H, terms: &Terms) -> Result<(), HostError> {
        let (kind, body) = match &terms.body {
            Some(body) if self.is_throttling() => (body.content_type.as_str(), body.text.as_str()),
            _ => ("application/problem+json", self.body.as_str()),
        };
        let headers = self.headers(terms).chain([("content-type", kind)]);
        host.reply(self.status, headers.collect(), body.as_bytes())
    }

    fn send_grpc<H: Host>(&self, host: &H, refuser: Refuser<'_>) -> Result<(), HostError> {
        let metadata = [("reason", self.reason.as_str()), ("rule", refuser.rule)];
        let details = details::encoded(
            self.grpc.code(),
            &self.message,
            self.code,
            &metadata,
            self.pause,
        );
        let pushback = self.pause.map(|pause| rounded_up(pause, MILLI).to_string());
        let more = [("grpc-status-details-bin", details.as_str())]
            .into_iter()
            // By gRFC A6 a client that may retry does so after this time.
            .chain(pushback.as_deref().map(|ms| ("grpc-retry-pushback-ms", ms)));
        let headers = self.headers(refuser.terms).chain(more);
        host.reply_grpc(self.grpc, &self.message, headers.collect())
    }

    /// The fields that are the same for both protocols.
    fn headers<'a>(&'a self, terms: &'a Terms) -> impl Iterator<Item = (&'a str, &'a str)> {
        let own = self.headers.iter();
        let own = own.map(|(name, value)| (*name, value.as_str()));
        let set = terms.headers.iter().filter(|_| self.is_throttling());
        own.chain(set.map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// Returns whether the operator's own words are for this: not for a request that is at fault.
    fn is_throttling(&self) -> bool {
        self.grpc == GrpcStatus::ResourceExhausted
    }
}

// === free functions ===

/// Answers the request at hand with `refusal`, and leaves reason and pause to the access log.
pub(crate) fn send<H: Host>(
    host: &H,
    now: Instant,
    refusal: Refusal,
    refuser: Refuser<'_>,
    grpc: bool,
) -> Result<(), HostError> {
    let reply = reply(refusal, now, refuser);
    host.note("tollgate.reason", &reply.reason);
    if let Some(pause) = reply.pause {
        host.note("tollgate.pause_ms", &rounded_up(pause, MILLI).to_string());
    }
    match grpc {
        true => reply.send_grpc(host, refuser),
        false => reply.send_http(host, refuser.terms),
    }
}

/// The reason of a refusal in the words of `tollgate-reason`; `rule` is the rule's name.
pub(crate) fn reason(refusal: Refusal, rule: &str) -> String {
    match refusal {
        Refusal::Denied { denial, .. } if denial.never => format!("{rule}/cost"),
        Refusal::Denied { denial, .. } => format!("{rule}/{}", denial.unit.name()),
        Refusal::Missing { .. } => format!("{rule}/missing"),
        Refusal::HostFailure => "host_failure".to_owned(),
    }
}

fn reply(refusal: Refusal, now: Instant, refuser: Refuser<'_>) -> Reply {
    let reason = reason(refusal, refuser.rule);
    match refusal {
        Refusal::Denied { denial, .. } => denied(&denial, reason, now, refuser),
        Refusal::Missing { .. } => at_fault(reason, "SCOPE_KEY_MISSING", refuser),
        Refusal::HostFailure => host_failure(reason),
    }
}

/// Returns whether the request at hand wants a gRPC status rather than an HTTP one.
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

fn denied(denial: &Denial, reason: String, now: Instant, refuser: Refuser<'_>) -> Reply {
    let (rule, terms) = (refuser.rule, refuser.terms);
    let pause = denial.retry_at.map(|at| at.saturating_since(now));
    let seconds = pause.map(|pause| seconds(pause).max(1));
    let mut headers = vec![
        ("tollgate-reason", reason.clone()),
        ("x-envoy-ratelimited", "true".to_owned()),
    ];
    if let (Some(pause), Some(seconds)) = (pause, seconds) {
        headers.push(("retry-after", seconds.to_string()));
        headers.push(("tollgate-pause-ms", rounded_up(pause, MILLI).to_string()));
    }
    told_limit(&mut headers, terms.formats, rule, denial, seconds);
    let (code, kind, title) = match denial.without_lease {
        false => ("RATE_LIMITED", "quota-exceeded", "Quota exceeded"),
        true => (
            "TEMPORARY_REDUCED_CAPACITY",
            "temporary-reduced-capacity",
            "Temporarily reduced capacity",
        ),
    };
    let message = format!("{reason}: {}", why(denial, pause));
    let status = terms.status;
    Reply {
        reason,
        code,
        pause,
        status,
        grpc: GrpcStatus::ResourceExhausted,
        body: format!(
            r#"{{"type":"{PROBLEM_TYPES}#{kind}","title":"{title}","status":{status},"detail":"{message}","violated-policies":["{rule}"]}}"#
        ),
        message,
        headers,
    }
}

/// Why a request does not pass, for people.
fn why(denial: &Denial, pause: Option<Duration>) -> String {
    let what = match denial.unit {
        Unit::Requests => "requests",
        Unit::RequestBytes | Unit::ResponseBytes => "bytes",
        Unit::Concurrency => "requests in flight",
    };
    match (denial.never, pause) {
        (true, _) => "the request costs more than passes at once".to_owned(),
        (_, Some(pause)) => {
            let ms = rounded_up(pause, MILLI);
            format!("too many {what}, the next request passes in {ms} ms")
        }
        (_, None) if denial.limit > 0 && denial.unit.is_concurrency() => format!("too many {what}"),
        _ => "no requests pass at present".to_owned(),
    }
}

/// The fields of the drafts: what the limit is, that nothing is left of it, and when to come back.
fn told_limit(
    headers: &mut Vec<(&'static str, String)>,
    formats: Formats,
    rule: &str,
    denial: &Denial,
    seconds: Option<u64>,
) {
    let (quota, unit) = (
        policy(denial.limit, denial.unit),
        unit_parameter(denial.unit),
    );
    if formats.ietf {
        let after = seconds.map_or_else(String::new, |seconds| format!(";t={seconds}"));
        headers.push(("ratelimit", format!("\"{rule}\";r=0{after}")));
        if let Some((quota, window)) = &quota {
            headers.push((
                "ratelimit-policy",
                format!("\"{rule}\";q={quota}{unit}{window}"),
            ));
        }
    }
    if formats.draft03 {
        if let Some((quota, window)) = &quota {
            headers.push((
                "x-ratelimit-limit",
                format!("{quota}, {quota}{window};name=\"{rule}\""),
            ));
        }
        headers.push(("x-ratelimit-remaining", "0".to_owned()));
        if let Some(seconds) = seconds {
            headers.push(("x-ratelimit-reset", seconds.to_string()));
        }
    }
}

fn at_fault(reason: String, code: &'static str, refuser: Refuser<'_>) -> Reply {
    let message = format!("{reason}: the request has no usable {}", refuser.wanted);
    let detail = serde_json::Value::String(message.clone());
    Reply {
        code,
        pause: None,
        status: 400,
        grpc: GrpcStatus::InvalidArgument,
        headers: vec![("tollgate-reason", reason.clone())],
        body: format!(
            r#"{{"type":"about:blank","title":"Bad Request","status":400,"detail":{detail}}}"#
        ),
        reason,
        message,
    }
}

fn host_failure(reason: String) -> Reply {
    let message = "the rate limit cannot be checked at present".to_owned();
    Reply {
        code: "TEMPORARY_REDUCED_CAPACITY",
        pause: None,
        status: 429,
        grpc: GrpcStatus::ResourceExhausted,
        headers: vec![("tollgate-reason", reason.clone())],
        reason,
        body: format!(
            r#"{{"type":"{PROBLEM_TYPES}#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":429,"detail":"{message}"}}"#
        ),
        message,
    }
}

/// The unit as the IETF draft says it; requests are what it assumes.
fn unit_parameter(unit: Unit) -> &'static str {
    match unit {
        Unit::Requests => "",
        Unit::RequestBytes | Unit::ResponseBytes => ";qu=\"content-bytes\"",
        Unit::Concurrency => ";qu=\"concurrent-requests\"",
    }
}

/// A limit as a whole number, and the window that it is for; none if nothing or everything passes. A
/// rate is for the fewest whole seconds that it is at least one in, and what is in flight for none.
pub(crate) fn policy(limit: u64, unit: Unit) -> Option<(u64, String)> {
    match limit {
        0 | u64::MAX => None,
        limit if unit.is_concurrency() => Some((limit / MICRO, String::new())),
        limit @ MICRO.. => Some((limit / MICRO, ";w=1".to_owned())),
        slow => Some((1, format!(";w={}", MICRO.div_ceil(slow)))),
    }
}

/// A time in whole seconds, rounded up.
pub(crate) fn seconds(time: Duration) -> u64 {
    rounded_up(time, SECOND)
}

fn rounded_up(duration: Duration, nanos: u128) -> u64 {
    let units = duration.as_nanos().div_ceil(nanos.max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
