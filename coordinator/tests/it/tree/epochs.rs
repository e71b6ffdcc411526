//! A parent that lies about its epoch.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_stream::Empty;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::Start;
use tollgate_net::wire::{LeaseService, LeaseServiceClient, LeaseServiceServer};
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

/// A coordinator below one that passes the calls to `root` on, and says of its answers that they are
/// of the epoch in the number.
async fn below_a_liar(root: &Coordinator, lie: u64) -> (Coordinator, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let lie = Arc::new(AtomicU64::new(lie));
    let service = LeaseServiceServer::new(Lying(root.client(), lie.clone()));
    let served = Server::builder().add_service(service);
    tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    let parent = format!("parent: {{name: eu, addresses: ['{address}']}}");
    let leaf = Coordinator::with(&format!("{parent}\nlimits: []"), Start::Fresh).await;
    (leaf, lie)
}

/// Waits until `leaf` has refused answers for `cause`, for ten seconds at most.
async fn until_refused(leaf: &Coordinator, cause: &str) {
    let name = format!("tollgate_parent_epoch_errors_total{{cause=\"{cause}\"}}");
    let refused = async {
        while metric(leaf, &name).await == 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), refused).await.unwrap();
}

#[tokio::test]
async fn a_parent_that_lied_about_its_epoch_is_heard_again() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let (leaf, lie) = below_a_liar(&root, u64::MAX).await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.refresh(80.0).await;
    until_refused(&leaf, "jump").await;
    lie.store(0, Ordering::Relaxed);
    let received = timeout(Duration::from_secs(10), envoy.until(80.0, 80.0)).await;
    assert!(received.is_ok(), "the parent is ignored for ever");
}

#[tokio::test]
async fn a_parent_that_lied_within_the_possible_is_heard_again_after_a_lease() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let (leaf, lie) = below_a_liar(&root, Epoch::MAX.0).await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.until(80.0, 80.0).await;
    lie.store(0, Ordering::Relaxed);
    until_refused(&leaf, "lower").await;
    // The lease of the higher epoch ends, and the next one is of the true master: it is renewed
    // without an answer that is refused.
    let received = async {
        let name = "tollgate_parent_epoch_errors_total{cause=\"lower\"}";
        let mut refused = metric(&leaf, name).await;
        let mut renewed = 0;
        while renewed < 20 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let lease = envoy.refresh(80.0).await.answer.lease;
            let now = metric(&leaf, name).await;
            let is_renewed = lease.is_some() && envoy.has == 80.0 && now == refused;
            renewed = if is_renewed { renewed + 1 } else { 0 };
            refused = now;
        }
    };
    let received = timeout(Duration::from_secs(30), received).await;
    assert!(received.is_ok(), "the parent is ignored for ever");
}
