//! An upstream with faults: each request's path chooses an answer, a partial answer or none.
//!
//! A stream in a proxy often ends by a fault instead of an answer, and a count of the requests in flight
//! has to include every end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn};

/// The longest head of a request that is read.
const HEAD_MAX_BYTES: usize = 1 << 16;

/// A running upstream with faults. It ends when it is dropped.
///
/// `/ok` is answered; `/status/N` with the status N; `/redirect/N` with a redirect to `/redirect/M` with M one less, from 1 to `/ok`; `/cost/N` with `x-cost: N`; `/usage/N` with a body that says that N tokens
/// were used; `/slow/M/N` with the same body M milliseconds after the head; `/bytes/N` with a body of N bytes; `/stall/N` with N bytes of a longer body,
/// and no more; `/cut` with a part of a body and the end of the connection; `/close` with the end of the
/// connection alone; `/never` not at all. `/echo` upgrades to a tunnel that sends all bytes back, and
/// `/hello` to one that sends one word and closes.
#[derive(Debug)]
pub struct FaultyUpstream {
    address: SocketAddr,
    unanswered: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

// === impl FaultyUpstream ===

impl FaultyUpstream {
    /// Starts an upstream on a free port.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let unanswered = Arc::new(AtomicU64::new(0));
        let accepting = spawn(accept(listener, Arc::clone(&unanswered)));
        Ok(Self {
            address,
            unanswered,
            accepting,
        })
    }

    /// Address of its listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests to `/never` so far.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }
}

impl Drop for FaultyUpstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, unanswered: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        let unanswered = Arc::clone(&unanswered);
        // Connections end with errors by design.
        spawn(async move {
            let _ = serve(stream, &unanswered).await;
        });
    }
}

async fn serve(mut stream: TcpStream, unanswered: &AtomicU64) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    loop {
        let path = request(&mut stream, &mut buffer).await?;
        match path.as_str() {
            "/close" => return Ok(()),
            "/never" => {
                unanswered.fetch_add(1, Ordering::Relaxed);
                stream.read_u8().await?;
            }
            "/cut" => {
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
                stream.write_all(head.as_bytes()).await?;
                return Ok(stream.write_all(&[b'x'; 1000]).await?);
            }
            "/echo" | "/hello" => return upgrade(stream, path == "/hello").await,
            path if path.starts_with("/cost/") => {
                let cost = path.trim_start_matches("/cost/");
                reply(&mut stream, &format!("x-cost: {cost}\r\n"), "ok\n").await?;
            }
            path if path.starts_with("/usage/") => {
                let used = path.trim_start_matches("/usage/");
                let body = format!("{{\"usage\": {{\"total_tokens\": {used}}}}}\n");
                reply(&mut stream, "content-type: application/json\r\n", &body).await?;
            }
            path if path.starts_with("/slow/") => slow(&mut stream, path).await?,
            path if path.starts_with("/status/") => {
                let status = path.trim_start_matches("/status/");
                let answer = format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await?;
            }
            path if path.starts_with("/redirect/") => redirect(&mut stream, path).await?,
            path => answer(&mut stream, path).await?,
        }
    }
}

async fn reply(stream: &mut TcpStream, fields: &str, body: &str) -> Result<()> {
    let length = body.len();
    let answer = format!("HTTP/1.1 200 OK\r\n{fields}content-length: {length}\r\n\r\n{body}");
    Ok(stream.write_all(answer.as_bytes()).await?)
}

/// Sends the body `N` milliseconds after the head.
async fn slow(stream: &mut TcpStream, path: &str) -> Result<()> {
    let (millis, used) = path
        .trim_start_matches("/slow/")
        .split_once('/')
        .context("a time and a number")?;
    let body = format!("{{\"usage\": {{\"total_tokens\": {used}}}}}\n");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    tokio::time::sleep(Duration::from_millis(millis.parse()?)).await;
    Ok(stream.write_all(body.as_bytes()).await?)
}

async fn redirect(stream: &mut TcpStream, path: &str) -> Result<()> {
    let left: u32 = path.trim_start_matches("/redirect/").parse()?;
    let to = match left {
        0 | 1 => "ok".to_owned(),
        _ => format!("redirect/{}", left - 1),
    };
    let answer = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://localhost/{to}\r\ncontent-length: 0\r\n\r\n"
    );
    Ok(stream.write_all(answer.as_bytes()).await?)
}

async fn answer(stream: &mut TcpStream, path: &str) -> Result<()> {
    let number = |prefix| path.strip_prefix(prefix).map(str::parse::<usize>);
    let (length, sent) = match (number("/bytes/"), number("/stall/")) {
        (Some(length), _) => (length.clone()?, length?),
        (_, Some(sent)) => (sent.clone()? + 1_000_000, sent?),
        _ => (3, 3),
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&vec![b'x'; sent]).await?;
    Ok(())
}

async fn upgrade(mut stream: TcpStream, hello: bool) -> Result<()> {
    let head =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    if hello {
        return Ok(stream.write_all(b"hello").await?);
    }
    let mut buffer = vec![0; 4096];
    loop {
        let read = stream.read(&mut buffer).await?;
        ensure!(read > 0, "closed");
        stream.write_all(&buffer[..read]).await?;
    }
}

/// Reads a request with its body, and returns its path.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<String> {
    let head_len = loop {
        if let Some(at) = buffer.windows(4).position(|part| part == b"\r\n\r\n") {
            break at + 4;
        }
        ensure!(buffer.len() < HEAD_MAX_BYTES, "too long a head");
        ensure!(stream.read_buf(buffer).await? > 0, "closed");
    };
    let head = String::from_utf8_lossy(&buffer[..head_len]).into_owned();
    let path = head.split(' ').nth(1).context("no path")?.to_owned();
    let chunked = head.contains("transfer-encoding: chunked");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(Ok(0), str::parse::<usize>)?;
    let whole = |buffer: &[u8]| {
        if chunked {
            buffer.ends_with(b"0\r\n\r\n")
        } else {
            buffer.len() >= head_len + length
        }
    };
    while !whole(buffer) {
        ensure!(stream.read_buf(buffer).await? > 0, "closed");
    }
    buffer.clear();
    Ok(path)
}
