//! Accepted connections, a bounded number of them.
//!
//! tonic bounds the calls on a connection but not the connections; without a bound anyone who can
//! reach the port can use up the file descriptors that Envoys need.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// The most connections at a time: far more than the Envoys that one coordinator serves, and below
/// the usual limit of file descriptors for a service.
pub const CONNECTIONS_MAX: usize = 8192;

/// A connection and its place among the others, which it frees when it is dropped.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// Accepts connections from `listener` while there are fewer than `max`; others wait in the
/// kernel's backlog.
pub fn accept(
    listener: TcpListener,
    max: usize,
) -> impl Stream<Item = io::Result<Connection>> + Send {
    let places = Arc::new(Semaphore::new(max));
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let place = tokio::select! {
                place = places.clone().acquire_owned() => place,
                () = sender.closed() => return,
            };
            let Ok(place) = place else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let connection = accepted.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                Ok(Connection {
                    stream,
                    _place: place,
                })
            });
            if sender.send(connection).await.is_err() {
                return;
            }
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
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
