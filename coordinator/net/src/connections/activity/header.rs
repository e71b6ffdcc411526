//! The header of the next request on a connection.

use tokio::time::Instant;

use crate::tls::Listener;

/// The bytes of an HTTP/2 preface and of the header of the SETTINGS frame after it. A client that
/// has sent them speaks HTTP/2; from then on pings say whether it lives.
const HTTP2_HELLO_LEN: usize = 33;

/// State of the next header, which has a deadline once it is expected.
#[derive(Clone, Copy, Debug)]
pub(super) enum Header {
    /// HTTP/2: the client is to say that it speaks that. `bytes` have come.
    Hello { since: Instant, bytes: usize },
    /// HTTP/1: the first header is to come, or a header has begun.
    Expected { since: Instant },
    /// It may come at any time, or not at all.
    Optional,
}

// === impl Header ===

impl Header {
    /// The first header, of a connection on which requests can come from now on.
    pub(super) fn first(listener: Listener, now: Instant) -> Self {
        let since = now;
        if listener == Listener::Grpc {
            Self::Hello { since, bytes: 0 }
        } else {
            Self::Expected { since }
        }
    }

    /// `bytes` were read while there are `calls`.
    pub(super) fn read(&mut self, listener: Listener, bytes: usize, calls: usize, now: Instant) {
        *self = match *self {
            Self::Hello { since, bytes: read } => {
                let bytes = read.saturating_add(bytes);
                if bytes < HTTP2_HELLO_LEN {
                    Self::Hello { since, bytes }
                } else {
                    Self::Optional
                }
            }
            // The bytes may be those of a body.
            Self::Optional if listener != Listener::Grpc && calls == 0 => {
                Self::Expected { since: now }
            }
            same => same,
        };
    }

    /// Since when it is expected, as far as it has a deadline.
    pub(super) fn expected_since(self) -> Option<Instant> {
        match self {
            Self::Hello { since, .. } | Self::Expected { since } => Some(since),
            Self::Optional => None,
        }
    }
}
