//! Task that runs an engine's ticks and carries its calls.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tollgate_core::lease::{ClientRun, ResourceId};
use tollgate_core::message::Refreshed;
use tollgate_engine::Call;
use tonic::Code;

use crate::host::Order;
use crate::transport::Transport;
use crate::worker::Shared;

/// Messages of nudges that wait for the driver.
const NUDGES_MAX: usize = 16;

/// Carries the calls of one client.
pub(crate) struct Driver<T> {
    shared: Weak<Shared>,
    transport: Arc<T>,
    calls: JoinSet<(u32, Result<Refreshed, String>)>,
    releases: JoinSet<()>,
    watch: Option<Watch>,
}

/// Stream of nudges that is open.
struct Watch {
    token: u32,
    nudges: mpsc::Receiver<Vec<ResourceId>>,
    /// Its one task, which ends with this.
    stream: JoinSet<u32>,
}

/// Something that the driver waits for.
enum Event {
    Tick,
    Hurry,
    Answer(u32, Result<Refreshed, String>),
    Nudge(u32, Vec<ResourceId>),
    WatchEnd(u32, u32),
}

// === impl Driver ===

impl<T: Transport> Driver<T> {
    pub(crate) fn new(shared: &Arc<Shared>, transport: T) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            transport: Arc::new(transport),
            calls: JoinSet::new(),
            releases: JoinSet::new(),
            watch: None,
        }
    }

    /// Runs until the client and all its permits have gone.
    pub(crate) async fn run(mut self) {
        let mut ticked = Instant::now();
        while let Some(shared) = self.shared.upgrade() {
            let tick_at = ticked + shared.lock().tick_period();
            let event = self.event(&shared, tick_at).await;
            match event {
                Event::Tick => ticked = Instant::now(),
                Event::WatchEnd(..) => self.watch = None,
                Event::Hurry | Event::Answer(..) | Event::Nudge(..) => {}
            }
            for order in event.hand_over(&shared) {
                self.carry(order);
            }
        }
    }

    async fn event(&mut self, shared: &Shared, tick_at: Instant) -> Event {
        while self.releases.try_join_next().is_some() {}
        let has_calls = !self.calls.is_empty();
        tokio::select! {
            biased;
            Some(Ok((token, answer))) = self.calls.join_next(), if has_calls => {
                Event::Answer(token, answer)
            }
            event = watched(self.watch.as_mut()) => event,
            () = sleep_until(tick_at) => Event::Tick,
            () = shared.hurry.notified() => Event::Hurry,
        }
    }

    fn carry(&mut self, order: Order) {
        match order {
            Order::Call {
                token,
                call,
                timeout: time,
            } => self.call(token, call, time),
            Order::Watch { token, client } => self.open_watch(token, client),
            Order::Unwatch { token } => {
                if self.watch.as_ref().is_some_and(|open| open.token == token) {
                    self.watch = None;
                }
            }
        }
    }

    fn call(&mut self, token: u32, call: Call, time: Duration) {
        let transport = Arc::clone(&self.transport);
        match call {
            Call::Refresh(refresh) => {
                self.calls.spawn(async move {
                    let answer = timeout(time, transport.refresh(refresh)).await;
                    let late = |_| Err(format!("no answer within {time:?}"));
                    (token, answer.unwrap_or_else(late))
                });
            }
            Call::Release(release) => {
                self.releases.spawn(async move {
                    // A lease whose release gets lost expires.
                    let _ = timeout(time, transport.release(release)).await;
                });
            }
        }
    }

    fn open_watch(&mut self, token: u32, client: ClientRun) {
        let transport = Arc::clone(&self.transport);
        let (sender, nudges) = mpsc::channel(NUDGES_MAX);
        let mut stream = JoinSet::new();
        stream.spawn(async move { transport.watch(client, sender).await });
        self.watch = Some(Watch {
            token,
            nudges,
            stream,
        });
    }
}

// === impl Event ===

impl Event {
    /// Hands the event over to the worker, and returns what there is to do then.
    fn hand_over(self, shared: &Shared) -> Vec<Order> {
        let mut worker = shared.lock();
        match self {
            Self::Tick => worker.tick(),
            Self::Hurry => {}
            Self::Answer(token, answer) => worker.handle_answer(token, answer),
            Self::Nudge(token, resources) => worker.handle_nudge(token, resources),
            Self::WatchEnd(token, status) => worker.handle_watch_end(token, status),
        }
        worker.take_orders()
    }
}

// === free functions ===

/// Waits for the next message of the stream of nudges, or its end.
async fn watched(watch: Option<&mut Watch>) -> Event {
    let Some(watch) = watch else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        Some(resources) = watch.nudges.recv() => Event::Nudge(watch.token, resources),
        ended = watch.stream.join_next() => {
            let status = ended.and_then(Result::ok);
            Event::WatchEnd(watch.token, status.unwrap_or(Code::Unknown as u32))
        }
    }
}
