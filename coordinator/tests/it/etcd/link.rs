//! A network between a client and a server that can be cut.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to one address, for as long as it is whole.
pub(crate) struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// Connections end.
    Cut,
    /// Connections stay open, and nothing passes.
    Hangs,
}

// === impl Link ===

impl Link {
    /// Opens a link to `to`.
    pub(crate) async fn to(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(State::Whole);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, to, seen.clone()));
            }
        });
        Self { address, state }
    }

    /// Where to connect instead.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections; new ones end at once.
    pub(crate) fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Lets nothing through, but ends no connection.
    pub(crate) fn hang(&self) {
        self.state.send_replace(State::Hangs);
    }

    /// Lets new connections through.
    pub(crate) fn mend(&self) {
        self.state.send_replace(State::Whole);
    }
}

// === free functions ===

async fn carry(mut stream: TcpStream, to: SocketAddr, mut state: watch::Receiver<State>) {
    let Ok(mut other) = TcpStream::connect(to).await else {
        return;
    };
    let now = *state.borrow_and_update();
    if now == State::Whole {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut stream, &mut other) => return,
            _ = state.wait_for(|state| *state != State::Whole) => {}
        }
    }
    if *state.borrow() == State::Hangs {
        // A connection that hung once is not used again.
        let _ = state.wait_for(|state| *state != State::Hangs).await;
    }
}
