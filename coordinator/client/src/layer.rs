//! Layer that limits the requests of a tower service.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::charge::Charge;
use crate::client::Client;
use crate::response::{ResponseBody, is_grpc, refusal};

/// Layer that admits each request of a service by its scopes.
///
/// ```
/// use http::Request;
/// use tollgate_client::{Charge, Client, TollgateLayer};
///
/// # fn layer(limits: Client) {
/// let layer = TollgateLayer::new(limits, |request: &Request<()>| {
///     let tenant = request.headers().get("x-tenant")?.to_str().ok()?;
///     Some(Charge::of(format!("tenant/{tenant}")))
/// });
/// # let _ = layer;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TollgateLayer<F> {
    client: Client,
    charge: Arc<F>,
}

/// Service behind a [`TollgateLayer`].
#[derive(Clone, Debug)]
pub struct LimitedService<S, F> {
    inner: S,
    client: Client,
    charge: Arc<F>,
}

// === impl TollgateLayer ===

impl<F> TollgateLayer<F> {
    /// Returns a layer that charges each request as `charge` says; one for which that is `None` passes.
    pub fn new<B>(client: Client, charge: F) -> Self
    where
        F: Fn(&Request<B>) -> Option<Charge>,
    {
        Self {
            client,
            charge: Arc::new(charge),
        }
    }
}

impl<S, F> Layer<S> for TollgateLayer<F> {
    type Service = LimitedService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitedService {
            inner,
            client: self.client.clone(),
            charge: Arc::clone(&self.charge),
        }
    }
}

// === impl LimitedService ===

impl<S, F, B, R> Service<Request<B>> for LimitedService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Request<B>) -> Option<Charge>,
    B: Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready serves this request; its clone must become ready before the next one.
        let clone = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, clone);
        let client = self.client.clone();
        let charge = (self.charge)(&request);
        let is_grpc = is_grpc(request.headers());
        Box::pin(async move {
            let permit = match &charge {
                None => None,
                Some(charge) => match client.admit(charge).await {
                    Ok(permit) => Some(permit),
                    Err(error) => return Ok(refusal(&error, is_grpc)),
                },
            };
            let response = ready.call(request).await?;
            Ok(response.map(|body| ResponseBody::of(body, permit)))
        })
    }
}
