//! Request bodies of the attackers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Interval, interval};

/// Interval of the messages of an endless body.
const REPEAT: Duration = Duration::from_secs(1);

/// A body of one frame, with or without an end.
#[derive(Debug)]
pub(crate) struct SentBody {
    frame: Option<Bytes>,
    ends: bool,
}

/// A body that has the same message again and again.
#[derive(Debug)]
pub(crate) struct RepeatedBody {
    message: Bytes,
    timer: Interval,
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

// === impl RepeatedBody ===

impl RepeatedBody {
    /// Creates a body of `message`, again and again.
    pub(crate) fn new(message: Bytes) -> Self {
        Self {
            message,
            timer: interval(REPEAT),
        }
    }
}

impl Body for RepeatedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.timer.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(self.message.clone()))))
    }
}
