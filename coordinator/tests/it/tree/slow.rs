//! A parent that does not do all that it is asked.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_stream::Empty;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_core::lease_server::Start;
use tollgate_net::wire::{LeaseService, LeaseServiceClient, LeaseServiceServer};
use tollgate_proto::v1;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

use super::{Envoy, ROOT};
use crate::harness::{Coordinator, request};

/// Passes everything on but what is given back.
struct Keeping(LeaseServiceClient<Channel>);

#[tonic::async_trait]
impl LeaseService for Keeping {
    async fn refresh(
        &self,
        request: Request<v1::RefreshRequest>,
    ) -> Result<Response<v1::RefreshResponse>, Status> {
        self.0.clone().refresh(request.into_inner()).await
    }

    async fn release(
        &self,
        _: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        std::future::pending().await
    }

    type WatchStream = Empty<Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        _: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("names no resources"))
    }
}

/// A release without an answer does not delay the next request.
#[tokio::test]
async fn what_is_given_back_does_not_keep_the_parent_from_being_asked() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = LeaseServiceServer::new(Keeping(root.client()));
    let served = Server::builder().add_service(service);
    tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    let parent = format!("parent: {{name: eu, timeout: 10s, addresses: ['{address}']}}");
    let leaf = Coordinator::with(&format!("{parent}\nlimits: []"), Start::Fresh).await;
    let other = request("a/1", &[("tenant/other", 1, 0.0, 50.0)]);
    leaf.client().refresh(other).await.unwrap();
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.until(80.0, 80.0).await;
    leaf.release("a/1", "tenant/other", 2).await;
    let again = timeout(Duration::from_secs(5), envoy.until(30.0, 30.0));
    assert!(again.await.is_ok(), "waits for what was given back");
    let third = request("a/1", &[("tenant/third", 1, 0.0, 50.0)]);
    leaf.client().refresh(third).await.unwrap();
    let clients = async || root.get("/v1/scopes/tenant/third").await.status;
    let requested = async {
        while clients().await != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let requested = timeout(Duration::from_secs(5), requested).await;
    assert!(requested.is_ok(), "waits for what was given back");
}
