//! Destination of a gRPC call, as Envoy takes it: a serialized `envoy.config.core.v3.GrpcService`.
//!
//! Envoy takes the string of a gRPC call for such a message if it parses as one, and for a cluster's
//! name only otherwise; and some names do parse, so a cluster is called by a message as well.
//!
//! The SDK takes a `&str`, so the message has to be valid UTF-8, and a length from 128 on usually
//! is not. [`number`] writes those that are, and [`message`] makes its length one of them with a
//! field that Envoy does not know.

use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::hash::DefaultHasher;

use tollgate_core::units::Instant;

/// The authority of calls to clusters whose names are no host's.
const ANY_HOST: &str = "any";
/// The first part of the names of Envoy's statistics of the connection.
const STAT_PREFIX: &str = "tollgate";
/// Settings of the connection, in milliseconds. By themselves it would be tried again only after up to
/// two minutes, its name looked up again only after half a minute, and a host that has gone without a word would be asked
/// for a quarter of an hour.
const CHANNEL_SETTINGS: [(&str, u32); 7] = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.dns_min_time_between_resolutions_ms", 2000),
    ("grpc.keepalive_time_ms", 7000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.enable_http_proxy", 0),
];

/// Seconds until Envoy reads the files of TLS again.
pub const REREAD_SECONDS: u64 = 3600;

/// Coordinators that a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// A cluster of Envoy's, by its name.
    Cluster(&'a str),
    /// An address outside of Envoy's clusters.
    Address(&'a Address),
}

/// Address of coordinators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `HOST:PORT`.
    pub target: String,
    /// TLS, if it is spoken.
    pub tls: Option<Tls>,
}

/// TLS to an address; paths are those of Envoy's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificates of the issuers that are trusted; without them those of the system.
    pub ca: Option<Pem>,
    /// The client's certificate, for mutual TLS.
    pub files: Option<Files>,
    /// The name in the server's certificate, if that is not the address's host.
    pub server_name: Option<String>,
    /// Seconds after which the files are read again, if not [`REREAD_SECONDS`].
    pub reread_seconds: Option<u64>,
}

/// Certificates in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pem {
    /// The path of a file.
    File(String),
    /// The certificates themselves, at most 7000 bytes.
    Text(String),
}

/// Files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate with its issuers.
    pub cert: String,
    /// Its key.
    pub key: String,
}

// === impl Address ===

impl Address {
    /// The beginnings of the names of addresses.
    pub(crate) const SCHEMES: [&str; 2] = ["grpc://", "grpcs://"];

    /// Returns the name under which the engine knows the coordinators at the address. Another way to
    /// connect is another name, because a plugin that cannot connect must not keep the leases of one
    /// that can.
    pub fn name(&self) -> String {
        let [plain, secure] = Self::SCHEMES;
        let target = &self.target;
        let Some(tls) = &self.tls else {
            return format!("{plain}{target}");
        };
        let files = tls.files.as_ref();
        let parts = [
            ("ca", tls.ca.as_ref().map(Pem::name)),
            ("cert", files.map(|files| files.cert.clone())),
            ("key", files.map(|files| files.key.clone())),
            ("server_name", tls.server_name.clone()),
            (
                "reread_seconds",
                tls.reread_seconds.map(|seconds| seconds.to_string()),
            ),
        ];
        let parts = parts.into_iter();
        let parts = parts.filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let parts: Vec<String> = parts.collect();
        let query = if parts.is_empty() { "" } else { "?" };
        format!("{secure}{target}{query}{}", parts.join("&"))
    }

    /// Returns the message for a call now: `{google_grpc: {target_uri, channel_credentials,
    /// stat_prefix, channel_args}}`.
    ///
    /// Envoy keeps a connection for each message, with the certificates that it read at the first call.
    /// So a message with TLS changes now and then.
    pub(crate) fn service(&self, now: Instant) -> String {
        let mut inner = text('\x0a', &self.target);
        if let Some(tls) = &self.tls {
            inner += &message('\x12', &message('\x0a', &tls.credentials()));
        }
        inner += &text('\x22', STAT_PREFIX);
        inner += &message('\x42', &self.channel_arguments(now));
        message('\x12', &inner)
    }

    fn channel_arguments(&self, now: Instant) -> String {
        let mut arguments = String::new();
        for (name, value) in CHANNEL_SETTINGS {
            let value = number(value).unwrap_or_default();
            arguments += &argument(name, &format!("\x10{value}"));
        }
        if let Some(tls) = &self.tls {
            if let Some(name) = &tls.server_name {
                let value = text('\x0a', name);
                arguments += &argument("grpc.ssl_target_name_override", &value);
            }
            // None of gRPC's: it only sets a connection apart from that with earlier certificates.
            let reading = text('\x0a', &tls.reading(now).to_string());
            arguments += &argument("tollgate.reading", &reading);
        }
        arguments
    }
}

// === impl Tls ===

impl Tls {
    /// Returns `{root_certs, private_key, cert_chain}`, each `{filename}`.
    fn credentials(&self) -> String {
        let mut credentials = String::new();
        if let Some(ca) = &self.ca {
            credentials += &message('\x0a', &ca.data_source());
        }
        if let Some(files) = &self.files {
            credentials += &message('\x12', &text('\x0a', &files.key));
            credentials += &message('\x1a', &text('\x0a', &files.cert));
        }
        credentials
    }

    /// Returns how often the files have been read anew.
    fn reading(&self, now: Instant) -> u64 {
        let seconds = self.reread_seconds.unwrap_or(REREAD_SECONDS);
        let interval = Duration::from_secs(seconds).as_nanos();
        let reading = u128::from(now.as_nanos()).checked_div(interval);
        reading
            .and_then(|reading| u64::try_from(reading).ok())
            .unwrap_or_default()
    }
}

// === impl Pem ===

impl Pem {
    /// Returns a short name: the path, or a hash of the certificates.
    fn name(&self) -> String {
        match self {
            Self::File(path) => path.clone(),
            Self::Text(certificates) => {
                let mut hasher = DefaultHasher::new();
                certificates.hash(&mut hasher);
                format!("{:016x}", hasher.finish())
            }
        }
    }

    /// Returns `{filename}` or `{inline_string}`. Line breaks after the certificates make a length that
    /// can be written.
    fn data_source(&self) -> String {
        match self {
            Self::File(path) => text('\x0a', path),
            Self::Text(certificates) => {
                let texts = (0..128).map(|breaks| format!("{certificates}{}", "\n".repeat(breaks)));
                let text = texts.filter_map(|text| Some(format!("\x1a{}{text}", length(&text)?)));
                text.take(1).collect()
            }
        }
    }
}

// === free functions ===

/// Returns the message for a call to `destination` now.
pub(crate) fn of(destination: Destination<'_>, now: Instant) -> String {
    match destination {
        Destination::Cluster(name) => of_cluster(name),
        Destination::Address(address) => address.service(now),
    }
}

/// Returns whether `bytes` may be a serialized protobuf message, known fields or not: true in doubt.
pub(crate) fn may_be_message(mut bytes: &[u8]) -> bool {
    let mut groups = Vec::new();
    while !bytes.is_empty() {
        let Some((tag, rest)) = varint(bytes) else {
            return false;
        };
        let rest = match tag & 7 {
            0 => varint(rest).map(|(_, rest)| rest),
            1 => rest.get(8..),
            2 => varint(rest).and_then(|(len, rest)| rest.get(usize::try_from(len).ok()?..)),
            5 => rest.get(4..),
            3 => {
                groups.push(tag >> 3);
                Some(rest)
            }
            4 if groups.pop() == Some(tag >> 3) => Some(rest),
            _ => None,
        };
        let Some(rest) = rest else { return false };
        bytes = rest;
    }
    groups.is_empty()
}

/// The number that `bytes` begin with, and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = bytes.iter().take(10).position(|byte| *byte < 0x80)?;
    let (number, rest) = bytes.split_at_checked(len.saturating_add(1))?;
    let number = number.iter().rev().fold(0_u64, |number, byte| {
        number.wrapping_shl(7) | u64::from(byte & 0x7f)
    });
    Some((number, rest))
}

/// Returns the message for the cluster called `name`: `{envoy_grpc: {cluster_name, authority}}`.
///
/// Without an authority Envoy sends the cluster's name in the field `:authority`, and servers refuse
/// a request with one that no host can have, such as Istio's `outbound|7710||tollgate.infra`.
pub(crate) fn of_cluster(name: &str) -> String {
    let authority = authority(name);
    let authority = if authority == name { "" } else { authority };
    message('\x0a', &(text('\x0a', name) + &text('\x12', authority)))
}

/// Returns the field `:authority` of calls to the cluster called `name`.
pub fn authority(name: &str) -> &str {
    if is_host(name) { name } else { ANY_HOST }
}

/// Returns whether `name` can be a host's, which every server accepts as an authority.
fn is_host(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Returns an argument of the channel: an entry of a map, whose `value` is a message.
fn argument(name: &str, value: &str) -> String {
    message('\x0a', &(text('\x0a', name) + &message('\x12', value)))
}

/// Returns a field with a text, shorter than 128 bytes; nothing for an empty one.
fn text(tag: char, value: &str) -> String {
    match value {
        "" => String::new(),
        _ => message(tag, value),
    }
}

/// Returns a field of a message with the fields `inner`, or with a text shorter than 128 bytes. It is
/// longer by up to 100 bytes if it has to be.
fn message(tag: char, inner: &str) -> String {
    const UNKNOWN: char = '\x7a';
    if let Some(len) = length(inner) {
        return format!("{tag}{len}{inner}");
    }
    let paddings = (0..128).map(|len| {
        let padding = " ".repeat(len);
        format!("{inner}{UNKNOWN}{}{padding}", char::from(len as u8))
    });
    let fitting = paddings.filter_map(|inner| Some(format!("{tag}{}{inner}", length(&inner)?)));
    fitting.take(1).collect()
}

/// Returns the length of `inner`, if it can be written.
fn length(inner: &str) -> Option<String> {
    number(u32::try_from(inner.len()).ok()?)
}

/// Returns a number as a varint that is valid UTF-8: one ASCII byte, or a character of two bytes and an
/// ASCII byte, which may be zero. None for the numbers that cannot be written so.
fn number(value: u32) -> Option<String> {
    let [low, middle, high] = [value & 0x7f, value >> 7 & 0x7f, value >> 14];
    let ascii = |part: u32| u8::try_from(part).ok().filter(u8::is_ascii).map(char::from);
    if value == low {
        return ascii(low).map(String::from);
    }
    if !(0x42..0x60).contains(&low) || middle >= 0x40 {
        return None;
    }
    let two_bytes = char::from_u32((low & 0x1f) << 6 | middle)?;
    Some(String::from_iter([two_bytes, ascii(high)?]))
}

#[cfg(test)]
mod tests;
