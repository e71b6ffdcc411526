//! Responses of a limited service.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::error::{AcquireError, Refused};
use crate::permit::Permit;

/// Source of the reasons in the details of a gRPC status.
const DOMAIN: &str = "tollgate";

pin_project! {
    /// Body of a response: the service's own, or the words of a refusal. The request is over when this is
    /// dropped or has ended.
    #[derive(Debug)]
    pub struct ResponseBody<R> {
        #[pin]
        kind: Kind<R>,
        permit: Option<Permit>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<R> {
        Service { #[pin] body: R },
        Words { text: Option<Bytes> },
    }
}

// === impl ResponseBody ===

impl<R> ResponseBody<R> {
    /// Returns the body of a request that went on with `permit`.
    pub(crate) fn of(body: R, permit: Option<Permit>) -> Self {
        let kind = Kind::Service { body };
        Self { kind, permit }
    }

    fn words(text: Bytes) -> Self {
        Self {
            kind: Kind::Words {
                text: (!text.is_empty()).then_some(text),
            },
            permit: None,
        }
    }
}

impl<R: Body<Data = Bytes>> Body for ResponseBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        let this = self.project();
        let frame = match this.kind.project() {
            KindProjection::Service { body } => ready!(body.poll_frame(context)),
            KindProjection::Words { text } => text.take().map(|text| Ok(Frame::data(text))),
        };
        if frame.is_none() {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body } => body.is_end_stream(),
            Kind::Words { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body } => body.size_hint(),
            Kind::Words { text } => {
                let len = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(len).unwrap_or(u64::MAX))
            }
        }
    }
}

// === free functions ===

/// Returns whether a request wants a gRPC status rather than an HTTP one: by the same rule as in Envoy.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE);
    let rest = kind.and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+"))
}

/// Returns the response to a request that does not go on.
pub(crate) fn refusal<R>(error: &AcquireError, is_grpc: bool) -> Response<ResponseBody<R>> {
    let mut response = if is_grpc {
        status(error).into_http().map(|()| Bytes::new())
    } else {
        in_http(error)
    };
    for (name, value) in error.refused().into_iter().flat_map(Refused::headers) {
        // Rule names and numbers are valid everywhere.
        if let Ok(value) = HeaderValue::from_str(value) {
            let headers = response.headers_mut();
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response.map(ResponseBody::words)
}

fn in_http(error: &AcquireError) -> Response<Bytes> {
    let (status, kind, body) = match error {
        AcquireError::Refused(refused) => (
            StatusCode::TOO_MANY_REQUESTS,
            "application/problem+json",
            refused.problem().to_owned(),
        ),
        AcquireError::Scope { .. } => (StatusCode::BAD_REQUEST, "text/plain", error.to_string()),
        AcquireError::TooManyScopes(_) | AcquireError::Closed => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain",
            error.to_string(),
        ),
    };
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn status(error: &AcquireError) -> Status {
    let AcquireError::Refused(refused) = error else {
        let code = match error {
            AcquireError::Scope { .. } => Code::InvalidArgument,
            _ => Code::Internal,
        };
        return Status::new(code, error.to_string());
    };
    let metadata = [("reason", refused.reason()), ("rule", refused.rule())];
    let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut details = ErrorDetails::with_error_info(refused.code(), DOMAIN, metadata);
    if let Some(pause) = refused.retry_after() {
        details.set_retry_info(Some(pause));
    }
    Status::with_error_details(Code::ResourceExhausted, refused.to_string(), details)
}
