//! One HTTP/1.1 client connection that spends little CPU.
//!
//! The tests share the machine with the Envoys, so a request is prepared once as bytes, and an answer is
//! searched instead of decoded into a map.

use std::net::SocketAddr;
use std::str;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Size of the largest answer that is read, head and body together.
const ANSWER_MAX_BYTES: usize = 1 << 24;

/// A keep-alive connection to one address.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    reusable: bool,
}

/// An HTTP answer. The names of its fields are lower case, as Envoy sends them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    head: String,
    /// The body, as text; what is none is replaced.
    pub body: String,
}

/// The bytes of a GET request for `/`, with the given extra header fields.
pub fn get(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in fields {
        request.extend([name, ": ", value, "\r\n"]);
    }
    request.push_str("\r\n");
    request.into_bytes()
}

// === impl Connection ===

impl Connection {
    /// Opens a connection to `to`.
    ///
    /// # Errors
    /// When the address does not accept connections.
    pub async fn open(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(to)
            .await
            .with_context(|| format!("connecting to {to}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(4096),
            reusable: true,
        })
    }

    /// Whether another request may be sent on this connection.
    pub fn is_reusable(&self) -> bool {
        self.reusable
    }

    /// Sends `request` and returns only the status of its answer, which is cheap enough for load.
    ///
    /// # Errors
    /// When the connection breaks or the answer is not HTTP/1.1.
    pub async fn status_of(&mut self, request: &[u8]) -> Result<u16> {
        self.exchange(request).await.map(|(status, _)| status)
    }

    /// Sends `request` and returns its whole answer.
    ///
    /// # Errors
    /// When the connection breaks or the answer is not HTTP/1.1.
    pub async fn answer_to(&mut self, request: &[u8]) -> Result<Answer> {
        let (status, head_len) = self.exchange(request).await?;
        let (head, body) = self.buffer.split_at(head_len);
        let chunked = is_chunked(head);
        let head = str::from_utf8(head)?.to_owned();
        let body = if chunked {
            unchunk(body)?
        } else {
            body.to_vec()
        };
        Ok(Answer {
            status,
            head,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    /// Sends `request`, and returns the status of its answer once that has begun.
    ///
    /// # Errors
    /// When the connection ends before, or the answer is none of HTTP/1.1.
    pub async fn begin(&mut self, request: &[u8]) -> Result<u16> {
        let head_len = self.send(request).await?;
        status(&self.buffer[..head_len])
    }

    /// Fills the buffer with the head of the answer at least, and returns its length.
    async fn send(&mut self, request: &[u8]) -> Result<usize> {
        self.reusable = false;
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            self.read_more().await?;
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                return Ok(at + 4);
            }
        }
    }

    /// Fills the buffer with the answer, and returns its status and the length of its head.
    async fn exchange(&mut self, request: &[u8]) -> Result<(u16, usize)> {
        let head_len = self.send(request).await?;
        let head = &self.buffer[..head_len];
        let status = status(head)?;
        let close = field(head, "connection").is_some_and(|value| value == "close");
        if is_chunked(head) {
            while !self.buffer.ends_with(b"0\r\n\r\n") {
                self.read_more().await?;
            }
        } else {
            let length = field(head, "content-length").map_or(Ok(0), str::parse::<usize>)?;
            while self.buffer.len() < head_len + length {
                self.read_more().await?;
            }
        }
        self.reusable = !close;
        Ok((status, head_len))
    }

    async fn read_more(&mut self) -> Result<()> {
        ensure!(
            self.buffer.len() < ANSWER_MAX_BYTES,
            "the answer is longer than 16 MiB"
        );
        let read = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(
            read > 0,
            "the connection was closed before the answer ended"
        );
        Ok(())
    }
}

// === impl Answer ===

impl Answer {
    /// The value of a header field, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(self.head.as_bytes(), name)
    }

    /// The lines of the head.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.head.lines()
    }
}

/// Sends one GET on a connection of its own.
///
/// # Errors
/// When the address does not accept connections or the answer is not HTTP/1.1 text.
pub async fn get_once(to: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Result<Answer> {
    Connection::open(to)
        .await?
        .answer_to(&get(path, fields))
        .await
}

fn status(head: &[u8]) -> Result<u16> {
    match head.get(..12) {
        Some(line) if line.starts_with(b"HTTP/1.1 ") => Ok(str::from_utf8(&line[9..])?.parse()?),
        _ => bail!(
            "not an HTTP/1.1 answer: {:?}",
            String::from_utf8_lossy(head)
        ),
    }
}

fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
        str::from_utf8(value).ok().map(str::trim)
    })
}

fn is_chunked(head: &[u8]) -> bool {
    field(head, "transfer-encoding").is_some_and(|value| value == "chunked")
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = find(rest, b"\r\n").context("a chunk without a length")?;
        let length = usize::from_str_radix(str::from_utf8(&rest[..end])?, 16)?;
        if length == 0 {
            return Ok(body);
        }
        let chunk = rest
            .get(end + 2..end + 2 + length)
            .context("a chunk that is cut short")?;
        body.extend_from_slice(chunk);
        rest = &rest[end + 2 + length + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_by_name() {
        let head =
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 12\r\n\r\n";
        assert_eq!(status(head).unwrap(), 429);
        assert_eq!(field(head, "retry-after"), Some("1"));
        assert_eq!(field(head, "content-length"), Some("12"));
        assert_eq!(field(head, "after"), None);
        assert!(status(b"SSH-2.0-OpenSSH").is_err());
    }

    #[test]
    fn chunks_become_a_body() {
        assert_eq!(
            unchunk(b"4\r\nWiki\r\n5\r\npedia\r\n0\r\n\r\n").unwrap(),
            b"Wikipedia"
        );
        assert!(unchunk(b"9\r\nshort").is_err());
    }
}
