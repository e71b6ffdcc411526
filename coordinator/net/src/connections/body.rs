//! The bodies of a call, whose bytes are counted: those of the request as they come, those of the
//! answer from when they are made until the connection has sent them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use hyper::body::{Body, Buf, Bytes, Frame, Incoming, SizeHint};
use tonic::Status;

use super::call::{AnswerCharge, Call};
use super::framing::MessageFraming;
use crate::tls::Listener;

/// The body of a request.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Incoming,
    call: Arc<Call>,
    /// The messages of a gRPC call.
    framing: Option<MessageFraming>,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct ResponseBody {
    pub(super) body: axum::body::Body,
    /// None for a refusal, which is too small to be counted.
    pub(super) call: Option<Arc<Call>>,
}

/// Bytes of an answer that are not sent yet.
#[derive(Debug)]
pub(super) struct UnsentBytes {
    bytes: Bytes,
    charge: Option<AnswerCharge>,
}

// === impl RequestBody ===

impl RequestBody {
    /// Counts what comes in `body` for `call`, which `listener` has accepted.
    pub(super) fn new(body: Incoming, call: Arc<Call>, listener: Listener) -> Self {
        if body.is_end_stream() {
            call.received();
        }
        let framing = (listener == Listener::Grpc).then(MessageFraming::default);
        Self {
            body,
            call,
            framing,
        }
    }

    /// Counts the bytes of `frame`.
    ///
    /// # Errors
    /// If they are too many: a status, which gRPC passes on with its code.
    fn count(&mut self, frame: &Frame<Bytes>) -> Result<(), Status> {
        let bytes = frame.data_ref().map_or(&[][..], |bytes| bytes);
        let framing = self.framing.as_mut();
        let progress = framing.map(|framing| framing.read(bytes));
        let counted = self.call.receive(bytes.len(), progress.unwrap_or_default());
        counted.map_err(|refusal| Status::resource_exhausted(refusal.to_string()))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let next = Pin::new(&mut self.body).poll_frame(cx);
        Poll::Ready(match std::task::ready!(next) {
            None => {
                self.call.received();
                None
            }
            Some(Err(error)) => Some(Err(error.into())),
            Some(Ok(frame)) => {
                let counted = self.count(&frame);
                if self.body.is_end_stream() {
                    self.call.received();
                }
                Some(counted.map(|()| frame).map_err(BoxError::from))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.call.body_dropped();
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Counts the bytes of `frame`.
    ///
    /// # Errors
    /// If there is no memory for them.
    fn count(&self, frame: Frame<Bytes>) -> Result<Frame<UnsentBytes>, axum::Error> {
        let call = self.call.as_ref().zip(frame.data_ref());
        let charge = call.map(|(call, bytes)| call.charge(bytes.len()));
        let charge = charge.transpose().map_err(axum::Error::new)?;
        Ok(frame.map_data(|bytes| UnsentBytes { bytes, charge }))
    }
}

impl Body for ResponseBody {
    type Data = UnsentBytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<UnsentBytes>, axum::Error>>> {
        let next = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(next.map(|frame| self.count(frame?)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl UnsentBytes ===

impl Buf for UnsentBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if self.bytes.is_empty()
            && let Some(charge) = &self.charge
        {
            charge.sent();
        }
    }
}
