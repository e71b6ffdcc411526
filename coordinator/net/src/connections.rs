//! Accepts connections and serves them: a bounded number, and none that keeps the coordinator
//! waiting for ever.
//!
//! A bound alone would be a lock: a client that opens that many connections keeps all others out. So a
//! full listener makes room instead of refusing. It closes the connections that have kept it
//! waiting longest, first those of the source with the most connections. One whose call is being
//! worked on goes only for another source, and only if its own has more than a quarter of the
//! places. A few places more are there for probes: for a client that had to make room before it
//! could ask, and for one that comes while all others are being worked on.
//!
//! Everything a client has to do has a deadline: the TLS handshake, the header of a request, its
//! body, reading the answer, and a sign of life. One sweep a quarter of a second looks at all
//! connections, so none has a timer of its own. The bytes of calls are counted from their arrival
//! until the answer is sent, see [`CallMemory`].

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::either::Either;
use tokio_util::io::InspectReader;
use tonic::transport::server::Connected as _;

mod activity;
mod body;
mod bounds;
mod call;
mod end;
mod framing;
mod memory;
mod metrics;
mod serve;
mod source;
mod table;
mod tls;

pub use bounds::ConnectionBounds;
pub use bounds::{CALL_BYTES_MIN, IDLE_TIMEOUT_MIN};
pub use end::ConnectionEnd;
pub use memory::CallMemory;
pub use metrics::ConnectionMetrics;
pub use table::{ConnectionTable, ListenerLimits};
pub use tls::ListenerTls;

use self::table::ConnectionEntry;
use crate::tls::{HandshakeFault, PeerNames};

/// Pause after a failed accept: the usual reason, no file descriptor left, does not go
/// away at once, and trying again without a pause would take a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Interval of looking at deadlines; the shortest default is twenty times as long.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Accepts the connections of one listener.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    table: Arc<ConnectionTable>,
    tls: Option<ListenerTls>,
}

// === impl Acceptor ===

impl Acceptor {
    /// Accepts from `listener` what `table` has room for, with TLS if `tls` says so.
    pub fn new(listener: TcpListener, table: ConnectionTable, tls: Option<ListenerTls>) -> Self {
        Self {
            listener,
            table: Arc::new(table),
            tls,
        }
    }

    /// Serves `router` until `stop` resolves; then stops accepting, asks all clients to leave, and
    /// returns when the last call has ended.
    pub async fn serve(self, router: Router, stop: impl Future<Output = ()>) {
        let Self {
            listener,
            table,
            tls,
        } = self;
        let mut served = JoinSet::new();
        let mut stop = pin!(stop);
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => {
                        if let Some(entry) = table.admit(from, tls.is_some(), Instant::now()) {
                            let (tls, router) = (tls.clone(), router.clone());
                            served.spawn(run(stream, entry, tls, router));
                        }
                    }
                    Err(error) => not_accepted(&table, &error).await,
                },
                Some(_) = served.join_next() => {}
                _ = sweep.tick() => table.sweep(Instant::now()),
            }
        }
        drop(listener);
        table.close_all();
        while !served.is_empty() {
            tokio::select! {
                _ = served.join_next() => {}
                _ = sweep.tick() => table.sweep(Instant::now()),
            }
        }
    }
}

// === free functions ===

/// Makes room after a failed accept: file descriptors may run out before the table is full.
async fn not_accepted(table: &ConnectionTable, error: &io::Error) {
    let closed = table.make_room(Instant::now());
    tracing::warn!(%error, closed, "listener: cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Serves one connection until it ends or its entry says that it is to be cut off.
async fn run(stream: TcpStream, entry: ConnectionEntry, tls: Option<ListenerTls>, router: Router) {
    // Answers are small and awaited. A socket that is gone already says so later.
    let _ = stream.set_nodelay(true);
    let addresses = stream.connect_info();
    let activity = &entry.activity;
    let served = async {
        let (transport, names) = match &tls {
            None => (Either::Left(stream), PeerNames::default()),
            Some(tls) => match tls.handshake(stream).await {
                Some((stream, names)) => (Either::Right(Box::new(stream)), names),
                None => return,
            },
        };
        activity.connected(Instant::now());
        let reading = Arc::clone(activity);
        let io = InspectReader::new(transport, move |bytes: &[u8]| {
            if !bytes.is_empty() {
                reading.read(bytes.len(), Instant::now());
            }
        });
        serve::serve(io, (addresses, names), &entry, router).await;
    };
    tokio::select! {
        () = served => {}
        () = activity.cut_off() => {
            if let Some(tls) = tls.as_ref().filter(|_| activity.is_in_handshake()) {
                let times = &entry.table.limits.times;
                let late = activity.overdue(times, Instant::now()).is_some();
                tls.count(if late {
                    HandshakeFault::Timeout
                } else {
                    HandshakeFault::Busy
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
