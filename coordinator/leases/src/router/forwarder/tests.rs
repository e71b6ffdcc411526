use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_net::wire::{ForwardService, ForwardServiceServer};
use tonic::Response;
use tonic::transport::Server;

use super::*;

/// Node that answers calls when it is told to, and refuses refreshes of a shard by its number.
#[derive(Clone, Default)]
struct Node(Arc<NodeState>);

#[derive(Default)]
struct NodeState {
    goes_on: Notify,
    calls: Mutex<Vec<usize>>,
    open: AtomicUsize,
}

#[tonic::async_trait]
impl ForwardService for Node {
    async fn forward(
        &self,
        request: Request<v1::ForwardRequest>,
    ) -> Result<Response<v1::ForwardResponse>, Status> {
        let refreshes = request.into_inner().refreshes;
        self.0.calls.lock().unwrap().push(refreshes.len());
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.goes_on.notified().await;
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        let answers = refreshes.into_iter().map(|forwarded| v1::ForwardedAnswer {
            response: (forwarded.shard == 0).then(|| v1::RefreshResponse {
                epoch: forwarded.epoch,
                ..v1::RefreshResponse::default()
            }),
            code: forwarded.shard,
            error: String::new(),
        });
        let answers = answers.collect();
        Ok(Response::new(v1::ForwardResponse { answers }))
    }
}

impl Node {
    fn calls(&self) -> Vec<usize> {
        self.0.calls.lock().unwrap().clone()
    }

    /// Lets calls go on, one after the other, until `work` is done.
    async fn answer_during<T>(&self, work: impl Future<Output = T>) -> T {
        let answer = async {
            loop {
                if self.0.open.load(Ordering::Relaxed) > 0 {
                    self.0.goes_on.notify_one();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            done = work => done,
            () = answer => unreachable!("it goes on for ever"),
        }
    }
}

/// Serves `router` and returns its URL.
async fn serve(router: tonic::service::Routes) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder().add_routes(router);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    url
}

async fn node() -> (Node, String) {
    let node = Node::default();
    let service = ForwardServiceServer::new(node.clone());
    let url = serve(tonic::service::Routes::new(service)).await;
    (node, url)
}

fn forwarder() -> Forwarder {
    Forwarder::new(Channels::new(Duration::from_secs(1), None))
}

fn refresh(shard: u32, epoch: u64, scopes: usize) -> v1::ForwardedRefresh {
    v1::ForwardedRefresh {
        shard,
        epoch,
        refresh: Some(v1::RefreshRequest {
            scopes: vec![v1::ScopeRequest::default(); scopes],
            ..v1::RefreshRequest::default()
        }),
    }
}

/// Passes refreshes on at the same time, in order, and returns the epochs of their answers.
async fn forward_all(
    forwarder: &Forwarder,
    url: &str,
    refreshes: Vec<v1::ForwardedRefresh>,
) -> Vec<Result<u64, Code>> {
    let mut requested = JoinSet::new();
    for (place, refresh) in refreshes.into_iter().enumerate() {
        let (forwarder, url) = (forwarder.clone(), url.to_owned());
        requested.spawn(async move {
            let time = Duration::from_secs(10);
            let answer = forwarder.forward(&url, refresh, time).await;
            let epoch = answer.map(|answer| answer.epoch);
            (place, epoch.map_err(|status| status.code()))
        });
    }
    let mut answers = requested.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[tokio::test]
async fn what_comes_while_a_call_is_under_way_goes_together() {
    let (node, url) = node().await;
    let forwarder = forwarder();
    let all: Vec<_> = (0..70).map(|epoch| refresh(0, epoch, 1)).collect();
    let work = forward_all(&forwarder, &url, all);
    let answers = node.answer_during(work).await;
    let epochs: Vec<_> = (0..70).map(Ok).collect();
    assert_eq!(answers, epochs);
    let calls = node.calls();
    assert_eq!(calls.iter().sum::<usize>(), 70);
    assert!(calls.len() <= 3 && calls.iter().all(|call| *call <= REFRESHES_MAX));
    let work = forward_all(&forwarder, &url, vec![refresh(0, 7, 1)]);
    let one = node.answer_during(work).await;
    assert_eq!(one, [Ok(7)]);
}

#[tokio::test]
async fn a_call_has_at_most_as_many_scopes_as_a_refresh() {
    let (node, url) = node().await;
    let forwarder = forwarder();
    let all = vec![refresh(0, 1, SHARED_SCOPES_MAX); 40];
    let work = forward_all(&forwarder, &url, all);
    let answers = node.answer_during(work).await;
    assert_eq!(answers, [Ok(1); 40]);
    let (calls, most) = (node.calls(), SCOPES_MAX / SHARED_SCOPES_MAX);
    assert_eq!(calls.iter().sum::<usize>(), 40);
    assert!(calls.iter().all(|call| *call <= most), "{calls:?}");
    assert!(calls.contains(&most), "{calls:?}");
}

#[tokio::test]
async fn a_large_refresh_goes_alone() {
    let (node, url) = node().await;
    let forwarder = forwarder();
    let large = SHARED_SCOPES_MAX + 1;
    let all = [1, large, 1, 1000, large, 1].map(|scopes| refresh(0, 1, scopes));
    let work = forward_all(&forwarder, &url, all.into());
    let answers = node.answer_during(work).await;
    assert_eq!(answers, [Ok(1); 6]);
    assert_eq!(node.calls(), [1; 6]);
}

#[tokio::test]
async fn a_refresh_whose_client_has_gone_is_not_passed_on() {
    let (node, url) = node().await;
    let forwarder = forwarder();
    for _ in 0..3 {
        let time = Duration::from_secs(10);
        let mut gone = std::pin::pin!(forwarder.forward(&url, refresh(0, 1, 1), time));
        let once = std::future::poll_fn(|cx| std::task::Poll::Ready(gone.as_mut().poll(cx)));
        assert!(once.await.is_pending(), "it is queued");
    }
    let work = forward_all(&forwarder, &url, vec![refresh(0, 7, 1)]);
    assert_eq!(node.answer_during(work).await, [Ok(7)]);
    assert_eq!(node.calls(), [1]);
}

#[tokio::test]
async fn a_slow_call_does_not_keep_the_next_one_waiting() {
    let (node, url) = node().await;
    let forwarder = forwarder();
    let slow = forward_all(&forwarder, &url, vec![refresh(0, 1, 1)]);
    let next = async {
        tokio::time::sleep(SLOW_AFTER * 2).await;
        forward_all(&forwarder, &url, vec![refresh(0, 2, 1)]).await
    };
    let both_open = async {
        while node.0.open.load(Ordering::Relaxed) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        node.0.goes_on.notify_waiters();
    };
    let (slow, next, ()) = tokio::join!(slow, next, both_open);
    assert_eq!((slow, next), (vec![Ok(1)], vec![Ok(2)]));
}

#[tokio::test]
async fn an_error_is_that_of_its_refresh_alone() {
    let (node, url) = node().await;
    let codes = [0, 14, 13, 0].map(|code| refresh(code, 3, 1));
    let forwarder = forwarder();
    let work = forward_all(&forwarder, &url, codes.into());
    let answers = node.answer_during(work).await;
    let want = [Ok(3), Err(Code::Unavailable), Err(Code::Internal), Ok(3)];
    assert_eq!(answers, want);
}

#[tokio::test]
async fn a_node_that_is_not_there_is_an_error_and_what_waits_is_bounded() {
    let forwarder = forwarder();
    let time = Duration::from_secs(1);
    let lost = forwarder
        .forward("http://127.0.0.1:1", refresh(0, 1, 1), time)
        .await;
    assert_eq!(lost.unwrap_err().code(), Code::Unavailable);
    let (_node, url) = node().await;
    let mut requested = JoinSet::new();
    for _ in 0..WAITING_MAX + CALLS_MAX * REFRESHES_MAX + 100 {
        let (forwarder, url) = (forwarder.clone(), url.clone());
        requested.spawn(async move { forwarder.forward(&url, refresh(0, 1, 1), time).await });
    }
    let first = requested.join_next().await.unwrap().unwrap();
    let refused = first.unwrap_err();
    assert_eq!(refused.message(), "too many refreshes wait for the node");
    for node in 0..NODES_MAX + 10 {
        forwarder.queue(&format!("http://127.0.0.1:{node}"));
    }
    assert!(forwarder.queues.lock().unwrap().len() <= NODES_MAX);
}
