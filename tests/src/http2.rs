//! One HTTP/2 client connection without TLS, for streams that share a connection.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn};

/// A connection; clones send on the same one.
#[derive(Clone, Debug)]
pub struct Http2 {
    sender: SendRequest<Empty<Bytes>>,
    authority: String,
}

/// An answer over HTTP/2.
#[derive(Clone, Debug)]
pub struct Http2Answer {
    /// The status code.
    pub status: u16,
    headers: HeaderMap,
}

// === impl Http2 ===

impl Http2 {
    /// Connects; the returned task ends with the connection.
    ///
    /// # Errors
    /// When the address does not accept connections or does not speak HTTP/2.
    pub async fn open(to: SocketAddr) -> Result<(Self, JoinHandle<()>)> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let running = spawn(async {
            // An error reaches the callers that wait for an answer.
            let _ = connection.await;
        });
        let authority = to.to_string();
        Ok((Self { sender, authority }, running))
    }

    /// Sends a GET and waits for its whole answer.
    ///
    /// # Errors
    /// When the stream or the connection breaks.
    pub async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Result<Http2Answer> {
        let uri = format!("http://{}{path}", self.authority);
        let request = fields
            .iter()
            .fold(Request::get(uri), |request, (name, value)| {
                request.header(*name, *value)
            });
        let mut sender = self.sender.clone();
        sender.ready().await?;
        let answer = sender.send_request(request.body(Empty::new())?).await?;
        let (head, body) = answer.into_parts();
        body.collect().await.context("the body of an answer")?;
        Ok(Http2Answer {
            status: head.status.as_u16(),
            headers: head.headers,
        })
    }
}

// === impl Http2Answer ===

impl Http2Answer {
    /// The value of a header field, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
