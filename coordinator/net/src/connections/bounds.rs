//! Bounds of connections.

use std::time::Duration;

use crate::wire::CALL_LEN_MAX;

/// The part of the memory of calls that one connection may hold: an eighth.
pub(super) const CONNECTION_PARTS: usize = 8;

/// The least memory of calls. With less no connection could make the longest call.
pub const CALL_BYTES_MIN: usize = CONNECTION_PARTS * CALL_LEN_MAX;

/// The shortest time for which a connection may be silent. An HTTP/2 client is asked for a sign of
/// life after 30 s, and has 10 s to give it.
pub const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(45);

/// Most open connections, most memory of their calls, and the time that a client may take for its
/// part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBounds {
    /// Connections of the gRPC listener.
    pub max_grpc: usize,
    /// Connections of the HTTP listener.
    pub max_http: usize,
    /// Bytes of requests and of answers not yet sent, over all connections; one may hold an eighth.
    pub max_call_bytes: usize,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time for the header of a request, and again for its body.
    pub request_timeout: Duration,
    /// Time in which an answer is read, beside a second for each 256 KiB.
    pub response_timeout: Duration,
    /// Time for which a connection may be silent.
    pub idle_timeout: Duration,
}

// === impl ConnectionBounds ===

impl Default for ConnectionBounds {
    /// Far more Envoys than one coordinator serves, below the usual limit of file descriptors of a
    /// service; and deadlines that the slowest network keeps.
    fn default() -> Self {
        Self {
            max_grpc: 8192,
            max_http: 512,
            max_call_bytes: 64 << 20,
            handshake_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(90),
        }
    }
}
