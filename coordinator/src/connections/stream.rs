//! One connection, with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// A connection on which nothing has been heard for this long is given up. An Envoy that lives is
/// asked, and answers, more than twice as often.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(90);

/// A connection and its place among the others, which it frees when it is dropped.
#[derive(Debug)]
pub struct Connection {
    transport: Transport,
    /// When something was heard last.
    heard: Instant,
    /// Ends when it is time to look how long ago that was. Not moved with each read: that would
    /// cost a busy connection more than looking once too often costs a quiet one.
    silence: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls the same method of whichever stream there is.
macro_rules! either {
    ($connection:expr, $method:ident($($argument:expr),*)) => {
        match &mut $connection.transport {
            Transport::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Transport::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

// === impl Connection ===

impl Connection {
    pub(super) fn plain(stream: TcpStream, place: Option<OwnedSemaphorePermit>) -> Self {
        Self::new(Transport::Plain(stream), place)
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>, place: Option<OwnedSemaphorePermit>) -> Self {
        Self::new(Transport::Tls(Box::new(stream)), place)
    }

    fn new(transport: Transport, place: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            transport,
            heard: Instant::now(),
            silence: Box::pin(tokio::time::sleep(SILENCE_MAX)),
            _place: place,
        }
    }

    /// Resolves when nothing has been heard for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            ready!(self.silence.as_mut().poll(cx));
            let end = self.heard + SILENCE_MAX;
            if end <= Instant::now() {
                let text = "nothing was heard for too long";
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.silence.as_mut().reset(end);
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        match &self.transport {
            Transport::Plain(stream) => stream.connect_info(),
            Transport::Tls(stream) => stream.get_ref().0.connect_info(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match either!(self, poll_read(cx, buf)) {
            Poll::Pending => self.poll_silence(cx).map(Err),
            result => {
                if buf.filled().len() > before {
                    self.heard = Instant::now();
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
        either!(self, poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_shutdown(cx))
    }
}
