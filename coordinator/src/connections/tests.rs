use std::pin::pin;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;

use super::stream::SILENCE_MAX;
use super::tls::{HANDSHAKE_TIMEOUT, HANDSHAKES_MAX};
use super::*;
use crate::tls::{Door, Files, Identity, TlsMetrics};

/// Connects twice to a listener that accepts `max` and says whether the second connection is
/// accepted while the first is held, and then once it is dropped.
async fn second_of_two(max: usize) -> (bool, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut accepted = pin!(Acceptor::new(listener, max).start());
    let _clients = [
        TcpStream::connect(address).await.unwrap(),
        TcpStream::connect(address).await.unwrap(),
    ];
    let first = accepted.next().await.unwrap().unwrap();
    let mut held = None;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
        let next = std::future::poll_fn(|cx| match accepted.as_mut().poll_next(cx) {
            Poll::Ready(connection) => Poll::Ready(connection),
            Poll::Pending => Poll::Ready(None),
        });
        held = next.await;
        if held.is_some() {
            break;
        }
    }
    drop(first);
    let while_held = held.is_some();
    let second = match held {
        Some(second) => second,
        None => accepted.next().await.unwrap(),
    };
    (while_held, second.is_ok())
}

#[tokio::test]
async fn a_connection_too_many_waits_until_another_ends() {
    assert_eq!(second_of_two(1).await, (false, true));
    assert_eq!(second_of_two(2).await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn a_connection_lives_as_long_as_it_is_heard_of() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut accepted = pin!(Acceptor::new(listener, 1).start());
    let mut client = TcpStream::connect(address).await.unwrap();
    let mut connection = accepted.next().await.unwrap().unwrap();
    for _ in 0..3 {
        tokio::time::advance(SILENCE_MAX * 2 / 3).await;
        client.write_all(b"x").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
    }
    let before = Instant::now();
    let error = connection.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(before.elapsed() >= SILENCE_MAX, "{:?}", before.elapsed());
}

/// How a door speaks TLS with a certificate of its own, and what counts its errors.
fn tls() -> (Tls, Registry) {
    let folder = tempfile::tempdir().unwrap();
    let names = vec!["localhost".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names).unwrap();
    let files = Files {
        cert: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
        client_ca: None,
    };
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    let mut registry = Registry::default();
    let metrics = TlsMetrics::register(&mut registry);
    let identity = Identity::start(Door::Http, files, metrics.clone()).unwrap();
    let tls = Tls {
        door: Door::Http,
        identity,
        metrics,
    };
    (tls, registry)
}

#[tokio::test(start_paused = true)]
async fn handshakes_are_bounded_in_number_and_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tls, registry) = tls();
    let _incoming = Acceptor::new(listener, 1000).with_tls(Some(tls)).start();
    let before = Instant::now();
    let mut silent = Vec::new();
    for _ in 0..=HANDSHAKES_MAX {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut byte = [0];
    for stream in silent.iter_mut().rev() {
        // The end of the stream, or a reset: closed either way.
        assert_eq!(stream.read(&mut byte).await.unwrap_or(0), 0);
    }
    assert!(before.elapsed() >= HANDSHAKE_TIMEOUT);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for (reason, count) in [("busy", 1), ("timeout", HANDSHAKES_MAX), ("failed", 0)] {
        let line =
            format!("tls_handshake_errors_total{{door=\"http\",reason=\"{reason}\"}} {count}\n");
        assert!(text.contains(&line), "{text}");
    }
}
