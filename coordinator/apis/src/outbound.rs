//! Messages of an answer without an end, each of which is made when the connection can send it.
//!
//! A channel would keep a message for a client that does not read: memory for each stream, and news that
//! are old by the time they are read. So a stream that is asked for a message and has none orders one.
//! The connection asks only once it has sent what it took before.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_stream::Stream;
use tonic::Status;

type Message<T> = Result<T, Status>;

/// Side that makes the messages of one stream.
#[derive(Debug)]
pub(super) struct Outbound<T> {
    orders: Arc<Semaphore>,
    messages: mpsc::Sender<Message<T>>,
}

/// Order of one message, which stands until it is sent.
#[derive(Debug)]
pub(super) struct Order<'a, T> {
    order: SemaphorePermit<'a>,
    place: mpsc::Permit<'a, Message<T>>,
}

/// Stream of the messages.
#[derive(Debug)]
pub struct OutboundStream<T> {
    orders: Arc<Semaphore>,
    messages: mpsc::Receiver<Message<T>>,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Ordered,
    /// A message was handed out. tonic asks for another one before it passes that on.
    HandedOut,
}

// === impl Outbound ===

impl<T> Outbound<T> {
    /// Returns both sides of a stream.
    pub(super) fn new() -> (Self, OutboundStream<T>) {
        let orders = Arc::new(Semaphore::new(0));
        let (sender, messages) = mpsc::channel(1);
        let stream = OutboundStream {
            orders: Arc::clone(&orders),
            messages,
            step: Step::Idle,
        };
        let outbound = Self {
            orders,
            messages: sender,
        };
        (outbound, stream)
    }

    /// Resolves when the connection asks for a message; `None` if the client has left.
    pub(super) async fn ordered(&self) -> Option<Order<'_, T>> {
        let order = self.orders.acquire().await.ok()?;
        let place = self.messages.reserve().await.ok()?;
        Some(Order { order, place })
    }

    /// Resolves when the client has left.
    pub(super) async fn closed(&self) {
        self.messages.closed().await;
    }

    /// Ends the stream with `status`.
    pub(super) async fn end(self, status: Status) {
        // A client that has left needs no reason.
        let _ = self.messages.send(Err(status)).await;
    }
}

// === impl Order ===

impl<T> Order<'_, T> {
    /// Sends the message.
    pub(super) fn send(self, message: T) {
        self.order.forget();
        self.place.send(Ok(message));
    }
}

// === impl OutboundStream ===

impl<T> Stream for OutboundStream<T> {
    type Item = Message<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message<T>>> {
        if let Poll::Ready(message) = self.messages.poll_recv(cx) {
            self.step = Step::HandedOut;
            return Poll::Ready(message);
        }
        match self.step {
            Step::HandedOut => {
                // The connection asks again when it has sent the message, and then it is an order.
                self.step = Step::Idle;
                cx.waker().wake_by_ref();
            }
            Step::Idle => {
                self.step = Step::Ordered;
                self.orders.add_permits(1);
            }
            Step::Ordered => {}
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn poll(stream: &mut OutboundStream<u32>) -> Poll<Option<u32>> {
        let mut cx = Context::from_waker(Waker::noop());
        let next = Pin::new(stream).poll_next(&mut cx);
        next.map(|message| message.map(Result::unwrap))
    }

    fn is_ordered(outbound: &Outbound<u32>) -> bool {
        outbound.orders.available_permits() == 1
    }

    #[tokio::test]
    async fn a_message_is_made_when_the_one_before_has_been_sent() {
        let (outbound, mut stream) = Outbound::new();
        assert!(!is_ordered(&outbound), "nobody has asked");
        for number in 0..3 {
            for _ in 0..3 {
                assert_eq!(poll(&mut stream), Poll::Pending);
                assert!(is_ordered(&outbound));
            }
            // An order without news stands.
            drop(outbound.ordered().await);
            outbound.ordered().await.unwrap().send(number);
            assert_eq!(poll(&mut stream), Poll::Ready(Some(number)));
            assert_eq!(poll(&mut stream), Poll::Pending);
            assert!(!is_ordered(&outbound), "the first is not sent yet");
        }
        outbound.end(Status::aborted("")).await;
        let end = tokio_stream::StreamExt::next(&mut stream).await.unwrap();
        assert_eq!(end.unwrap_err().code(), tonic::Code::Aborted);
        assert_eq!(poll(&mut stream), Poll::Ready(None));
    }

    #[tokio::test]
    async fn a_client_that_has_left_orders_nothing() {
        let (outbound, mut stream) = Outbound::new();
        assert_eq!(poll(&mut stream), Poll::Pending);
        drop(stream);
        outbound.closed().await;
        assert!(outbound.ordered().await.is_none());
        outbound.end(Status::aborted("")).await;
    }
}
