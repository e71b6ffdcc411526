//! One connection, with or without TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected as _, TcpConnectInfo};

use super::activity::Activity;

/// The bytes of a connection; reading is noted in its activity.
#[derive(Debug)]
pub(super) struct Connection {
    transport: Transport,
    activity: Arc<Activity>,
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
    pub(super) fn plain(stream: TcpStream, activity: Arc<Activity>) -> Self {
        let transport = Transport::Plain(stream);
        Self {
            transport,
            activity,
        }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>, activity: Arc<Activity>) -> Self {
        let transport = Transport::Tls(Box::new(stream));
        Self {
            transport,
            activity,
        }
    }

    /// The addresses of both sides, for services that tell them.
    pub(super) fn addresses(&self) -> TcpConnectInfo {
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
        let result = either!(self, poll_read(cx, buf));
        let read = buf.filled().len() - before;
        if read > 0 {
            self.activity.heard(read, Instant::now());
        }
        result
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
