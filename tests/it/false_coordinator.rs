//! A coordinator that names without end what to ask for.

use std::iter;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Iter, iter};
use tollgate_net::wire::{LeaseService, LeaseServiceClient, LeaseServiceServer};
use tollgate_proto::v1;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::wait;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits: [{match: 'tenant/*', requests: {rate: 200}}]";

/// Longest wait for a condition, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Passes calls on to a true coordinator, and floods streams.
struct Flooding(LeaseServiceClient<Channel>);

type Message = Result<v1::WatchResponse, Status>;

#[tonic::async_trait]
impl LeaseService for Flooding {
    async fn refresh(
        &self,
        request: Request<v1::RefreshRequest>,
    ) -> Result<Response<v1::RefreshResponse>, Status> {
        self.0.clone().refresh(request.into_inner()).await
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        self.0.clone().release(request.into_inner()).await
    }

    type WatchStream = Iter<iter::RepeatN<Message>>;

    async fn watch(
        &self,
        _: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let named = v1::NudgedResource {
            scope: "tenant/acme".to_owned(),
            unit: v1::Unit::Requests.into(),
        };
        let message = v1::WatchResponse {
            resources: vec![named],
            ..v1::WatchResponse::default()
        };
        Ok(Response::new(iter(iter::repeat_n(Ok(message), usize::MAX))))
    }
}

#[test]
fn a_flood_of_nudges_ends_its_stream_and_nothing_else() {
    run_test("a_flood_of_nudges_ends_its_stream_and_nothing_else", floods);
}

async fn floods(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let address = format!("http://{}", coordinator.grpc());
    let flooding = Flooding(LeaseServiceClient::connect(address).await?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let at = listener.local_addr()?;
    let served = Server::builder().add_service(LeaseServiceServer::new(flooding));
    let server = tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    let filters = vec![tollgate(&by_tenant(&json!({})))?];
    let spec = EnvoySpec::new("envoy", 1, test.upstream.address(), filters);
    let envoy = Envoy::start(test.dir(), &spec.asking(at)).await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", 50.0)]);
    // It is closed, and so is the next one.
    wait::until("two floods", LIMIT, async || {
        let floods: u64 = envoy.stats("watch_floods").await?.values().sum();
        ensure!(floods >= 2, "{floods} streams were closed");
        Ok(())
    })
    .await?;
    let at = load.elapsed();
    load.run_until(at + Duration::from_secs(1)).await;
    let line = "names more scopes than a process can have";
    let log = envoy.process.log();
    ensure!(log.matches(line).count() == 1, "{log}");
    let records = load.stop().await?;
    let total = sum(&records).total();
    eprintln!("{total:?}");
    ensure!(total.admitted > 50 && total.failed == 0, "{total:?}");
    server.abort();
    Ok(())
}
