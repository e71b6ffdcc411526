//! Coordinators of a configuration: Envoy's cluster of that name, or an address that Envoy connects to
//! without a cluster.

use core::net::Ipv6Addr;
use core::ops::RangeInclusive;

use super::{ConfigError, Fields, Value};
use crate::grpc_service::{Address, Files, Pem, Tls};

/// The longest name of a cluster, in bytes: with an authority and two lengths of one byte each a
/// message has 127 bytes after it.
const CLUSTER_LEN_MAX: usize = 120;
/// The longest address, server name and path of a file, for the same reason.
const TEXT_LEN_MAX: usize = 120;
/// Seconds until Envoy reads the files of TLS again: from one to a week.
const REREAD_SECONDS: RangeInclusive<u64> = 1..=7 * 24 * 3600;

/// The beginning of certificates in PEM, and their most bytes: a longer message cannot be written.
const PEM_BEGIN: &str = "-----BEGIN";
const PEM_LEN_MAX: usize = 7000;

const RULE: &str = "the name of Envoy's cluster of coordinators, 1 to 120 bytes, or an object with their address, \
     {\"address\": \"HOST:PORT\"}";
const ADDRESS_RULE: &str = "HOST:PORT with a DNS name, an IPv4 address or an IPv6 address in brackets, and a \
     port from 1 to 65535, together at most 120 bytes";
const FILE_RULE: &str = "the absolute path of a file on Envoy's machine, at most 120 bytes";
const TOGETHER_RULE: &str = "tls.cert and tls.key are the two files of one certificate";

/// Reads the field `coordinator`: the name under which the engine knows the coordinators, and their
/// address if they have no cluster.
pub(super) fn coordinator(
    root: &mut Fields<'_>,
    unknown: &mut Vec<String>,
) -> Result<(String, Option<Address>), ConfigError> {
    let value = root.take("coordinator");
    match value.ok_or_else(|| root.required("coordinator", RULE))? {
        Value::String(name) if names_cluster(name) => Ok((name.clone(), None)),
        Value::Object(_) => {
            let address = root.object("coordinator")?;
            let mut address = address.ok_or_else(|| root.required("coordinator", RULE))?;
            let read = read_address(&mut address, unknown)?;
            Ok((read.name(), Some(read)))
        }
        other => Err(root.wrong("coordinator", other, RULE)),
    }
}

/// Returns whether `name` can be that of a cluster. Those that [`Address::name`] gives cannot.
pub(super) fn names_cluster(name: &str) -> bool {
    (1..=CLUSTER_LEN_MAX).contains(&name.len())
        && !name.chars().any(char::is_control)
        && !Address::SCHEMES
            .iter()
            .any(|scheme| name.starts_with(scheme))
}

fn read_address(
    fields: &mut Fields<'_>,
    unknown: &mut Vec<String>,
) -> Result<Address, ConfigError> {
    let target = fields
        .text("address")?
        .ok_or_else(|| fields.required("address", ADDRESS_RULE))?;
    if !is_address(target) {
        return Err(fields.wrong("address", target, ADDRESS_RULE));
    }
    let tls = match fields.object("tls")? {
        None => None,
        Some(mut tls) => Some(read_tls(&mut tls, unknown)?),
    };
    fields.finish(unknown);
    Ok(Address {
        target: target.to_owned(),
        tls,
    })
}

fn read_tls(fields: &mut Fields<'_>, unknown: &mut Vec<String>) -> Result<Tls, ConfigError> {
    let ca = ca(fields)?;
    let files = match (file(fields, "cert")?, file(fields, "key")?) {
        (Some(cert), Some(key)) => Some(Files { cert, key }),
        (None, None) => None,
        (Some(_), None) => return Err(fields.required("key", TOGETHER_RULE)),
        (None, Some(_)) => return Err(fields.required("cert", TOGETHER_RULE)),
    };
    let server_name = fields.text("server_name")?;
    let rule = "a DNS name of at most 120 bytes";
    if let Some(name) = server_name.filter(|name| name.len() > TEXT_LEN_MAX || !is_name(name)) {
        return Err(fields.wrong("server_name", name, rule));
    }
    let reread_seconds = match fields.whole("reread_seconds", 0, REREAD_SECONDS)? {
        0 => None,
        seconds => Some(seconds),
    };
    fields.finish(unknown);
    Ok(Tls {
        ca,
        files,
        server_name: server_name.map(str::to_owned),
        reread_seconds,
    })
}

fn ca(fields: &mut Fields<'_>) -> Result<Option<Pem>, ConfigError> {
    match fields.text("ca")? {
        Some(pem) if pem.starts_with(PEM_BEGIN) && pem.len() <= PEM_LEN_MAX => {
            Ok(Some(Pem::Text(pem.to_owned())))
        }
        Some(pem) if !is_path(pem) => {
            let rule = format!("{FILE_RULE}, or the certificates in PEM, at most 7000 bytes");
            Err(fields.wrong("ca", pem, &rule))
        }
        path => Ok(path.map(|path| Pem::File(path.to_owned()))),
    }
}

fn file(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<String>, ConfigError> {
    let Some(path) = fields.text(name)? else {
        return Ok(None);
    };
    if is_path(path) {
        Ok(Some(path.to_owned()))
    } else {
        Err(fields.wrong(name, path, FILE_RULE))
    }
}

/// Returns whether `text` can be the absolute path of a file.
fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && (2..=TEXT_LEN_MAX).contains(&text.len())
        && !text.chars().any(char::is_control)
}

/// Returns whether `text` is a host and a port.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = digits && port.parse::<u16>().is_ok_and(|port| port > 0);
    let ipv6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_host = match ipv6 {
        Some(ip) => ip.parse::<Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    text.len() <= TEXT_LEN_MAX && is_port && is_host
}

/// Returns whether `text` can be a DNS name, or an IPv4 address.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
    text.split('.').all(is_label)
}
