//! Sends the answer to a refused request, in HTTP or in gRPC's own way ([`details`]).

use tollgate_core::units::Instant;
use tollgate_engine::{Refusal, Refuser, Reply};

use crate::config::Terms;
use crate::host::{GrpcStatus, Host, HostError};

mod details;

/// The rule that refuses, and the operator's own words for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speaker<'a> {
    /// The rule's name.
    pub(crate) rule: &'a str,
    /// Where it looks for a key, in words.
    pub(crate) wanted: &'a str,
    pub(crate) terms: &'a Terms,
}

// === impl Speaker ===

impl Speaker<'_> {
    /// Answers the request at hand with `refusal`, and leaves reason and pause to the access log.
    pub(crate) fn send<H: Host>(
        self,
        host: &H,
        now: Instant,
        refusal: Refusal,
        grpc: bool,
    ) -> Result<(), HostError> {
        let reply = Reply::new(refusal, now, self.refuser());
        host.note("tollgate.reason", &reply.reason);
        if let Some(pause) = reply.pause_ms() {
            host.note("tollgate.pause_ms", &pause.to_string());
        }
        match grpc {
            true => self.send_grpc(host, &reply),
            false => self.send_http(host, &reply),
        }
    }

    fn refuser(&self) -> Refuser<'_> {
        Refuser {
            rule: self.rule,
            wanted: self.wanted,
            formats: self.terms.formats,
            status: self.terms.status,
        }
    }

    fn send_http<H: Host>(self, host: &H, reply: &Reply) -> Result<(), HostError> {
        // The operator's own words are not for a request that is at fault.
        let (kind, body) = match &self.terms.body {
            Some(body) if reply.is_throttling => (body.content_type.as_str(), body.text.as_str()),
            _ => ("application/problem+json", reply.body.as_str()),
        };
        let headers = self.headers(reply).chain([("content-type", kind)]);
        host.reply(reply.status, headers.collect(), body.as_bytes())
    }

    fn send_grpc<H: Host>(self, host: &H, reply: &Reply) -> Result<(), HostError> {
        let status = match reply.is_throttling {
            true => GrpcStatus::ResourceExhausted,
            false => GrpcStatus::InvalidArgument,
        };
        let metadata = [("reason", reply.reason.as_str()), ("rule", self.rule)];
        let details = details::encoded(
            status.code(),
            &reply.message,
            reply.code,
            &metadata,
            reply.pause,
        );
        let pushback = reply.pause_ms().map(|pause| pause.to_string());
        let more = [("grpc-status-details-bin", details.as_str())]
            .into_iter()
            // By gRFC A6 a client that may retry does so after this time.
            .chain(pushback.as_deref().map(|ms| ("grpc-retry-pushback-ms", ms)));
        let headers = self.headers(reply).chain(more);
        host.reply_grpc(status, &reply.message, headers.collect())
    }

    /// The fields that are the same for both protocols.
    fn headers<'a>(&'a self, reply: &'a Reply) -> impl Iterator<Item = (&'a str, &'a str)> {
        let own = reply.headers.iter();
        let own = own.map(|(name, value)| (*name, value.as_str()));
        let set = self.terms.headers.iter().filter(|_| reply.is_throttling);
        own.chain(set.map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

// === free functions ===

/// Returns whether the request at hand wants a gRPC status rather than an HTTP one.
///
/// By Envoy's own rule, to the letter: what Envoy does not take for gRPC, such as gRPC-Web, would be
/// answered with the 200 that carries a gRPC status, but without that status.
///
/// When the host does not say, the answer is HTTP: a request that is refused must be refused.
pub fn is_grpc<H: Host>(host: &H) -> bool {
    let kind = host.request_header("content-type").unwrap_or_default();
    let rest = kind
        .as_deref()
        .and_then(|kind| kind.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+"))
}

#[cfg(test)]
mod tests;
