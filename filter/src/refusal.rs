//! Sends the answer to a refused request, in HTTP or in gRPC's own way ([`grpc`]).

use tollgate_core::units::Instant;
use tollgate_engine::{Refusal, Refuser, Reply};

use crate::config::Terms;
use crate::host::{Host, HostError};
use crate::notes::{Notes, PAUSE_MS, REASON, TIGHTEST};

use grpc::GrpcStatus;

mod details;
mod grpc;

/// Text for Envoy's `%RESPONSE_CODE_DETAILS%` of each refusal.
pub const RESPONSE_DETAILS: &str = "tollgate";

/// Protocol of a request, and of the answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP, with a status and a body of its own.
    #[default]
    Http,
    /// gRPC, whose status is in header fields.
    Grpc,
    /// gRPC-Web, whose status is in the body, which may be in base64.
    GrpcWeb {
        /// Whether the body is in base64.
        is_text: bool,
    },
}

/// The rule that refuses, and the operator's own words for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speaker<'a> {
    /// The rule's name.
    pub(crate) rule: &'a str,
    /// Where it looks for a key, in words.
    pub(crate) wanted: &'a str,
    pub(crate) terms: &'a Terms,
}

// === impl Protocol ===

impl Protocol {
    /// Returns the protocol of the request at hand, as the filters in front have left it. Those that
    /// translate into gRPC, such as Envoy's for gRPC-Web, expect gRPC's own answer.
    ///
    /// When the host does not say, the answer is HTTP: a request that is refused must be refused.
    pub fn at_hand<H: Host>(host: &H) -> Self {
        let kind = host.request_header("content-type").unwrap_or_default();
        let rest = kind
            .as_deref()
            .and_then(|kind| kind.strip_prefix(b"application/grpc"));
        match rest {
            Some(b"-web" | b"-web+proto") => Self::GrpcWeb { is_text: false },
            Some(b"-web-text" | b"-web-text+proto") => Self::GrpcWeb { is_text: true },
            Some(rest) if rest.is_empty() || rest.starts_with(b"+") => Self::Grpc,
            _ => Self::Http,
        }
    }
}

// === impl Speaker ===

impl Speaker<'_> {
    /// Answers the request at hand with `refusal`, and leaves reason and pause to the access log.
    pub(crate) fn send<H: Host>(
        self,
        host: &H,
        now: Instant,
        refusal: Refusal,
        protocol: Protocol,
    ) -> Result<(), HostError> {
        let reply = Reply::new(refusal, now, self.refuser());
        host.note(self.notes(&reply));
        match protocol {
            Protocol::Http => self.send_http(host, &reply),
            Protocol::Grpc => self.send_grpc(host, &reply),
            Protocol::GrpcWeb { is_text } => self.send_grpc_web(host, &reply, is_text),
        }
    }

    fn notes(&self, reply: &Reply) -> Notes {
        let mut notes = vec![(REASON, reply.reason.clone())];
        let pause = reply.pause_ms();
        notes.extend(pause.map(|pause| (PAUSE_MS, pause.to_string())));
        // They are of a limit that has let the request pass, and the refusal has its own fields, if any.
        notes.extend(TIGHTEST.map(|name| (name, String::new())));
        notes
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

    /// Sends gRPC's answer without messages. The status is whole, and there is no body: Envoy would add
    /// the one and translate the other only for requests that came as gRPC, and a filter in front that
    /// made gRPC of something else takes a body for another answer than gRPC's.
    fn send_grpc<H: Host>(self, host: &H, reply: &Reply) -> Result<(), HostError> {
        let status = GrpcStatus::new(reply, self.rule);
        let headers = self.headers(reply).chain(status.fields());
        let headers = headers.chain([("content-type", "application/grpc")]);
        host.reply(200, headers.collect(), &[])
    }

    /// Sends gRPC-Web's answer without messages. Its status is in the body, where browsers let pages of
    /// other origins read it, too.
    fn send_grpc_web<H: Host>(
        self,
        host: &H,
        reply: &Reply,
        is_text: bool,
    ) -> Result<(), HostError> {
        let body = GrpcStatus::new(reply, self.rule).web_body(is_text);
        let kind = if is_text {
            "application/grpc-web-text+proto"
        } else {
            "application/grpc-web+proto"
        };
        let headers = self.headers(reply).chain([("content-type", kind)]);
        host.reply(200, headers.collect(), &body)
    }

    /// The fields that are the same for all protocols.
    fn headers<'a>(&'a self, reply: &'a Reply) -> impl Iterator<Item = (&'a str, &'a str)> {
        let own = reply.headers.iter();
        let own = own.map(|(name, value)| (*name, value.as_str()));
        let set = self.terms.headers.iter().filter(|_| reply.is_throttling);
        own.chain(set.map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

#[cfg(test)]
mod tests;
