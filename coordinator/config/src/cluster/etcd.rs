//! Section `cluster.etcd`: the connection to etcd, and the cluster's place in it.

use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Location;
use tollgate_cluster::config::{EtcdConfig, Login};

use crate::catalog::check::{Check, Rule, duration, not_empty};
use crate::catalog::spec::{LocatedScalar, LocatedValue};
use crate::client_tls::{RawClientTls, client_tls};

/// The most endpoints: more members than any etcd cluster has.
const ENDPOINTS_MAX: usize = 16;

/// The longest prefix, in bytes.
const PREFIX_LEN_MAX: usize = 200;

/// The default lease, after which a dead node is replaced.
const LEASE: Duration = Duration::from_secs(3);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEtcd {
    endpoints: Option<LocatedValue<Vec<LocatedScalar>>>,
    prefix: Option<LocatedScalar>,
    lease: Option<LocatedScalar>,
    tls: Option<LocatedValue<RawClientTls>>,
    user: Option<LocatedScalar>,
    password_file: Option<LocatedScalar>,
}

// === free functions ===

/// Checks the section, which must be there: `around` is where the one around it stands.
pub(super) fn etcd(
    check: &mut Check,
    around: Location,
    raw: Option<&LocatedValue<RawEtcd>>,
) -> Option<EtcdConfig> {
    let Some(LocatedValue { value: raw, at }) = raw else {
        check.missing(around, "cluster.etcd");
        return None;
    };
    let field = |name: &str| format!("cluster.etcd.{name}");
    let endpoints = endpoints(check, *at, raw);
    let prefix = check.value(&raw.prefix, &field("prefix"), prefix);
    let lease = check.value(&raw.lease, &field("lease"), lease);
    let tls = raw.tls.as_ref();
    let tls = tls.and_then(|tls| client_tls(check, &field("tls"), tls));
    if let (Some(endpoints), Some(said)) = (&endpoints, &raw.tls)
        && !endpoints.iter().any(|url| is_https(url))
    {
        check.refuse(
            said.at,
            field("tls"),
            "is for https, but the endpoints are http",
        );
    }
    let login = login(check, raw);
    Some(EtcdConfig {
        endpoints: endpoints?,
        prefix: prefix.unwrap_or_else(|| "/tollgate".to_owned()),
        lease: lease.unwrap_or(LEASE),
        tls,
        login,
    })
}

fn endpoints(check: &mut Check, at: Location, raw: &RawEtcd) -> Option<Vec<String>> {
    let field = "cluster.etcd.endpoints";
    let Some(said) = &raw.endpoints else {
        check.missing(at, field);
        return None;
    };
    let count = said.value.len();
    if !(1..=ENDPOINTS_MAX).contains(&count) {
        let rule = format!("has {count} endpoints, not 1 to {ENDPOINTS_MAX}");
        check.refuse(said.at, field, rule);
        return None;
    }
    let mut endpoints: Vec<String> = Vec::with_capacity(count);
    for (index, text) in said.value.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let Some(url) = check.value(text, &field, endpoint) else {
            continue;
        };
        let https = is_https(&url);
        if endpoints
            .first()
            .is_some_and(|first| is_https(first) != https)
        {
            let rule = "is https where others are http: all endpoints must be one or the other";
            check.refuse(text.at, field, rule);
        } else if https && raw.tls.is_none() {
            check.refuse(text.at, field, "is https, which needs cluster.etcd.tls.ca");
        }
        endpoints.push(url);
    }
    Some(endpoints)
}

/// A URL of scheme, host and port, and nothing else.
fn endpoint(text: &str) -> Result<String, Rule> {
    let uri: Option<http::Uri> = text.parse().ok();
    let good = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.port_u16().is_some_and(|port| port != 0)
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.path() == "/"
            && uri.query().is_none()
            && !text.contains('@')
    });
    if good {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err(
            format!("{text:?} is not an endpoint like http://127.0.0.1:2379 or https://etcd:2379")
                .into(),
        )
    }
}

fn is_https(url: &str) -> bool {
    url.starts_with("https:")
}

fn prefix(text: &str) -> Result<String, Rule> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let fits = text.len() <= PREFIX_LEN_MAX + 1
        && text.starts_with('/')
        && !text.ends_with('/')
        && text.bytes().all(good);
    if fits {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not a prefix: `/`, then up to {PREFIX_LEN_MAX} letters, digits or any of \
             `/._-`, not ending with `/`"
        )
        .into())
    }
}

fn lease(text: &str) -> Result<Duration, Rule> {
    let lease = duration(text)?;
    if lease.subsec_nanos() == 0 && (1..=60).contains(&lease.as_secs()) {
        Ok(lease)
    } else {
        Err(format!("{text:?} is not a whole number of seconds from 1s to 60s").into())
    }
}

fn login(check: &mut Check, raw: &RawEtcd) -> Option<Login> {
    let user = check.value(&raw.user, "cluster.etcd.user", not_empty);
    let password_file = check.path(&raw.password_file, "cluster.etcd.password_file");
    let file = ("password_file", &raw.password_file);
    check.pair("cluster.etcd", ("user", &raw.user), file);
    Some(Login {
        user: user?,
        password_file: password_file?,
    })
}
