//! gRPC API for Envoys and leaf coordinators: `tollgate.v1.LeaseService`.
//!
//! Only translates: checks the fields of a call, hands it to the router, and answers with the result.

use std::time::Duration;

use tollgate_core::lease::ClientRun;
use tollgate_leases::metrics::{LeaseMetrics, RefreshFault};
use tollgate_leases::nudges::{NODE, Watcher};
use tollgate_leases::router::{CallContext, RouteError, Router};
use tollgate_net::clock::Clock;
use tollgate_net::connections::ConnectionEnd;
use tollgate_net::wire::{CALL_LEN_MAX, LeaseService, LeaseServiceServer};
use tollgate_observe::trace;
use tollgate_proto::nudge::Watch;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::{FieldError, v1};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

mod caller;
mod decoding;
mod forward;
mod watch;

pub use caller::CallerCheck;
use caller::{Caller, CallerError};
pub use decoding::StrictDecoding;
pub use forward::ForwardApi;

/// Time after which a client without a master should try again: about as soon as there can be a new
/// master.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Lease service, which answers from the lease tables of the cluster.
#[derive(Clone, Debug)]
pub struct Service {
    router: Router,
    clock: Clock,
    metrics: LeaseMetrics,
    callers: CallerCheck,
}

/// Refusal of a whole call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// A field breaks a rule.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The caller is not who it says.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// No lease table answered.
    #[error(transparent)]
    Route(#[from] RouteError),
}

// === impl Service ===

impl Service {
    /// The service that answers through `router` those that `callers` lets pass.
    pub fn new(
        router: Router,
        clock: Clock,
        metrics: LeaseMetrics,
        callers: CallerCheck,
    ) -> LeaseServiceServer<Self> {
        let service = Self {
            router,
            clock,
            metrics,
            callers,
        };
        LeaseServiceServer::new(service).max_decoding_message_size(CALL_LEN_MAX)
    }

    /// Returns the name of the other node of the cluster that `node` names.
    ///
    /// # Errors
    /// If it names none.
    fn member(&self, node: Option<AsciiMetadataValue>) -> Result<String, Status> {
        let Some(me) = &self.router.me else {
            let rule = "client_id: is empty, which it may be only between the nodes of a cluster";
            return Err(Status::invalid_argument(rule));
        };
        let name = node.as_ref().and_then(|node| node.to_str().ok());
        let rule = || format!("{NODE}: is missing, which it may not be with an empty client_id");
        let name = name.ok_or_else(|| Status::invalid_argument(rule()))?;
        let masters = self.router.masters.borrow();
        let mut members = masters.members.iter();
        if name == me.node || !members.any(|member| member.node == name) {
            let text = format!("{NODE}: {} is no other node", name.escape_debug());
            return Err(Status::permission_denied(text));
        }
        Ok(name.to_owned())
    }

    /// Checks whether `caller` may speak for `client`, in a call of `context`.
    fn check(
        &self,
        caller: &Caller,
        context: CallContext,
        client: &ClientRun,
    ) -> Result<(), CallerError> {
        match context.forwarded {
            None => self.callers.client(caller, client),
            Some(_) => self.callers.node(caller),
        }
    }

    async fn answer(
        &self,
        request: v1::RefreshRequest,
        (caller, context): (Caller, CallContext),
    ) -> Result<v1::RefreshResponse, CallError> {
        let refresh = Refresh::try_from(request)?;
        self.check(&caller, context, &refresh.client)?;
        trace::record_call(refresh.client.id.as_str(), refresh.scopes.len());
        let answers = self.router.refresh(refresh, context).await?;
        Ok(v1::RefreshResponse::new(&answers))
    }

    async fn release_leases(
        &self,
        request: v1::ReleaseRequest,
        (caller, context): (Caller, CallContext),
    ) -> Result<v1::ReleaseResponse, CallError> {
        let release = match context.forwarded {
            None => Release::try_from(request)?,
            Some(_) => request.forwarded()?,
        };
        self.check(&caller, context, &release.client)?;
        let count = release.resources.len();
        trace::record_call(release.client.id.as_str(), count);
        let epoch = self.router.release(release, context).await?.0;
        self.metrics.count_releases(count);
        Ok(v1::ReleaseResponse { epoch })
    }
}

#[tonic::async_trait]
impl LeaseService for Service {
    async fn refresh(
        &self,
        request: Request<v1::RefreshRequest>,
    ) -> Result<Response<v1::RefreshResponse>, Status> {
        let arrival = self.clock.now();
        let context = CallContext::read(request.metadata())?;
        let caller = Caller::of(request.extensions());
        let result = self.answer(request.into_inner(), (caller, context)).await;
        let scopes = result.as_ref().map_or(0, |answer| answer.scopes.len());
        let duration = self.clock.now().saturating_since(arrival);
        self.metrics.count_refresh(scopes, duration);
        if let Err(error) = &result {
            tracing::debug!(%error, "refresh: call refused");
            trace::record_error(&error.to_string());
            self.metrics.count_fault(error.fault());
        }
        let mut response = Response::new(result?);
        if context.from_child {
            // Forwarded calls have brought the ancestors along.
            self.router.ancestors.write_path(response.metadata_mut());
        }
        Ok(response)
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        let context = CallContext::read(request.metadata())?;
        let caller = Caller::of(request.extensions());
        let released = self.release_leases(request.into_inner(), (caller, context));
        let answer = released.await?;
        Ok(Response::new(answer))
    }

    type WatchStream = watch::WatchStream;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let connection = request.extensions().get::<ConnectionEnd>().cloned();
        let caller = Caller::of(request.extensions());
        let node = request.metadata().get(NODE).cloned();
        let watch = Watch::try_from(request.into_inner()).map_err(CallError::from)?;
        let watcher = match watch {
            Watch::Client(client) => {
                trace::record_call(client.id.as_str(), 0);
                let checked = self.callers.client(&caller, &client);
                checked.map_err(CallError::from)?;
                Watcher::Client(client)
            }
            Watch::Rest => {
                self.callers.node(&caller).map_err(CallError::from)?;
                Watcher::Node(self.member(node)?)
            }
        };
        let watch = self.router.nudges.open(watcher);
        let watch = watch.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        if let Some(connection) = &connection {
            connection.stream_begins();
        }
        Ok(Response::new(watch::stream(watch, connection)))
    }
}

// === impl CallError ===

impl CallError {
    fn fault(&self) -> RefreshFault {
        match self {
            Self::Field(_) | Self::Caller(_) => RefreshFault::Invalid,
            Self::Route(error) if error.is_busy() => RefreshFault::Busy,
            Self::Route(_) => RefreshFault::NoMaster,
        }
    }
}

// === impl Status ===

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Field(_) => Self::new(Code::InvalidArgument, error.to_string()),
            CallError::Caller(_) => Self::new(Code::PermissionDenied, error.to_string()),
            CallError::Route(_) => {
                let retry = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
                Self::with_error_details(Code::Unavailable, error.to_string(), retry)
            }
        }
    }
}
