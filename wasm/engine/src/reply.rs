//! Answer to a refused request: the reason, and when to come back, for people and for programs.
//!
//! `tollgate-reason` and `tollgate-pause-ms` are exact. `Retry-After` and the fields of the two drafts
//! of draft-ietf-httpapi-ratelimit-headers count whole seconds, rounded up. A refusal for want of a
//! lease says `temporary-reduced-capacity`: the limit is not the tenant's own; but its status stays
//! the same, because the remedy, to come back later, is the same.

use core::time::Duration;

use tollgate_core::lease::Unit;
use tollgate_core::quantity::duration_text;
use tollgate_core::units::{Instant, MICRO, RatePeriod, WindowedRate};

use crate::refusal::{Denial, QuotaPolicy, Refusal};

const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types";
/// Nanoseconds.
const SECOND: u128 = 1_000_000_000;
/// Nanoseconds.
const MILLI: u128 = 1_000_000;

/// The drafts of draft-ietf-httpapi-ratelimit-headers whose fields are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// `RateLimit` and `RateLimit-Policy`, the current ones.
    pub ietf: bool,
    /// `X-RateLimit-*`, as Envoy's own limiters know them.
    pub draft03: bool,
}

/// The rule that refuses, as its refusals speak of it.
#[derive(Clone, Copy, Debug)]
pub struct Refuser<'a> {
    /// Its name.
    pub rule: &'a str,
    /// Where it looks for a key, in words.
    pub wanted: &'a str,
    /// Which fields of the drafts its refusals carry.
    pub formats: Formats,
    /// The HTTP status of its refusals.
    pub status: u32,
}

/// A refusal in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The rule and what it is short of, such as `tenant/requests`.
    pub reason: String,
    /// The same for programs, in capitals, as in the details of a gRPC status.
    pub code: &'static str,
    /// Time after which the request would pass, if that is known.
    pub pause: Option<Duration>,
    /// The HTTP status.
    pub status: u32,
    /// False if the request itself is at fault, so that it is of no use to come back.
    pub is_throttling: bool,
    /// Sentence for people.
    pub message: String,
    /// Header fields, with names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// Body of type `application/problem+json` (RFC 9457).
    pub body: String,
}

// === impl Formats ===

impl Formats {
    /// Returns whether anything is told at all.
    #[inline]
    pub fn is_any(self) -> bool {
        self.ietf || self.draft03
    }
}

// === impl Reply ===

impl Reply {
    /// Returns the answer to a request that is refused at `now`.
    pub fn new(refusal: Refusal, now: Instant, refuser: Refuser<'_>) -> Self {
        let reason = reason(refusal, refuser.rule);
        match refusal {
            Refusal::Denied { denial, .. } => denied(&denial, reason, now, refuser),
            Refusal::Missing { .. } => at_fault(reason, "SCOPE_KEY_MISSING", refuser),
            Refusal::HostFailure => host_failure(reason),
        }
    }

    /// Returns the pause in whole milliseconds, rounded up.
    pub fn pause_ms(&self) -> Option<u64> {
        self.pause.map(|pause| rounded_up(pause, MILLI))
    }
}

// === free functions ===

/// The reason of a refusal in the words of `tollgate-reason`; `rule` is the rule's name.
pub fn reason(refusal: Refusal, rule: &str) -> String {
    match refusal {
        Refusal::Denied { denial, .. } if denial.quota.is_some() => {
            format!("{rule}/{}/quota", denial.unit.name())
        }
        Refusal::Denied { denial, .. } if denial.never => format!("{rule}/cost"),
        Refusal::Denied { denial, .. } => format!("{rule}/{}", denial.unit.name()),
        Refusal::Missing { .. } => format!("{rule}/missing"),
        Refusal::HostFailure => "host_failure".to_owned(),
    }
}

fn denied(denial: &Denial, reason: String, now: Instant, refuser: Refuser<'_>) -> Reply {
    let rule = refuser.rule;
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
    told_limit(&mut headers, refuser.formats, rule, denial, seconds);
    let (code, kind, title) = if denial.without_lease {
        (
            "TEMPORARY_REDUCED_CAPACITY",
            "temporary-reduced-capacity",
            "Temporarily reduced capacity",
        )
    } else {
        ("RATE_LIMITED", "quota-exceeded", "Quota exceeded")
    };
    let message = format!("{reason}: {}", why(denial, pause));
    let status = refuser.status;
    Reply {
        reason,
        code,
        pause,
        status,
        is_throttling: true,
        body: format!(
            r#"{{"type":"{PROBLEM_TYPES}#{kind}","title":"{title}","status":{status},"detail":"{message}","violated-policies":["{policy}"]}}"#,
            policy = violated(rule, denial),
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
        (_, Some(pause)) if denial.quota.is_some() => {
            let window_s = denial.quota.map_or(0, |quota| quota.window_s.get());
            format!(
                "the {what} of {} are used up, the next request passes in {} s",
                duration_text(u64::from(window_s).saturating_mul(1000)),
                seconds(pause)
            )
        }
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
        match &denial.quota {
            Some(quota) => Some(policy_of(*quota)),
            None => policy(denial.limit, denial.period, denial.unit),
        },
        unit_parameter(denial.unit),
    );
    let rule = &violated(rule, denial);
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
        is_throttling: false,
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
        is_throttling: true,
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
/// rate that was written for a `period` is stated as [`WindowedRate`] does, and what is in flight for no window.
pub fn policy(limit: u64, period: Option<RatePeriod>, unit: Unit) -> Option<(u64, String)> {
    match limit {
        0 | u64::MAX => None,
        limit if unit.is_concurrency() => Some((limit / MICRO, String::new())),
        limit => {
            let WindowedRate { tokens, window_s } = WindowedRate::of(limit, period)?;
            Some((tokens, format!(";w={window_s}")))
        }
    }
}

/// The amount of a quota as a whole number, and its window.
pub fn policy_of(quota: QuotaPolicy) -> (u64, String) {
    (quota.amount, format!(";w={}", quota.window_s))
}

/// The name by which the limit is told that refuses: a quota has one of its own.
fn violated(rule: &str, denial: &Denial) -> String {
    match denial.quota {
        Some(_) => quota_name(rule),
        None => rule.to_owned(),
    }
}

/// The name by which a rule's quota is told.
pub fn quota_name(rule: &str) -> String {
    format!("{rule}/quota")
}

/// A time in whole seconds, rounded up.
pub fn seconds(time: Duration) -> u64 {
    rounded_up(time, SECOND)
}

fn rounded_up(duration: Duration, nanos: u128) -> u64 {
    let units = duration.as_nanos().div_ceil(nanos.max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
