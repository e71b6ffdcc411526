//! A network between two parties that can be cut, in one direction too, or slowed down.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn};
use tokio::time::sleep;

/// Bytes that a slow network has on its way in one direction of a connection.
const IN_FLIGHT_BYTES: usize = 64 << 10;

/// Forwards connections to one address, as well as its [`Quality`] allows. All of them end when it
/// is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    quality: watch::Sender<Quality>,
    accepting: JoinHandle<()>,
}

/// How a network is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quality {
    /// As loopback is.
    #[default]
    Whole,
    /// Connections are reset, new ones at once.
    Cut,
    /// Connections stay, and nothing passes. What was sent arrives when the network is whole again,
    /// as TCP would send it once more.
    Silent,
    /// The same for what goes to the server alone: it can answer what it has got.
    Deaf,
    /// The same for what comes from the server alone: it does what it is told, and nobody hears.
    Mute,
    /// Everything takes so much longer, each way.
    Slow(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    FromServer,
}

// === impl Relay ===

impl Relay {
    /// A way to `to` that is whole.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn to(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (quality, seen) = watch::channel(Quality::Whole);
        let accepting = spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn(carry(stream, to, seen.clone()));
            }
        });
        Ok(Self {
            address,
            quality,
            accepting,
        })
    }

    /// Where to connect instead.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the network so, for all connections, until it is made otherwise.
    pub fn make(&self, quality: Quality) {
        self.quality.send_replace(quality);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

// === impl Quality ===

impl Quality {
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

/// Carries one connection until both ends have closed it, or the network is cut or gone.
async fn carry(client: TcpStream, to: SocketAddr, mut quality: watch::Receiver<Quality>) {
    if *quality.borrow_and_update() == Quality::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(to).await else {
        return;
    };
    // What waits for more to send would be slow by itself.
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
    let mut watched = quality.clone();
    tokio::select! {
        _ = both => {}
        _ = watched.wait_for(|quality| *quality == Quality::Cut) => {}
    }
}

/// Carries one direction of a connection until its source has ended.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut quality: watch::Receiver<Quality>,
) {
    let mut buffer = vec![0; IN_FLIGHT_BYTES];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let delay = quality.borrow().delay();
        sleep(delay).await;
        if quality.wait_for(|q| q.passes(direction)).await.is_err() {
            return;
        }
        // An end is carried on like all else.
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

    const SOON: Duration = Duration::from_secs(20);
    const NEVER: Duration = Duration::from_millis(200);

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

    async fn say(stream: &mut BufReader<TcpStream>, line: &str) {
        stream.write_all(line.as_bytes()).await.unwrap();
    }

    async fn hear(stream: &mut BufReader<TcpStream>) -> Option<String> {
        let mut line = String::new();
        let read = timeout(SOON, stream.read_line(&mut line)).await.unwrap();
        (read.unwrap_or(0) > 0).then_some(line)
    }

    async fn is_silent(stream: &mut BufReader<TcpStream>) -> bool {
        timeout(NEVER, stream.fill_buf()).await.is_err()
    }

    #[tokio::test]
    async fn what_was_held_back_arrives_when_the_network_is_whole_again() {
        for quality in [Quality::Silent, Quality::Deaf, Quality::Mute] {
            let (relay, mut stream) = echo().await;
            say(&mut stream, "one\n").await;
            assert_eq!(hear(&mut stream).await.as_deref(), Some("one\n"));
            relay.make(quality);
            say(&mut stream, "two\n").await;
            assert!(is_silent(&mut stream).await, "{quality:?}");
            relay.make(Quality::Whole);
            assert_eq!(hear(&mut stream).await.as_deref(), Some("two\n"));
        }
    }

    #[tokio::test]
    async fn a_cut_ends_connections_and_lets_none_in() {
        let (relay, mut stream) = echo().await;
        say(&mut stream, "one\n").await;
        assert!(hear(&mut stream).await.is_some());
        relay.make(Quality::Cut);
        assert_eq!(hear(&mut stream).await, None);
        let mut again = BufReader::new(TcpStream::connect(relay.address()).await.unwrap());
        assert_eq!(hear(&mut again).await, None);
        relay.make(Quality::Whole);
        let mut again = BufReader::new(TcpStream::connect(relay.address()).await.unwrap());
        say(&mut again, "two\n").await;
        assert!(hear(&mut again).await.is_some());
    }

    #[tokio::test]
    async fn a_slow_network_delays_each_way() {
        let (relay, mut stream) = echo().await;
        relay.make(Quality::Slow(Duration::from_millis(100)));
        let sent = Instant::now();
        say(&mut stream, "one\n").await;
        assert!(hear(&mut stream).await.is_some());
        assert!(sent.elapsed() >= Duration::from_millis(200));
    }

    #[tokio::test]
    async fn an_end_is_carried_on() {
        let (_relay, mut stream) = echo().await;
        say(&mut stream, "one\n").await;
        assert!(hear(&mut stream).await.is_some());
        stream.shutdown().await.unwrap();
        assert_eq!(hear(&mut stream).await, None);
    }
}
