//! Request bodies of the attackers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};

/// A body of one frame, with or without an end.
#[derive(Debug)]
pub(crate) struct SentBody {
    frame: Option<Bytes>,
    ends: bool,
}

// === impl SentBody ===

impl SentBody {
    /// Creates a body of `bytes`; without an end it lacks the last byte.
    pub(crate) fn new(bytes: Bytes, ends: bool) -> Self {
        let bytes = if ends {
            bytes
        } else {
            bytes.slice(..bytes.len() - 1)
        };
        Self {
            frame: Some(bytes),
            ends,
        }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.frame.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ends && self.frame.is_none()
    }
}
