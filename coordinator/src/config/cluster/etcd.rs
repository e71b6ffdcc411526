//! `cluster.etcd`: how etcd is reached, and where in it the cluster is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Location;

use super::{ClusterProblem, place};
use crate::catalog::spec::{LocatedScalar, LocatedValue};
use crate::config::check::Check;
use crate::config::client_tls::{RawClientTls, client_tls};
use crate::config::error::Problem;
use crate::net::tls::ClientFiles;

/// The most endpoints: more members than any etcd cluster has.
pub(super) const ENDPOINTS_MAX: usize = 16;

/// The longest prefix, in bytes.
pub(super) const PREFIX_LEN_MAX: usize = 200;

/// The lease that is taken by default: a node that dies is replaced after it.
const LEASE: Duration = Duration::from_secs(3);

/// How etcd is reached, and where in it the cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// URLs of its members; never empty.
    pub endpoints: Vec<String>,
    /// What the cluster's keys begin with, without a `/` at its end.
    pub prefix: String,
    /// How long etcd remembers a node that is silent; whole seconds, 1 to 60.
    pub lease: Duration,
    /// With what it is spoken to over TLS; none for plain text.
    pub tls: Option<ClientFiles>,
    /// As whom; none where etcd asks for nobody.
    pub login: Option<Login>,
}

/// As whom a coordinator speaks to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The file with the password, which may end with a line break.
    pub password_file: PathBuf,
}

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

// === impl EtcdConfig ===

impl EtcdConfig {
    /// The same, with relative paths starting at `folder`.
    pub(super) fn beside(self, folder: &Path) -> Self {
        let tls = self.tls.map(|tls| tls.beside(folder));
        let login = self.login.map(|login| Login {
            password_file: folder.join(login.password_file),
            ..login
        });
        Self { tls, login, ..self }
    }
}

// === free functions ===

/// Checks the section, which must be there: `around` is where the one around it stands.
pub(super) fn etcd(
    check: &mut Check,
    around: Location,
    raw: Option<&LocatedValue<RawEtcd>>,
) -> Option<EtcdConfig> {
    let Some(LocatedValue { value: raw, at }) = raw else {
        check.refuse(around, "cluster.etcd", Problem::Missing);
        return None;
    };
    let field = |name: &str| format!("cluster.etcd.{name}");
    let endpoints = endpoints(check, *at, raw);
    let prefix = check.value(raw.prefix.as_ref(), &field("prefix"), prefix);
    let lease = check.value(raw.lease.as_ref(), &field("lease"), lease);
    let tls = raw.tls.as_ref();
    let tls = tls.and_then(|tls| client_tls(check, &field("tls"), tls));
    if let (Some(endpoints), Some(said)) = (&endpoints, &raw.tls)
        && !endpoints.iter().any(|url| is_https(url))
    {
        check.refuse(said.at, field("tls"), ClusterProblem::NotHttps);
    }
    let login = login(check, *at, raw);
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
        check.refuse(at, field, Problem::Missing);
        return None;
    };
    let count = said.value.len();
    if !(1..=ENDPOINTS_MAX).contains(&count) {
        check.refuse(said.at, field, ClusterProblem::Endpoints(count));
        return None;
    }
    let mut endpoints: Vec<String> = Vec::with_capacity(count);
    for (index, text) in said.value.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let Some(url) = check.value(Some(text), &field, endpoint) else {
            continue;
        };
        let https = is_https(&url);
        if endpoints
            .first()
            .is_some_and(|first| is_https(first) != https)
        {
            check.refuse(text.at, field, ClusterProblem::Mixed);
        } else if https && raw.tls.is_none() {
            check.refuse(text.at, field, ClusterProblem::NoTls);
        }
        endpoints.push(url);
    }
    Some(endpoints)
}

/// A URL of scheme, host and port, and nothing else.
fn endpoint(text: &str) -> Result<String, Problem> {
    let uri: Option<axum::http::Uri> = text.parse().ok();
    let good = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.port_u16().is_some_and(|port| port != 0)
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.path() == "/"
            && uri.query().is_none()
            && !text.contains('@')
    });
    match good {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(ClusterProblem::Endpoint(text.to_owned()).into()),
    }
}

fn is_https(url: &str) -> bool {
    url.starts_with("https:")
}

fn prefix(text: &str) -> Result<String, Problem> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let fits = text.len() <= PREFIX_LEN_MAX + 1
        && text.starts_with('/')
        && !text.ends_with('/')
        && text.bytes().all(good);
    match fits {
        true => Ok(text.to_owned()),
        false => Err(ClusterProblem::Prefix(text.to_owned()).into()),
    }
}

fn lease(text: &str) -> Result<Duration, Problem> {
    let lease = humantime::parse_duration(text).ok();
    let lease =
        lease.filter(|lease| lease.subsec_nanos() == 0 && (1..=60).contains(&lease.as_secs()));
    lease.ok_or_else(|| ClusterProblem::Lease(text.to_owned()).into())
}

fn login(check: &mut Check, at: Location, raw: &RawEtcd) -> Option<Login> {
    let (user_field, file_field) = ("cluster.etcd.user", "cluster.etcd.password_file");
    let user = check.value(raw.user.as_ref(), user_field, |text| match text {
        "" => Err(Problem::Empty),
        user => Ok(user.to_owned()),
    });
    let password_file = check.value(raw.password_file.as_ref(), file_field, path);
    let missing = match (&raw.user, &raw.password_file) {
        (None, Some(_)) => Some((user_field, &raw.password_file)),
        (Some(_), None) => Some((file_field, &raw.user)),
        _ => None,
    };
    if let Some((field, said)) = missing {
        check.refuse(place(said.as_ref(), at), field, ClusterProblem::HalfLogin);
    }
    Some(Login {
        user: user?,
        password_file: password_file?,
    })
}

fn path(text: &str) -> Result<PathBuf, Problem> {
    match text {
        "" => Err(Problem::Empty),
        path => Ok(path.into()),
    }
}
