//! Requests with bodies are held, wait and are refused as those without, whatever a plugin allows Envoy to
//! do with bodies meanwhile.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::HeaderMap;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{Build, COORDINATOR, TENANT_HEADER, tollgate};

use crate::shape::shaped;
use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:
  - match: \"tenant/refused*\"
    requests: {rate: 0}
  - match: \"tenant/queued*\"
    requests: {rate: 20, burst: 1}
  - match: \"*\"
    requests: {rate: 1000}
";
/// Cluster of coordinators that accept connections and never answer.
const SILENT: &str = "silent";
/// Length of a body beyond the 1 MiB that Envoy buffers.
const LARGE: usize = 3 << 19;
/// Longest time for one answer, on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    None,
    Small,
    Large,
    /// In chunks, with a trailer behind.
    SmallChunks,
    LargeChunks,
    /// Sent without waiting for the answer to `Expect: 100-continue`.
    Expected,
    /// Only a part of it is sent.
    Unfinished,
}

const BODIES: [Body; 7] = [
    Body::None,
    Body::Small,
    Body::Large,
    Body::SmallChunks,
    Body::LargeChunks,
    Body::Expected,
    Body::Unfinished,
];

// === impl Body ===

impl Body {
    /// Length of what the upstream is to receive.
    fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Small | Self::SmallChunks | Self::Expected => 5,
            Self::Large | Self::LargeChunks | Self::Unfinished => LARGE,
        }
    }

    /// Returns a request of `tenant` with the body.
    fn request(self, tenant: &str) -> Vec<u8> {
        let len = self.len();
        let framing = match self {
            Self::SmallChunks | Self::LargeChunks => "transfer-encoding: chunked".to_owned(),
            Self::Expected => format!("content-length: {len}\r\nexpect: 100-continue"),
            _ => format!("content-length: {len}"),
        };
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\nx-tenant: {tenant}\r\n{framing}\r\n\r\n");
        let mut request = head.into_bytes();
        match self {
            Self::SmallChunks | Self::LargeChunks => {
                for chunk in vec![b'x'; len].chunks(64 << 10) {
                    request.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    request.extend(chunk);
                    request.extend(b"\r\n");
                }
                request.extend(b"0\r\nx-end: yes\r\n\r\n");
            }
            Self::Unfinished => request.extend(vec![b'x'; 1000]),
            _ => request.extend(vec![b'x'; len]),
        }
        request
    }
}

#[test]
fn a_body_takes_no_request_past_the_filter() {
    run_test("a_body_takes_no_request_past_the_filter", bodies);
}

async fn bodies(test: &TestContext) -> Result<()> {
    let (upstream, arrived) = measuring_upstream().await?;
    let coordinator = test.coordinator(LIMITS).await?;
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let mut spec = EnvoySpec::new("envoy", 2, upstream, Vec::new()).asking(coordinator.grpc());
    spec.clusters = vec![(SILENT.to_owned(), silent.local_addr()?)];
    spec.listeners = listeners()?;
    let envoy = Envoy::start(test.dir(), &spec).await?;
    let mut running = JoinSet::new();
    for (name, _) in &spec.listeners {
        let to = envoy.listener(name).context("a listener")?;
        for body in BODIES {
            let tenant = format!("{name}-{body:?}");
            if name.ends_with(SILENT) {
                running.spawn(late(to, tenant, body));
            } else {
                running.spawn(refused(to, tenant.clone(), body));
                running.spawn(admitted(to, tenant, body));
            }
        }
    }
    while let Some(ran) = running.join_next().await {
        ran??;
    }
    let arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
    let bypassed = arrived
        .iter()
        .any(|tenant| !tenant.starts_with("queued") && !tenant.starts_with("held"));
    ensure!(!bypassed, "the upstream has requests of {arrived:?}");
    Ok(())
}

/// A listener that asks the coordinator and one that asks silent ones; with wasm both again, with plugins
/// that allow Envoy to stop the headers only.
fn listeners() -> Result<Vec<(String, Vec<Value>)>> {
    let mut listeners = Vec::new();
    let mut add = |name: &str, plugin: &Value, allowing: bool| {
        let mut filter = tollgate(plugin)?;
        if allowing {
            filter["typed_config"]["config"]["allow_on_headers_stop_iteration"] = json!(true);
        }
        listeners.push((name.to_owned(), vec![filter]));
        anyhow::Ok(())
    };
    // Plugins with equal configurations are one for Envoy, whatever they allow.
    add("main", &plugin(COORDINATOR, 10_000), false)?;
    add("silent", &plugin(SILENT, 10_000), false)?;
    if Build::under_test()? == Build::Wasm {
        add("allowing", &plugin(COORDINATOR, 10_001), true)?;
        add("allowing-silent", &plugin(SILENT, 10_001), true)?;
    }
    Ok(listeners)
}

fn plugin(coordinator: &str, max_wait_ms: u64) -> Value {
    let mut plugin = shaped(&json!({"max_wait_ms": max_wait_ms}));
    plugin["coordinator"] = json!(coordinator);
    match coordinator {
        SILENT => plugin["no_lease"] = json!("pessimistic"),
        _ => plugin["first_lease_wait_ms"] = json!(10_000),
    }
    plugin
}

/// Requests of a tenant with a limit of zero: the first is held for its lease and refused by the answer, the
/// second is refused at once.
async fn refused(to: SocketAddr, tenant: String, body: Body) -> Result<()> {
    let tenant = format!("refused-{tenant}");
    for _ in 0..2 {
        let (status, _) = send(to, &tenant, body).await?;
        ensure!(status == 429, "{tenant}: {status}");
    }
    Ok(())
}

/// Requests that a tick refuses, since no lease comes.
async fn late(to: SocketAddr, tenant: String, body: Body) -> Result<()> {
    let tenant = format!("late-{tenant}");
    let (status, _) = send(to, &tenant, body).await?;
    ensure!(status == 429, "{tenant}: {status}");
    Ok(())
}

/// Requests that are held for their lease, or wait in the queue, arrive whole.
async fn admitted(to: SocketAddr, tenant: String, body: Body) -> Result<()> {
    if body == Body::Unfinished {
        return Ok(());
    }
    for tenant in ["held", "queued", "queued"].map(|way| format!("{way}-{tenant}")) {
        let (status, length) = send(to, &tenant, body).await?;
        ensure!(status == 200, "{tenant}: {status}");
        ensure!(
            length == body.len().to_string(),
            "{tenant}: {length} bytes arrived"
        );
    }
    Ok(())
}

/// Sends a request, and reads the answer even if not all of the request can be sent.
async fn send(to: SocketAddr, tenant: &str, body: Body) -> Result<(u16, String)> {
    let (mut reading, mut writing) = TcpStream::connect(to).await?.into_split();
    let request = body.request(tenant);
    let mut written = JoinSet::new();
    written.spawn(async move {
        let _ = writing.write_all(&request).await;
        writing
    });
    let read = async {
        let mut bytes = Vec::new();
        loop {
            if let Some(answer) = whole(&bytes) {
                return answer;
            }
            let read = reading.read_buf(&mut bytes).await?;
            ensure!(read > 0, "closed: {}", String::from_utf8_lossy(&bytes));
        }
    };
    let answer = timeout(ANSWER_LIMIT, read).await;
    answer.with_context(|| format!("no answer to {tenant}"))?
}

/// Returns the status and the body of the final answer in `bytes`, once all of it is there.
fn whole(bytes: &[u8]) -> Option<Result<(u16, String)>> {
    let text = String::from_utf8_lossy(bytes);
    let answer = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n");
    let (head, body) = answer.unwrap_or(&text).split_once("\r\n\r\n")?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))?;
    let status = head.split(' ').nth(1)?;
    let parsed = status.parse().map_err(Into::into);
    (body.len().to_string() == length).then(|| parsed.map(|status| (status, body.to_owned())))
}

/// An upstream that answers with the length of the body, and records the tenants of its requests.
async fn measuring_upstream() -> Result<(SocketAddr, Arc<Mutex<Vec<String>>>)> {
    let arrived = Arc::<Mutex<Vec<String>>>::default();
    let tenants = Arc::clone(&arrived);
    let record = move |request: Request, next: axum::middleware::Next| {
        let tenant = request.headers().get(TENANT_HEADER);
        let tenant = tenant.and_then(|tenant| tenant.to_str().ok());
        let mut all = tenants.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(tenant.unwrap_or_default().to_owned());
        drop(all);
        next.run(request)
    };
    let app = Router::new()
        .fallback(async |_: HeaderMap, body: Bytes| body.len().to_string())
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn(record));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((address, arrived))
}
