//! Client of the admin API.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate_admin::view::Problem;
use tollgate_net::tls::ClientFiles;
use ureq::http::{Request, StatusCode, Uri, header};
use ureq::tls::TlsConfig;
use ureq::{Agent, AsSendBody};

use crate::connection::Connection;
use crate::failure::Failure;

/// Time that a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that an answer may take as a whole.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The largest answer, in bytes: what a page of a thousand scopes with long names takes, and more.
const ANSWER_LEN_MAX: u64 = 64 << 20;

/// Sends requests to one coordinator.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    server: String,
    authorization: Option<String>,
}

/// Request to the API.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: &'static str,
    path: String,
    condition: Option<(header::HeaderName, String)>,
    body: Option<Value>,
}

/// A successful answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// The JSON, or null.
    pub(crate) body: Value,
    url: String,
}

// === impl Client ===

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// If an option cannot be used.
    pub(crate) fn new(connection: &Connection) -> Result<Self, Failure> {
        Self::at(connection, "--server", &connection.server)
    }

    /// A client of the coordinator at `server`, which `option` names, in the place of the connection's own.
    ///
    /// # Errors
    /// If an option cannot be used.
    pub(crate) fn at(connection: &Connection, option: &str, server: &str) -> Result<Self, Failure> {
        Self::try_new(connection, option, server).map_err(Failure::usage)
    }

    fn try_new(connection: &Connection, option: &str, server: &str) -> anyhow::Result<Self> {
        let token = connection.token()?;
        let server = base(option, server)?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // The token goes nowhere but to the given server.
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(TIMEOUT))
            .user_agent(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
        if server.starts_with("https:") {
            config = config.tls_config(tls(connection)?);
        }
        let authorization = token.as_deref().map(bearer).transpose()?;
        Ok(Self {
            agent: config.build().new_agent(),
            server,
            authorization,
        })
    }

    /// The URL of the coordinator.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the answer to `call`.
    ///
    /// # Errors
    /// If there is no answer, or it is no good one.
    pub(crate) fn send(&self, call: Call) -> Result<Reply, Failure> {
        let url = format!("{}{}", self.server, call.path);
        let (status, text) = self.answer(call)?;
        let body = json(&text, &url)?;
        Ok(Reply { status, body, url })
    }

    /// The status and the text of a good answer to `call`.
    ///
    /// # Errors
    /// If there is no answer, or it is no good one.
    pub(crate) fn answer(&self, call: Call) -> Result<(StatusCode, String), Failure> {
        let url = format!("{}{}", self.server, call.path);
        let mut request = Request::builder().method(call.method).uri(&url);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if let Some((name, value)) = call.condition {
            request = request.header(name, value);
        }
        match call.body {
            None => self.run(request.body(()), &url),
            Some(body) => {
                let request = request.header(header::CONTENT_TYPE, "application/json");
                self.run(request.body(body.to_string()), &url)
            }
        }
    }

    fn run(
        &self,
        request: Result<Request<impl AsSendBody>, ureq::http::Error>,
        url: &str,
    ) -> Result<(StatusCode, String), Failure> {
        let request = request.map_err(Failure::usage)?;
        let answer = self.agent.run(request);
        let mut answer = answer.map_err(|error| unreachable(url, &error))?;
        let body = answer.body_mut().with_config().limit(ANSWER_LEN_MAX);
        let body = body.read_to_string();
        let body = body.map_err(|error| unreachable(url, &error))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(refusal(status, &body, url));
        }
        Ok((status, body))
    }
}

// === impl Reply ===

impl Reply {
    /// Returns the body as the API's type `T`.
    ///
    /// # Errors
    /// If it has another shape.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let context = || format!("the answer of {} has another shape", self.url);
        let body = T::deserialize(&self.body).with_context(context);
        body.map_err(Failure::runtime)
    }
}

// === impl Call ===

impl Call {
    /// Reads `path`.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path.into())
    }

    /// Replaces `path` by `body`.
    pub(crate) fn put(path: impl Into<String>, body: Value) -> Self {
        let mut call = Self::new("PUT", path.into());
        call.body = Some(body);
        call
    }

    /// Changes `path` by the merge patch `body`.
    pub(crate) fn patch(path: impl Into<String>, body: Value) -> Self {
        let mut call = Self::new("PATCH", path.into());
        call.body = Some(body);
        call
    }

    /// Makes `path` happen.
    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new("POST", path.into())
    }

    /// The same with `body`.
    pub(crate) fn with_body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Deletes `path`.
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path.into())
    }

    /// Only if what is there has `revision`; with `*` only if there is something.
    pub(crate) fn if_match(mut self, revision: Option<&str>) -> Self {
        self.condition = revision.map(|revision| (header::IF_MATCH, tag(revision)));
        self
    }

    /// Only if nothing is there.
    pub(crate) fn if_absent(mut self) -> Self {
        self.condition = Some((header::IF_NONE_MATCH, "*".to_owned()));
        self
    }

    fn new(method: &'static str, path: String) -> Self {
        Self {
            method,
            path,
            condition: None,
            body: None,
        }
    }
}

// === free functions ===

/// `server`, which `option` names, without a slash at its end.
fn base(option: &str, server: &str) -> anyhow::Result<String> {
    let bad = |rule: &str| anyhow!("{option}: {server:?} {rule}");
    let uri: Uri = server.parse().map_err(|_| bad("is no URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad("begins neither with http:// nor with https://"));
    }
    if uri.query().is_some() {
        return Err(bad("has a query"));
    }
    if uri.authority().is_some_and(|of| of.as_str().contains('@')) {
        return Err(bad("has a user; say --token instead"));
    }
    Ok(server.trim_end_matches('/').to_owned())
}

fn bearer(token: &str) -> anyhow::Result<String> {
    // Without the token: it is a secret.
    anyhow::ensure!(!token.is_empty(), "the token is empty");
    let printable = token.bytes().all(|byte| byte.is_ascii_graphic());
    anyhow::ensure!(printable, "the token has a character that no token has");
    Ok(format!("Bearer {token}"))
}

fn tls(connection: &Connection) -> anyhow::Result<TlsConfig> {
    let ca = connection.ca.clone().context(
        "an https:// server needs --ca FILE, the authority that its certificate is from, such as \
         /etc/ssl/certs/ca-certificates.crt",
    )?;
    let files = ClientFiles {
        ca,
        identity: connection.cert.clone().zip(connection.key.clone()),
        server_name: None,
    };
    Ok(crate::tls::config(&files.load()?)?)
}

/// The entity tag of `revision`, which may be written as one already.
fn tag(revision: &str) -> String {
    if revision == "*" || revision.ends_with('"') {
        return revision.to_owned();
    }
    format!("\"{revision}\"")
}

fn unreachable(url: &str, error: &ureq::Error) -> Failure {
    Failure::runtime(anyhow!("no answer from {url}: {error}"))
}

fn json(body: &str, url: &str) -> Result<Value, Failure> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let body = serde_json::from_str(body);
    let context = || format!("the answer of {url} is no JSON: is this a coordinator?");
    body.with_context(context).map_err(Failure::runtime)
}

/// Returns the failure, and so the exit code, for a status.
fn refusal(status: StatusCode, body: &str, url: &str) -> Failure {
    let error = match serde_json::from_str::<Problem>(body) {
        Ok(problem) if !problem.detail.is_empty() => anyhow!(text(&problem)),
        _ => anyhow!("{url} answered {status}"),
    };
    match status.as_u16() {
        400 | 413 | 415 | 422 => Failure::usage(error),
        401 | 403 => Failure::Refused(error),
        404 => Failure::Missing(error),
        409 | 412 => Failure::Conflict(error),
        _ => Failure::runtime(error),
    }
}

/// The detail, and each field's rule unless the detail says it.
fn text(problem: &Problem) -> String {
    let mut text = problem.detail.clone();
    for fault in &problem.errors {
        let is_said = |part: &String| problem.detail.contains(part);
        if !(is_said(&fault.field) && is_said(&fault.rule)) {
            text.push_str(&format!("\n  {}: {}", fault.field, fault.rule));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_of_http() {
        assert_eq!(base("--server", "http://h:1/").unwrap(), "http://h:1");
        assert_eq!(
            base("--server", "https://h/tollgate/").unwrap(),
            "https://h/tollgate"
        );
        let rows = [
            ("", "is no URL"),
            ("localhost:7711", "begins neither"),
            ("/v1", "begins neither"),
            ("ftp://h", "begins neither"),
            ("http://h/?a", "has a query"),
            ("http://me:secret@h", "has a user"),
        ];
        for (server, want) in rows {
            let error = base("--server", server).unwrap_err().to_string();
            assert!(
                error.contains(want) && error.contains("--server"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_tag_is_quoted_once() {
        for (revision, want) in [("*", "*"), ("7", "\"7\""), ("\"7\"", "\"7\"")] {
            assert_eq!(tag(revision), want);
        }
    }

    #[test]
    fn a_refusal_says_its_detail_and_what_that_leaves_out() {
        let body = r#"{"detail": "2 fields are wrong", "errors": [
            {"field": "a", "rule": "-1 is negative"}, {"field": "b", "rule": "is missing"}]}"#;
        let problem: Problem = serde_json::from_str(body).unwrap();
        let want = "2 fields are wrong\n  a: -1 is negative\n  b: is missing";
        assert_eq!(text(&problem), want);
        let body =
            r#"{"detail": "a: is missing", "errors": [{"field": "a", "rule": "is missing"}]}"#;
        let problem: Problem = serde_json::from_str(body).unwrap();
        assert_eq!(text(&problem), "a: is missing");
    }
}
