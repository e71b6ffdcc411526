//! Minimal gRPC client on one HTTP/2 connection.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Buf, Bytes};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HeaderMap, TE};
use hyper::{Method, Request, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;

/// Length of the prefix of each message: a byte for its compression, and four for its length.
const PREFIX_LEN: usize = 5;

/// A connection; clones make their calls on the same one.
#[derive(Clone)]
pub(crate) struct Channel {
    sender: SendRequest<Full<Bytes>>,
    uri: Uri,
}

// === impl Channel ===

impl Channel {
    /// Connects to `to`, for calls of `path`.
    ///
    /// # Errors
    /// When the address does not accept connections.
    pub(crate) async fn open(to: SocketAddr, path: &str) -> Result<Self> {
        let stream = TcpStream::connect(to)
            .await
            .with_context(|| format!("connecting to {to}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // Its errors reach the calls.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            uri: format!("http://{to}{path}").parse()?,
        })
    }

    /// Makes one call.
    ///
    /// # Errors
    /// When the connection breaks, or the call is answered with a status other than OK.
    pub(crate) async fn call<R: Message + Default>(&mut self, message: &impl Message) -> Result<R> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.clone())
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(Full::new(framed(message)?))?;
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?;
        check_status(body.trailers().unwrap_or(&head.headers))?;
        let mut answer = body.aggregate();
        ensure!(
            answer.remaining() >= PREFIX_LEN,
            "an answer without a message"
        );
        answer.advance(PREFIX_LEN);
        Ok(R::decode(answer)?)
    }
}

// === free functions ===

/// `message` with its prefix.
fn framed(message: &impl Message) -> Result<Bytes> {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX_LEN + length);
    bytes.push(0);
    bytes.extend(u32::try_from(length)?.to_be_bytes());
    message.encode(&mut bytes)?;
    Ok(bytes.into())
}

fn check_status(fields: &HeaderMap) -> Result<()> {
    let field = |name| {
        fields
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
    };
    let status = field("grpc-status").context("an answer without a status")?;
    ensure!(
        status == "0",
        "a call was answered with status {status}: {}",
        field("grpc-message").unwrap_or_default()
    );
    Ok(())
}
