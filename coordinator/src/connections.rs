//! Accepted connections, a bounded number of them.
//!
//! The servers bound the calls on a connection but not the connections; without a bound anyone who
//! can reach a port can use up the file descriptors that Envoys need. And a place must not be held
//! by who never speaks: the servers ask only those for signs of life who have said hello.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long to wait after a failed accept: the usual reason, no file descriptor left, does not go
/// away at once, and trying again without a pause would take a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection on which nothing has been heard for this long is given up. An Envoy that lives is
/// asked, and answers, more than twice as often.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Accepts connections while there are fewer than a bound; others wait in the kernel's backlog.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// A connection and its place among the others, which it frees when it is dropped.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Ends when nothing has been heard for too long.
    silence: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

// === impl Acceptor ===

impl Acceptor {
    /// Accepts from `listener` at most `max` connections at a time.
    pub fn new(listener: TcpListener, max: usize) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(max)),
        }
    }

    /// The next connection, as soon as there is a place for it.
    async fn next(&self) -> (Connection, SocketAddr) {
        // The semaphore is never closed, so there is always a place in the end.
        let place = self.places.clone().acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    // Answers are small and awaited. A socket that is gone already says so later.
                    let _ = stream.set_nodelay(true);
                    let connection = Connection {
                        stream,
                        silence: Box::pin(tokio::time::sleep(SILENCE_MAX)),
                        _place: place,
                    };
                    return (connection, from);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The connections as tonic takes them; the listener is closed when the stream is dropped.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Connection>> + Send {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let connection = tokio::select! {
                    (connection, _) = self.next() => connection,
                    () = sender.closed() => return,
                };
                if sender.send(Ok(connection)).await.is_err() {
                    return;
                }
            }
        });
        ReceiverStream::new(receiver)
    }
}

impl Listener for Acceptor {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        self.next().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

// === impl Connection ===

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending => self.silence.as_mut().poll(cx).map(|()| {
                let text = "nothing was heard for too long";
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }),
            result => {
                if buf.filled().len() > before {
                    self.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
                }
                result
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
