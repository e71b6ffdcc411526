//! `tollgate.v1.PeerService`: answers of this node to the others.

use std::time::Duration;

use tollgate_net::wire::{PeerService, PeerServiceServer};
use tollgate_observe::logging::AUDIT;
use tollgate_proto::v1;
use tonic::{Code, Request, Response, Status};

use super::message::{peer_history, to_message};
use crate::App;
use crate::clients::{self, DRAIN_MAX};
use crate::extract::ENTRIES_MAX;
use crate::guard::Entrance;
use crate::history::route;
use crate::lease_view::{ScopeDetail, ScopePage};
use crate::merge;
use crate::problem::RestError;
use crate::quotas;
use crate::scopes;
use crate::status::{self, Shown};

/// The largest call, in bytes: a few names and numbers.
const CALL_LEN_MAX: usize = 16 << 10;

/// Answers of one node to the others.
#[derive(Clone, Debug)]
pub struct PeerApi(App);

// === impl PeerApi ===

impl PeerApi {
    /// Returns the service that answers with the leases of `app`.
    pub fn new(app: App) -> PeerServiceServer<Self> {
        PeerServiceServer::new(Self(app)).max_decoding_message_size(CALL_LEN_MAX)
    }

    /// Checks `request` as the admin API checks a request for `entrance`, and returns its message and
    /// the name of its token.
    fn admit<M>(
        &self,
        request: Request<M>,
        entrance: Entrance,
    ) -> Result<(M, Option<String>), Status> {
        let by = self.0.gate.admit_peer(entrance, &request)?;
        Ok((request.into_inner(), by))
    }

    async fn leases(&self, client: &str) -> Result<Response<v1::PeerView>, Status> {
        let client = clients::client_id(client)?;
        let found = clients::detail(&self.0, &client).await?;
        Ok(Response::new(to_message(found.as_ref())?))
    }
}

#[tonic::async_trait]
impl PeerService for PeerApi {
    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let entrance = Entrance::of_read(request.get_ref().page);
        let (message, _) = self.admit(request, entrance)?;
        let shown = Shown::of_message(message, self.0.parts.writer.catalog())?;
        let status = status::Status::of(&self.0, &shown).await?;
        Ok(Response::new(to_message(Some(&status))?))
    }

    async fn get_history(
        &self,
        request: Request<v1::GetHistoryRequest>,
    ) -> Result<Response<v1::PeerHistory>, Status> {
        let entrance = Entrance::of_read(request.get_ref().page);
        let (message, _) = self.admit(request, entrance)?;
        let selection = route::selection(message)?;
        let now = self.0.parts.clock.now();
        let window = self.0.parts.history.window(now, &selection);
        Ok(Response::new(peer_history(window)))
    }

    async fn list_scopes(
        &self,
        request: Request<v1::ListPeerRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let (message, _) = self.admit(request, Entrance::Read)?;
        let limit = limit(message.limit, ENTRIES_MAX);
        let pages = ScopePage::of_shards(&self.0.parts.shards, &message.after, limit).await;
        let page = scopes::merged(pages.map_err(RestError::from)?, limit);
        Ok(Response::new(to_message(Some(&page))?))
    }

    async fn get_scope(
        &self,
        request: Request<v1::GetScopeRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let entrance = Entrance::of_read(request.get_ref().page);
        let (message, _) = self.admit(request, entrance)?;
        let clients = limit(message.clients, ENTRIES_MAX);
        let details = ScopeDetail::of_shards(&self.0.parts.shards, &message.scope, clients).await;
        let detail = merge::one(details.map_err(RestError::from)?);
        Ok(Response::new(to_message(detail.as_ref())?))
    }

    async fn list_clients(
        &self,
        request: Request<v1::ListPeerRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let (message, _) = self.admit(request, Entrance::Read)?;
        let limit = limit(message.limit, ENTRIES_MAX);
        let page = clients::own_page(&self.0, message.after, limit).await?;
        Ok(Response::new(to_message(Some(&page))?))
    }

    async fn get_client(
        &self,
        request: Request<v1::GetClientRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let (message, _) = self.admit(request, Entrance::Read)?;
        self.leases(&message.client).await
    }

    async fn list_quotas(
        &self,
        request: Request<v1::ListPeerRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let (message, _) = self.admit(request, Entrance::Read)?;
        let limit = limit(message.limit, ENTRIES_MAX);
        let page = quotas::own_page(&self.0, &message.after, limit).await?;
        Ok(Response::new(to_message(Some(&page))?))
    }

    async fn get_quotas(
        &self,
        request: Request<v1::GetQuotasRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let (message, _) = self.admit(request, Entrance::Read)?;
        let own = quotas::own(&self.0, &message.scope).await?;
        Ok(Response::new(to_message(own.as_ref())?))
    }

    async fn change_quota(
        &self,
        request: Request<v1::ChangeQuotaRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let (message, by) = self.admit(request, Entrance::Write)?;
        let v1::ChangeQuotaRequest { scope, json } = message;
        let outcome = quotas::change_for_peer(&self.0, &scope, by, &json).await?;
        Ok(Response::new(to_message(outcome.as_ref())?))
    }

    async fn drain(
        &self,
        request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::PeerView>, Status> {
        let (message, by) = self.admit(request, Entrance::Write)?;
        let v1::DrainRequest { client, time_ms } = message;
        let id = clients::client_id(&client)?;
        // No longer than the admin API lets an operator say.
        let time = Duration::from_millis(time_ms).min(DRAIN_MAX);
        let drained = self.0.parts.shards.drain(&id, time).await;
        let drained = drained.map_err(RestError::from);
        let drained = drained.and_then(|done| done.map_err(RestError::from));
        let status = drained.as_ref().map_or_else(RestError::code, |()| Code::Ok);
        tracing::info!(target: AUDIT, ?by, ?client, time_ms, ?status, "admin API: write at a peer");
        drained?;
        self.leases(&client).await
    }
}

// === free functions ===

/// Returns `wanted` as a number of entries.
fn limit(wanted: u32, max: usize) -> usize {
    usize::try_from(wanted).unwrap_or(max).clamp(1, max)
}
