//! A link between two programs that can be cut, also in one direction only, or slowed down.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn};
use tokio::time::sleep;

/// Most bytes in flight on a slow link, in one direction of a connection.
const IN_FLIGHT_BYTES: usize = 64 << 10;

/// Forwards connections to one address with a [`LinkQuality`]. All of them end when it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    quality: watch::Sender<LinkQuality>,
    accepting: JoinHandle<()>,
}

/// Quality of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkQuality {
    /// Works as loopback does.
    #[default]
    Whole,
    /// Closes all connections, new ones at once.
    Cut,
    /// Keeps connections and passes nothing. Bytes sent meanwhile arrive when the link is whole again, as
    /// after TCP's retransmissions.
    Silent,
    /// Passes nothing to the server; its answers pass.
    Deaf,
    /// Passes nothing from the server; requests pass.
    Mute,
    /// Delays everything, each way.
    Slow(Duration),
}

/// Direction of bytes on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    FromServer,
}

// === impl Relay ===

impl Relay {
    /// Starts a relay to `to` with a whole link.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn to(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (quality, current) = watch::channel(LinkQuality::Whole);
        let accepting = spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn(forward(stream, to, current.clone()));
            }
        });
        Ok(Self {
            address,
            quality,
            accepting,
        })
    }

    /// Address to connect to instead of the server's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the quality of the link for all connections.
    pub fn set_quality(&self, quality: LinkQuality) {
        self.quality.send_replace(quality);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

// === impl LinkQuality ===

impl LinkQuality {
    fn passes(self, direction: Direction) -> bool {
        match self {
            Self::Whole | Self::Slow(_) => true,
            Self::Cut | Self::Silent => false,
            Self::Deaf => direction == Direction::FromServer,
            Self::Mute => direction == Direction::ToServer,
        }
    }

    fn delay(self) -> Duration {
        match self {
            Self::Slow(delay) => delay,
            _ => Duration::ZERO,
        }
    }
}

// === free functions ===

/// Forwards one connection until both ends have closed it, the link is cut, or the relay is dropped.
async fn forward(client: TcpStream, to: SocketAddr, mut quality: watch::Receiver<LinkQuality>) {
    if *quality.borrow_and_update() == LinkQuality::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(to).await else {
        return;
    };
    // Nagle's algorithm would add delays of its own.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let both = async {
        tokio::join!(
            pump(from_client, to_server, Direction::ToServer, quality.clone()),
            pump(
                from_server,
                to_client,
                Direction::FromServer,
                quality.clone()
            ),
        )
    };
    let mut cut = quality.clone();
    tokio::select! {
        _ = both => {}
        _ = cut.wait_for(|quality| *quality == LinkQuality::Cut) => {}
    }
}

/// Forwards one direction of a connection until its source ends.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut quality: watch::Receiver<LinkQuality>,
) {
    let mut buffer = vec![0; IN_FLIGHT_BYTES];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let delay = quality.borrow().delay();
        sleep(delay).await;
        if quality.wait_for(|q| q.passes(direction)).await.is_err() {
            return;
        }
        // An end of the stream is forwarded like bytes.
        let sent = match read {
            0 => to.shutdown().await,
            _ => to.write_all(&buffer[..read]).await,
        };
        if read == 0 || sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncBufReadExt as _;
    use tokio::io::BufReader;
    use tokio::time::{Instant, timeout};

    use super::*;

    const ANSWER_LIMIT: Duration = Duration::from_secs(20);
    const SILENCE: Duration = Duration::from_millis(200);

    /// A server that answers each line with itself, and a connection to it through a relay.
    async fn echo() -> (Relay, BufReader<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::to(listener.local_addr().unwrap()).await.unwrap();
        spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        let stream = TcpStream::connect(relay.address()).await.unwrap();
        (relay, BufReader::new(stream))
    }

    async fn send_line(stream: &mut BufReader<TcpStream>, line: &str) {
        stream.write_all(line.as_bytes()).await.unwrap();
    }

    async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
        let mut line = String::new();
        let read = timeout(ANSWER_LIMIT, stream.read_line(&mut line))
            .await
            .unwrap();
        (read.unwrap_or(0) > 0).then_some(line)
    }

    async fn is_silent(stream: &mut BufReader<TcpStream>) -> bool {
        timeout(SILENCE, stream.fill_buf()).await.is_err()
    }

    #[tokio::test]
    async fn what_was_held_back_arrives_when_the_network_is_whole_again() {
        for quality in [LinkQuality::Silent, LinkQuality::Deaf, LinkQuality::Mute] {
            let (relay, mut stream) = echo().await;
            send_line(&mut stream, "one\n").await;
            assert_eq!(read_line(&mut stream).await.as_deref(), Some("one\n"));
            relay.set_quality(quality);
            send_line(&mut stream, "two\n").await;
            assert!(is_silent(&mut stream).await, "{quality:?}");
            relay.set_quality(LinkQuality::Whole);
            assert_eq!(read_line(&mut stream).await.as_deref(), Some("two\n"));
        }
    }

    #[tokio::test]
    async fn a_cut_ends_connections_and_lets_none_in() {
        let (relay, mut stream) = echo().await;
        send_line(&mut stream, "one\n").await;
        assert!(read_line(&mut stream).await.is_some());
        relay.set_quality(LinkQuality::Cut);
        assert_eq!(read_line(&mut stream).await, None);
        let mut again = BufReader::new(TcpStream::connect(relay.address()).await.unwrap());
        assert_eq!(read_line(&mut again).await, None);
        relay.set_quality(LinkQuality::Whole);
        let mut again = BufReader::new(TcpStream::connect(relay.address()).await.unwrap());
        send_line(&mut again, "two\n").await;
        assert!(read_line(&mut again).await.is_some());
    }

    #[tokio::test]
    async fn a_slow_network_delays_each_way() {
        let (relay, mut stream) = echo().await;
        relay.set_quality(LinkQuality::Slow(Duration::from_millis(100)));
        let sent = Instant::now();
        send_line(&mut stream, "one\n").await;
        assert!(read_line(&mut stream).await.is_some());
        assert!(sent.elapsed() >= Duration::from_millis(200));
    }

    #[tokio::test]
    async fn an_end_is_carried_on() {
        let (_relay, mut stream) = echo().await;
        send_line(&mut stream, "one\n").await;
        assert!(read_line(&mut stream).await.is_some());
        stream.shutdown().await.unwrap();
        assert_eq!(read_line(&mut stream).await, None);
    }
}
