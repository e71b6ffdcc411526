//! Accepted connections, a bounded number of them.
//!
//! The servers bound the calls on a connection but not the connections; without a bound anyone who
//! can reach a port can use up the file descriptors that Envoys need. And a place must not be held
//! by who never speaks: the servers ask only those for signs of life who have said hello.
//!
//! With TLS a connection is handed over after its handshake. Handshakes run beside accepting, each
//! with a deadline and only so many at a time, so who is slow at them keeps nobody else out.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::Stream;

mod stream;
mod tls;

pub use stream::Connection;
pub use tls::Tls;

/// How long to wait after a failed accept: the usual reason, no file descriptor left, does not go
/// away at once, and trying again without a pause would take a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections while there are fewer than a bound; others wait in the kernel's backlog.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    places: Arc<Semaphore>,
    tls: Option<Tls>,
}

/// Connections that are ready to be served; the listener is closed when this is dropped.
#[derive(Debug)]
pub struct Incoming {
    ready: mpsc::Receiver<Ready>,
    address: io::Result<SocketAddr>,
}

/// A connection, and who made it.
type Ready = (Connection, SocketAddr);

// === impl Acceptor ===

impl Acceptor {
    /// Accepts from `listener` at most `max` connections at a time.
    pub fn new(listener: TcpListener, max: usize) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(max)),
            tls: None,
        }
    }

    /// The same, but with TLS.
    #[must_use]
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Starts to accept.
    pub fn start(self) -> Incoming {
        let (sender, ready) = mpsc::channel(1);
        let address = self.listener.local_addr();
        tokio::spawn(self.run(sender));
        Incoming { ready, address }
    }

    async fn run(self, ready: mpsc::Sender<Ready>) {
        let mut handshakes = JoinSet::new();
        loop {
            let (stream, from, place) = tokio::select! {
                next = self.next() => next,
                Some(_) = handshakes.join_next() => continue,
                () = ready.closed() => return,
            };
            let Some(tls) = &self.tls else {
                if ready
                    .send((Connection::plain(stream, place), from))
                    .await
                    .is_err()
                {
                    return;
                }
                continue;
            };
            if let Some(handshake) = tls.handshake(stream, place, handshakes.len()) {
                let ready = ready.clone();
                handshakes.spawn(async move {
                    if let Some(connection) = handshake.await {
                        // Fails when the server has stopped, and then nobody is to be told.
                        let _ = ready.send((connection, from)).await;
                    }
                });
            }
        }
    }

    /// The next stream, as soon as there is a place for it.
    async fn next(&self) -> (TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
        // The semaphore is never closed, so there is always a place in the end.
        let place = self.places.clone().acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    // Answers are small and awaited. A socket that is gone already says so later.
                    let _ = stream.set_nodelay(true);
                    return (stream, from, place);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

// === impl Incoming ===

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.ready.poll_recv(cx);
        next.map(|ready| ready.map(|(connection, _)| Ok(connection)))
    }
}

impl Listener for Incoming {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Ready {
        match self.ready.recv().await {
            Some(ready) => ready,
            // The task that accepts ends after this only.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.address {
            Ok(address) => Ok(*address),
            Err(error) => Err(error.kind().into()),
        }
    }
}

#[cfg(test)]
mod tests;
