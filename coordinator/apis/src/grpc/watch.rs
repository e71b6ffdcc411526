//! Streams on which clients and other nodes are nudged.

use std::time::Duration;

use tollgate_leases::nudges::NudgeWatch;
use tollgate_net::connections::ConnectionEnd;
use tollgate_proto::v1;
use tonic::Status;

use crate::outbound::{Outbound, OutboundStream};

/// Pause after the first nudge, so that those that come together go together.
const GATHER_TIME: Duration = Duration::from_millis(2);

/// Messages of one stream.
pub(super) type WatchStream = OutboundStream<v1::WatchResponse>;

type Messages = Outbound<v1::WatchResponse>;

/// Sends what `watch` has until another one takes its place or its client leaves, or `connection` is
/// to end.
pub(super) fn stream(watch: NudgeWatch, connection: Option<ConnectionEnd>) -> WatchStream {
    // While the client does not read, nudges stay in the mailbox, where each is once.
    let (outbound, messages) = Outbound::new();
    tokio::spawn(run(watch, connection, outbound));
    messages
}

async fn run(watch: NudgeWatch, connection: Option<ConnectionEnd>, messages: Messages) {
    let end = tokio::select! {
        end = send_nudges(&watch, &messages) => end,
        () = closing(connection) => {
            Status::unavailable("the coordinator closes this connection: watch over another one")
        }
        () = messages.closed() => return,
    };
    drop(watch);
    messages.end(end).await;
}

/// Sends nudges; returns the status with which the stream ends.
async fn send_nudges(watch: &NudgeWatch, messages: &Messages) -> Status {
    loop {
        if let Err(replaced) = watch.filled().await {
            return Status::aborted(replaced.to_string());
        }
        tokio::time::sleep(GATHER_TIME).await;
        loop {
            let Some(order) = messages.ordered().await else {
                return Status::cancelled("the client has left");
            };
            let Some(nudged) = watch.take() else { break };
            order.send((&nudged).into());
        }
    }
}

async fn closing(connection: Option<ConnectionEnd>) {
    match connection {
        Some(connection) => connection.closing().await,
        None => std::future::pending().await,
    }
}
