//! Who may ask what, decided before anything else looks at a request.
//!
//! Reading needs the role viewer, everything else the role admin; what is not named here needs a
//! token, so a route that is added later is closed until somebody opens it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::sync::watch;

use super::problem::{NO_TOKEN, RestError};
use crate::api::metrics::{ApiMetrics, AuthFault};
use crate::config::tokens::{Role, Token};
use crate::config::{Admin, Config};
use crate::observe::logging::AUDIT;

/// What the guard goes by.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    /// The newest configuration.
    pub(super) config: watch::Receiver<Arc<Config>>,
    pub(super) metrics: ApiMetrics,
}

/// Lets a request pass that may, and answers the others.
pub(super) async fn guard(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let config = gate.config.borrow().clone();
    let entrance = Entrance::of(&request);
    let by = match pass(&config.admin, entrance, &request) {
        Ok(by) => by,
        Err((fault, error)) => {
            gate.metrics.count_auth_fault(fault);
            return refuse(entrance, error);
        }
    };
    if entrance.needs() == Role::Viewer {
        return next.run(request).await;
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    tracing::info!(target: AUDIT, ?by, %method, ?path, status, "admin write");
    response
}

/// What a request wants to enter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entrance {
    /// Probes of the process, which tell nothing else.
    Health,
    Metrics,
    /// The status page, which a person looks at in a browser.
    Status,
    Read,
    Write,
}

// === impl Entrance ===

impl Entrance {
    fn of(request: &Request) -> Self {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            _ if !reads => Self::Write,
            "/healthz" | "/readyz" => Self::Health,
            "/metrics" => Self::Metrics,
            "/" => Self::Status,
            _ => Self::Read,
        }
    }

    fn needs(self) -> Role {
        match self {
            Self::Write => Role::Admin,
            _ => Role::Viewer,
        }
    }

    /// Whether everyone may, whatever the tokens.
    fn is_public(self, admin: &Admin) -> bool {
        match self {
            Self::Health => true,
            Self::Metrics => admin.public.metrics,
            Self::Status => admin.public.status,
            Self::Read | Self::Write => false,
        }
    }
}

// === free functions ===

/// Whose token lets `request` pass; none if it needs no token.
fn pass(
    admin: &Admin,
    entrance: Entrance,
    request: &Request,
) -> Result<Option<String>, (AuthFault, RestError)> {
    let headers = request.headers();
    if entrance.is_public(admin) {
        return Ok(None);
    }
    if entrance == Entrance::Write {
        own_origin(request).map_err(|error| (AuthFault::Origin, error))?;
    }
    if admin.tokens.is_empty() {
        if !admin.insecure {
            own_host(request).map_err(|error| (AuthFault::Origin, error))?;
        }
        return Ok(None);
    }
    let Some(presented) = presented(entrance, headers) else {
        return Err((AuthFault::Missing, RestError::Unauthenticated(NO_TOKEN)));
    };
    let Some(token) = admin.tokens.find(&presented) else {
        let error = RestError::Unauthenticated("nobody has this token");
        return Err((AuthFault::Unknown, error));
    };
    allows(token, entrance.needs()).map_err(|error| (AuthFault::Role, error))?;
    Ok(Some(token.name.clone()))
}

fn allows(token: &Token, needs: Role) -> Result<(), RestError> {
    if token.role >= needs {
        return Ok(());
    }
    Err(RestError::Role {
        name: token.name.clone(),
        has: token.role,
        needs,
    })
}

/// The token that comes with a request.
///
/// A browser cannot be told to send a bearer token, so the status page takes it as the password of
/// HTTP's basic authentication too. Nothing else does: browsers send passwords by themselves with
/// whatever request another site makes them send.
fn presented(entrance: Entrance, headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(credentials.to_owned());
    }
    if scheme.eq_ignore_ascii_case("basic") && entrance == Entrance::Status {
        let text = BASE64_STANDARD.decode(credentials).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (_any_name, password) = text.split_once(':')?;
        return Some(password.to_owned());
    }
    None
}

/// A browser says which site makes it write; only pages from here may.
fn own_origin(request: &Request) -> Result<(), RestError> {
    let Some(origin) = request.headers().get(header::ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or_default();
    let site = origin.split_once("://").map(|(_, site)| site);
    let mut hosts = hosts(request).peekable();
    if hosts.peek().is_some() && hosts.all(|host| Some(host) == site) {
        return Ok(());
    }
    let text = format!("a page of {origin:?} may not write here");
    Err(RestError::Foreign(text))
}

/// The hosts that a request says it is for: HTTP/2 has the host in the target, HTTP/1 in a header,
/// and either may have both. Every browser sends one.
fn hosts(request: &Request) -> impl Iterator<Item = &str> {
    let target = request.uri().authority().map(Authority::as_str);
    let headers = request.headers().get_all(header::HOST).iter();
    // One that is no text is no name for loopback either.
    let headers = headers.map(|host| host.to_str().unwrap_or_default());
    target.into_iter().chain(headers)
}

/// Without tokens only loopback is listened on, and only a name for loopback is right. Another one
/// means a browser on this machine that was led here by a page whose name now points here.
fn own_host(request: &Request) -> Result<(), RestError> {
    let Some(host) = hosts(request).find(|host| !is_own_name(host)) else {
        return Ok(());
    };
    let text = format!(
        "there are no tokens, so only requests to an address or to localhost are answered, not to \
         {host:?}"
    );
    Err(RestError::Foreign(text))
}

/// Whether `host`, which may have a port, is an address or localhost.
fn is_own_name(host: &str) -> bool {
    let authority: Option<Authority> = host.parse().ok();
    let name = authority.as_ref().map_or("", Authority::host);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
}

fn refuse(entrance: Entrance, error: RestError) -> Response {
    let asks = matches!(error, RestError::Unauthenticated(_));
    let mut response = error.into_response();
    if asks && entrance == Entrance::Status {
        let basic = HeaderValue::from_static("Basic realm=\"tollgate\", charset=\"UTF-8\"");
        response
            .headers_mut()
            .append(header::WWW_AUTHENTICATE, basic);
    }
    response
}
