//! Access control, before anything else looks at a request.
//!
//! Reading needs the role viewer, everything else the role admin; a route that is not named here
//! needs a token, so a route that is added later is closed until it is opened.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::sync::watch;
use tollgate_config::tokens::{Role, Token};
use tollgate_config::{Admin, Config};
use tollgate_net::tls::ServerFiles;
use tollgate_observe::logging::AUDIT;

use super::problem::{NO_TOKEN, RestError};
use crate::metrics::{AdminMetrics, AuthFault};

/// Rules of access: configuration and counters.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    /// The newest configuration.
    pub(super) config: watch::Receiver<Arc<Config>>,
    pub(super) metrics: AdminMetrics,
}

/// Name of the token with which a request came that writes; none without tokens.
#[derive(Clone, Debug)]
pub(super) struct Operator(pub(super) Option<String>);

/// Passes allowed requests on, and answers the others.
pub(super) async fn guard(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let config = gate.config.borrow().clone();
    let entrance = Entrance::of(&request);
    let asks_password = entrance == Entrance::Status && !is_of_script(request.headers());
    let by = match pass(&config.admin, entrance, &request) {
        Ok(by) => by,
        Err((fault, error)) => {
            gate.metrics.count_auth_fault(fault);
            return refuse(asks_password, error);
        }
    };
    if entrance.needs() == Role::Viewer {
        return next.run(request).await;
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(Operator(by.clone()));
    let response = next.run(request).await;
    let status = response.status().as_u16();
    tracing::info!(target: AUDIT, ?by, %method, ?path, status, "admin API: write");
    response
}

// === impl Gate ===

impl Gate {
    /// Returns the name of the token with which another node calls on behalf of an operator; none if
    /// `entrance` needs no token.
    ///
    /// # Errors
    /// If the operator could not read or write this here either.
    pub(super) fn admit_peer<M>(
        &self,
        entrance: Entrance,
        request: &tonic::Request<M>,
    ) -> Result<Option<String>, RestError> {
        let config = self.config.borrow().clone();
        let admin = &config.admin;
        let near = peers_may_call(&config, request.remote_addr());
        let checked = near.map_err(|error| (AuthFault::Origin, error));
        let is_open = entrance.is_public(admin) || admin.tokens.is_empty();
        let checked = checked.and_then(|()| {
            if is_open {
                Ok(None)
            } else {
                holder(admin, entrance, request.metadata().as_ref()).map(Some)
            }
        });
        checked.map_err(|(fault, error)| {
            self.metrics.count_auth_fault(fault);
            error
        })
    }
}

/// Class of a request, by which access is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    /// Probes of the process, which tell nothing else.
    Health,
    Metrics,
    /// The pages, which a person looks at in a browser.
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
            // A query may ask for scopes that requests have named, which `public` does not open.
            "/metrics" if request.uri().query().is_none() => Self::Metrics,
            "/" | "/v1/openapi.json" => Self::Status,
            path if path.starts_with("/scopes/") || path.starts_with("/groups/") => Self::Status,
            _ => Self::Read,
        }
    }

    /// That of what another node reads, for a page or not.
    pub(super) fn of_read(page: bool) -> Self {
        if page { Self::Status } else { Self::Read }
    }

    fn needs(self) -> Role {
        match self {
            Self::Write => Role::Admin,
            _ => Role::Viewer,
        }
    }

    /// Returns whether no token is needed.
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

/// Returns the name of the token that lets `request` pass; none if it needs no token.
fn pass(
    admin: &Admin,
    entrance: Entrance,
    request: &Request,
) -> Result<Option<String>, (AuthFault, RestError)> {
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
    holder(admin, entrance, request.headers()).map(Some)
}

/// Returns the name of the token in `headers`, if it allows `entrance`.
fn holder(
    admin: &Admin,
    entrance: Entrance,
    headers: &HeaderMap,
) -> Result<String, (AuthFault, RestError)> {
    let Some(presented) = presented(entrance, headers) else {
        return Err((AuthFault::Missing, RestError::Unauthenticated(NO_TOKEN)));
    };
    let Some(token) = admin.tokens.find(&presented) else {
        let error = RestError::Unauthenticated("the token is unknown");
        return Err((AuthFault::Unknown, error));
    };
    allows(token, entrance.needs()).map_err(|error| (AuthFault::Role, error))?;
    Ok(token.name.clone())
}

/// Checks whether other nodes may call over gRPC from `remote`: the gRPC listener must keep out
/// callers without a certificate as the listener of the admin API does.
fn peers_may_call(config: &Config, remote: Option<SocketAddr>) -> Result<(), RestError> {
    let asks = |files: &Option<ServerFiles>| {
        let files = files.as_ref();
        files.is_some_and(|files| files.client_ca.is_some())
    };
    if asks(&config.tls.http) && !asks(&config.tls.grpc) {
        let text = "tls.http has a client_ca and tls.grpc has none, so other nodes get no answer";
        return Err(RestError::Foreign(text.to_owned()));
    }
    let Admin {
        tokens, insecure, ..
    } = &config.admin;
    let is_near = remote.is_some_and(|remote| remote.ip().to_canonical().is_loopback());
    if tokens.is_empty() && !insecure && !is_near {
        let text = "there are no tokens, so only nodes on this machine get an answer";
        return Err(RestError::Foreign(text.to_owned()));
    }
    Ok(())
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
/// A browser cannot be told to send a bearer token, so the pages take it as the password of HTTP's
/// basic authentication too. Nothing else does: browsers send passwords by themselves with any
/// request that another site makes them send.
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

/// Checks that no other site makes a browser write: a browser sends the site's origin.
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

/// Returns whether a script in a browser sends the request. A browser that is asked for a password
/// then would keep the script waiting, and ask at each update of a page.
fn is_of_script(headers: &HeaderMap) -> bool {
    headers
        .get("sec-fetch-dest")
        .is_some_and(|dest| dest == "empty")
}

fn refuse(asks_password: bool, error: RestError) -> Response {
    let lacks_token = matches!(error, RestError::Unauthenticated(_));
    let mut response = error.into_response();
    if lacks_token && asks_password {
        let basic = HeaderValue::from_static("Basic realm=\"tollgate\", charset=\"UTF-8\"");
        response
            .headers_mut()
            .append(header::WWW_AUTHENTICATE, basic);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_nodes_may_call_where_strangers_may_not_reach_the_admin_api() {
        let grpc = "grpc: {cert: c, key: k}";
        let mutual = "{cert: c, key: k, client_ca: a}";
        let token = format!(
            "tokens: [{{name: v, role: viewer, sha256: '{}'}}]",
            "0".repeat(64)
        );
        let rows = [
            ("", "127.0.0.1:1", true),
            ("", "[::1]:1", true),
            ("", "10.0.0.1:1", false),
            ("admin: {insecure: true}", "10.0.0.1:1", true),
            (&format!("admin: {{{token}}}"), "10.0.0.1:1", true),
            (&format!("tls: {{http: {mutual}}}"), "127.0.0.1:1", false),
            (
                &format!("tls: {{{grpc}, http: {mutual}}}"),
                "127.0.0.1:1",
                false,
            ),
            (
                &format!("tls: {{grpc: {mutual}, http: {mutual}}}"),
                "127.0.0.1:1",
                true,
            ),
        ];
        for (yaml, remote, may) in rows {
            let config = Config::parse(&format!("limits: []\n{yaml}")).unwrap();
            let remote = remote.parse().unwrap();
            let checked = peers_may_call(&config, Some(remote));
            assert_eq!(checked.is_ok(), may, "{yaml} {remote}: {checked:?}");
        }
        let config = Config::parse("limits: []").unwrap();
        assert!(peers_may_call(&config, None).is_err());
    }
}
