//! The status of a message that cannot be decoded.
//!
//! tonic answers INTERNAL, as gRPC's own libraries do. An operator then looks for a fault in the
//! coordinator, and an Envoy's retry policy tries again; but it is the client that sent bytes which
//! are not the message of its schema. Our services never answer INTERNAL themselves, so all of them
//! are wrapped, and what tonic says so becomes INVALID_ARGUMENT.

use std::task::{Context, Poll};

use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

/// A service that answers INVALID_ARGUMENT to messages that cannot be decoded.
#[derive(Clone, Debug)]
pub struct StrictDecoding<S>(pub S);

// === impl StrictDecoding ===

impl<S: NamedService> NamedService for StrictDecoding<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, R> Service<http::Request<B>> for StrictDecoding<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    R: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<S::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move { answer.await.map(blame_caller) })
    }
}

// === free functions ===

/// `answer`, with INVALID_ARGUMENT in the place of INTERNAL.
///
/// A call that fails before it has an answer has its status in the headers.
fn blame_caller<R>(mut answer: http::Response<R>) -> http::Response<R> {
    let status = answer.headers().get(Status::GRPC_STATUS);
    if status.is_some_and(|status| Code::from_bytes(status.as_bytes()) == Code::Internal) {
        let invalid = http::HeaderValue::from(Code::InvalidArgument as i32);
        answer.headers_mut().insert(Status::GRPC_STATUS, invalid);
    }
    answer
}
