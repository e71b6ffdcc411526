use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tollgate_core::lease::{ClientId, ClientRun, ResourceId, Unit};
use tollgate_net::tls::ClientFiles;
use tollgate_net::wire::{LeaseService, LeaseServiceServer};
use tonic::transport::Server;
use tonic::{Request, Response};

use super::*;

type Message = Result<v1::WatchResponse, Status>;

/// Coordinator that hands each stream to the test, with the id of its client.
struct Manual(mpsc::Sender<(String, mpsc::Sender<Message>)>);

#[tonic::async_trait]
impl LeaseService for Manual {
    async fn refresh(
        &self,
        _: Request<v1::RefreshRequest>,
    ) -> Result<Response<v1::RefreshResponse>, Status> {
        Err(Status::internal("is not called"))
    }

    async fn release(
        &self,
        _: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        Err(Status::internal("is not called"))
    }

    type WatchStream = ReceiverStream<Message>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (sender, messages) = mpsc::channel(8);
        let client = request.into_inner().client_id;
        self.0.send((client, sender)).await.unwrap();
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

type Streams = mpsc::Receiver<(String, mpsc::Sender<Message>)>;

/// A coordinator: its URL, and its streams as they are opened.
async fn coordinator() -> (String, Streams) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, streams) = mpsc::channel(8);
    let served = Server::builder().add_service(LeaseServiceServer::new(Manual(sender)));
    tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    (url, streams)
}

fn nudged(scope: &str) -> Nudged {
    Nudged {
        client: None,
        resources: vec![ResourceId::new(scope, Unit::Requests).unwrap()],
    }
}

/// A source of client `eu/0`, and what it hears.
fn source(
    addresses: &[&String],
    credentials: Option<Newest<Credentials>>,
) -> mpsc::Receiver<Nudged> {
    let channels = Channels::new(Duration::from_secs(5), credentials);
    let run = ClientRun::only(ClientId::new("eu/0").unwrap());
    let addresses = addresses.iter().map(|url| (*url).clone()).collect();
    let mut source = NudgeSource::new(&Watch::Client(run), channels, addresses);
    let (sender, heard) = mpsc::channel(8);
    tokio::spawn(async move { while sender.send(source.next().await).await.is_ok() {} });
    heard
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_again_at_the_next_address() {
    let mut both = [coordinator().await, coordinator().await];
    let mut received = source(&[&both[0].0, &both[1].0], None);
    for at in [0, 1, 0] {
        let (client, stream) = both[at].1.recv().await.unwrap();
        assert_eq!(client, "eu/0");
        stream.send(Ok((&nudged("a")).into())).await.unwrap();
        assert_eq!(received.recv().await.unwrap(), nudged("a"));
        let aborted = Status::aborted("another took its place");
        stream.send(Err(aborted)).await.unwrap();
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_passed_over() {
    let (url, mut streams) = coordinator().await;
    let mut received = source(&[&url], None);
    let (_, stream) = streams.recv().await.unwrap();
    let bad = v1::WatchResponse::default();
    for message in [bad, (&nudged("a")).into()] {
        stream.send(Ok(message)).await.unwrap();
    }
    assert_eq!(received.recv().await.unwrap(), nudged("a"));
}

#[tokio::test]
async fn changed_credentials_open_the_stream_anew() {
    let folder = tempfile::tempdir().unwrap();
    let names = vec!["localhost".to_owned()];
    let issuer = rcgen::generate_simple_self_signed(names).unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, issuer.cert.pem()).unwrap();
    let files = ClientFiles {
        ca,
        identity: None,
        server_name: None,
    };
    let credentials = || Arc::new(files.load().unwrap());
    let (renewed, newest) = watch::channel(credentials());
    let (url, mut streams) = coordinator().await;
    let mut received = source(&[&url], Some(newest));
    let (_, before) = streams.recv().await.unwrap();
    for _ in 0..2 {
        renewed.send_replace(credentials());
        let (_, stream) = streams.recv().await.unwrap();
        before.closed().await;
        stream.send(Ok((&nudged("a")).into())).await.unwrap();
        assert_eq!(received.recv().await.unwrap(), nudged("a"));
    }
}
