//! A parent that lies about its epoch.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_stream::Empty;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_coordinator::wire::{LeaseService, LeaseServiceClient, LeaseServiceServer};
use tollgate_core::lease_server::Start;
use tollgate_proto::v1;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

use super::{Envoy, ROOT, metric};
use crate::harness::Coordinator;

/// Passes everything on, but says that answers are of the epoch that it is told, unless that is 0.
struct Lying(LeaseServiceClient<Channel>, Arc<AtomicU64>);

#[tonic::async_trait]
impl LeaseService for Lying {
    async fn refresh(
        &self,
        request: Request<v1::RefreshRequest>,
    ) -> Result<Response<v1::RefreshResponse>, Status> {
        let mut answer = self.0.clone().refresh(request.into_inner()).await?;
        let lie = self.1.load(Ordering::Relaxed);
        if lie > 0 {
            answer.get_mut().epoch = lie;
        }
        Ok(answer)
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        self.0.clone().release(request.into_inner()).await
    }

    type WatchStream = Empty<Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        _: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("names no resources"))
    }
}

#[tokio::test]
async fn a_parent_that_lied_about_its_epoch_is_heard_again() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let lie = Arc::new(AtomicU64::new(u64::MAX));
    let service = LeaseServiceServer::new(Lying(root.client(), lie.clone()));
    let served = Server::builder().add_service(service);
    tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    let parent = format!("parent: {{name: eu, addresses: ['{address}']}}");
    let leaf = Coordinator::with(&format!("{parent}\nlimits: []"), Start::Fresh).await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.refresh(80.0).await;
    let name = "tollgate_parent_epoch_errors_total{cause=\"jump\"}";
    let refused = async {
        while metric(&leaf, name).await == 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), refused).await.unwrap();
    lie.store(0, Ordering::Relaxed);
    let heard = timeout(Duration::from_secs(10), envoy.until(80.0, 80.0)).await;
    assert!(heard.is_ok(), "the parent is ignored for ever");
}
