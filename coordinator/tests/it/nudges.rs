//! Streams on which clients are told what to ask for now.

use std::time::Duration;

use tokio::time::timeout;
use tollgate_core::lease_server::Start;
use tollgate_leases::nudges::NODE;
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::nudge::{Nudged, Watch};
use tollgate_proto::v1;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::harness::{Answer, Coordinator, request, run};

const LIMITS: &str = "- {match: 'tenant/*', requests: {rate: 100, headroom: 0, min_refresh: 20ms}}";

/// Time after which a nudge that did not come never will.
const NEVER: Duration = Duration::from_secs(30);

/// Stream of nudges for one client.
pub(crate) struct Watching(Streaming<v1::WatchResponse>);

// === impl Watching ===

impl Watching {
    /// Opens the stream of `client` through `stub`.
    pub(crate) async fn start(stub: LeaseServiceClient<Channel>, client: &str) -> Self {
        Self::of(stub, &Watch::Client(run(client))).await.unwrap()
    }

    pub(crate) async fn of(
        mut stub: LeaseServiceClient<Channel>,
        watch: &Watch,
    ) -> Result<Self, Status> {
        let stream = stub.watch(v1::WatchRequest::from(watch)).await?;
        Ok(Self(stream.into_inner()))
    }

    /// Opens the stream of a node that calls itself `node`.
    pub(crate) async fn of_node(
        mut stub: LeaseServiceClient<Channel>,
        node: &str,
    ) -> Result<Self, Status> {
        let mut request = Request::new(v1::WatchRequest::from(&Watch::Rest));
        request.metadata_mut().insert(NODE, node.parse().unwrap());
        Ok(Self(stub.watch(request).await?.into_inner()))
    }

    /// The next message.
    async fn message(&mut self) -> Result<Option<v1::WatchResponse>, Status> {
        timeout(NEVER, self.0.message()).await.expect("no message")
    }

    /// Waits until `scope` is named to the client that watches.
    pub(crate) async fn named(&mut self, scope: &str) {
        assert_eq!(self.named_to(scope).await, None);
    }

    /// Waits until `scope` is named to a client of the node that watches, and returns its id.
    pub(crate) async fn client_named(&mut self, scope: &str) -> String {
        self.named_to(scope).await.expect("no client")
    }

    async fn named_to(&mut self, scope: &str) -> Option<String> {
        loop {
            let nudged = self.message().await.unwrap().expect("the stream ended");
            let nudged = Nudged::try_from(nudged).unwrap();
            if nudged.resources.iter().any(|id| &*id.scope == scope) {
                return nudged.client.map(|client| client.as_str().to_owned());
            }
        }
    }

    /// Waits for the end, and returns its status.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            match self.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no status"),
                Err(status) => return status,
            }
        }
    }
}

// === free functions ===

/// Refreshes until `client`, which has `has` and wants all of it, gets as much as `gets`: each time
/// that it is named.
async fn until_gets(
    coordinator: &Coordinator,
    watching: &mut Watching,
    client: &str,
    gets: f64,
) -> u64 {
    let (mut sequence, mut has) = (100, 0.0);
    loop {
        has = coordinator
            .gets(client, "tenant/acme", sequence, (has, 100.0))
            .await;
        if has >= gets {
            return sequence;
        }
        watching.named("tenant/acme").await;
        sequence += 1;
    }
}

async fn metric(coordinator: &Coordinator, name: &str) -> f64 {
    let metrics = coordinator.get("/metrics").await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    value.trim().parse().unwrap()
}

#[tokio::test]
async fn demand_that_ends_is_told_to_those_who_want_it() {
    let coordinator = Coordinator::start(LIMITS).await;
    let all = coordinator.gets("a", "tenant/acme", 1, (0.0, 100.0)).await;
    assert_eq!(all, 100.0);
    let mut b = Watching::start(coordinator.client(), "b").await;
    let none = coordinator.gets("b", "tenant/acme", 1, (0.0, 100.0)).await;
    assert_eq!(none, 0.0);
    coordinator.release("a", "tenant/acme", 2).await;
    b.named("tenant/acme").await;
    let all = coordinator.gets("b", "tenant/acme", 2, (0.0, 100.0)).await;
    assert_eq!(all, 100.0);
    assert!(metric(&coordinator, "tollgate_nudges_total").await >= 1.0);
    assert_eq!(metric(&coordinator, "tollgate_watches").await, 1.0);
    assert_eq!(
        metric(&coordinator, "tollgate_nudges_dropped_total").await,
        0.0
    );
}

#[tokio::test]
async fn a_newcomer_makes_the_others_give_back() {
    let coordinator = Coordinator::start(LIMITS).await;
    let mut a = Watching::start(coordinator.client(), "a").await;
    let mut b = Watching::start(coordinator.client(), "b").await;
    let all = coordinator.gets("a", "tenant/acme", 1, (0.0, 100.0)).await;
    assert_eq!(all, 100.0);
    // A lease lasts for the minimum interval.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let none = coordinator.gets("b", "tenant/acme", 1, (0.0, 100.0)).await;
    assert_eq!(none, 0.0);
    let gives_back = async {
        let (mut sequence, mut has) = (2, 100.0);
        while has > 50.0 {
            a.named("tenant/acme").await;
            has = coordinator
                .gets("a", "tenant/acme", sequence, (has, 100.0))
                .await;
            sequence += 1;
        }
        a.named("tenant/acme").await;
        coordinator
            .gets("a", "tenant/acme", sequence, (has, 100.0))
            .await
    };
    let (has, _) = tokio::join!(gives_back, until_gets(&coordinator, &mut b, "b", 50.0));
    assert_eq!(has, 50.0);
}

#[tokio::test]
async fn a_stream_takes_the_place_of_an_earlier_one_of_its_run() {
    let coordinator = Coordinator::start(LIMITS).await;
    let mut earlier = Watching::start(coordinator.client(), "a").await;
    let mut later = Watching::start(coordinator.client(), "a").await;
    let end = earlier.end().await;
    assert_eq!(end.code(), Code::Aborted, "{end}");
    coordinator.gets("b", "tenant/acme", 1, (0.0, 100.0)).await;
    coordinator.gets("a", "tenant/acme", 1, (0.0, 100.0)).await;
    coordinator.release("b", "tenant/acme", 2).await;
    later.named("tenant/acme").await;
}

/// Calls end after five seconds, or sooner if their clients say so.
#[tokio::test]
async fn a_stream_outlasts_the_time_limit_of_calls() {
    let coordinator = Coordinator::start(LIMITS).await;
    let mut stub = coordinator.client();
    let mut call = Request::new(v1::WatchRequest::from(&Watch::Client(run("a"))));
    call.metadata_mut()
        .insert("grpc-timeout", "100m".parse().unwrap());
    let mut watching = Watching(stub.watch(call).await.unwrap().into_inner());
    tokio::time::sleep(Duration::from_millis(300)).await;
    coordinator.gets("b", "tenant/acme", 1, (0.0, 100.0)).await;
    coordinator.gets("a", "tenant/acme", 1, (0.0, 100.0)).await;
    coordinator.release("b", "tenant/acme", 2).await;
    watching.named("tenant/acme").await;
}

#[tokio::test]
async fn a_stream_whose_client_has_left_is_forgotten() {
    let coordinator = Coordinator::start(LIMITS).await;
    let first = Watching::start(coordinator.client(), "a").await;
    let second = Watching::start(coordinator.client(), "b").await;
    // The one is reset, and the connection of the other is cut.
    let address = format!("http://{}", coordinator.grpc);
    let channel = Endpoint::try_from(address).unwrap().connect().await;
    let third = Watching::start(LeaseServiceClient::new(channel.unwrap()), "c").await;
    assert_eq!(metric(&coordinator, "tollgate_watches").await, 3.0);
    drop((first, third));
    while metric(&coordinator, "tollgate_watches").await > 1.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(second);
}

#[tokio::test]
async fn a_shutdown_ends_the_streams() {
    let coordinator = Coordinator::start(LIMITS).await;
    let mut watching = Watching::start(coordinator.client(), "a").await;
    let (stopped, end) = tokio::join!(coordinator.stop(), watching.end());
    stopped.unwrap();
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    assert!(end.message().contains("watch over another one"), "{end}");
}

/// A full listener asks idle clients to leave; one that watches hears why.
#[tokio::test]
async fn a_connection_that_makes_room_ends_its_streams() {
    let yaml = format!("connections: {{max_grpc: 2}}\nlimits:\n{LIMITS}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let connect = async || {
        let address = format!("http://{}", coordinator.grpc);
        let channel = Endpoint::try_from(address).unwrap().connect().await;
        LeaseServiceClient::new(channel.unwrap())
    };
    let mut streams = Vec::new();
    for client in ["a", "b", "c"] {
        streams.push(Watching::start(connect().await, client).await);
    }
    let end = streams[0].end().await;
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    assert!(end.message().contains("watch over another one"), "{end}");
    assert_eq!(metric(&coordinator, "tollgate_watches").await, 2.0);
}

#[tokio::test]
async fn a_bad_field_is_refused_and_so_is_a_node_of_no_cluster() {
    let coordinator = Coordinator::start(LIMITS).await;
    let rows = [("", 0, "client_id"), ("a", 0, "incarnation")];
    for (client, incarnation, field) in rows {
        let message = v1::WatchRequest {
            client_id: client.to_owned(),
            incarnation,
            term: 0,
        };
        let refused = coordinator.client().watch(message).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().starts_with(field), "{refused}");
    }
}

/// Streams are answers that last: they hold none of the memory of calls, and no other call waits.
#[tokio::test]
async fn streams_of_one_connection_leave_room_for_calls() {
    let coordinator = Coordinator::start(LIMITS).await;
    let mut streams = Vec::new();
    for i in 0..60 {
        streams.push(Watching::start(coordinator.client(), &format!("c-{i}")).await);
    }
    let scopes = [("tenant/acme", 1, 0.0, 100.0)];
    let answer = coordinator.client().refresh(request("a", &scopes)).await;
    assert!(answer.is_ok());
    let metrics = Answer::get(coordinator.http, "/metrics").await.body;
    assert!(
        metrics.contains("tollgate_call_memory_bytes 0\n"),
        "{metrics}"
    );
}
