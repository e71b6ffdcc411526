use std::pin::pin;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_stream::StreamExt as _;

use super::*;

/// Connects twice to a listener that accepts `max` and says whether the second connection is
/// accepted while the first is held, and then once it is dropped.
async fn second_of_two(max: usize) -> (bool, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut accepted = pin!(Acceptor::new(listener, max).into_stream());
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
    let mut accepted = pin!(Acceptor::new(listener, 1).into_stream());
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
