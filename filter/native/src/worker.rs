//! The engine of one of Envoy's worker threads.

use core::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_engine::HostFailure;
use tollgate_filter::{Binding, HostError, Level, Worker, now};

use crate::at_hand::{self, AtHand};
use crate::configuration::Configuration;
use crate::engine::{CallEvent, Engine};
use crate::envoy;
use crate::host::NativeHost;
use crate::lock::lock;
use crate::mailbox::{Mailbox, Undelivered, Verdict};
use crate::process::Process;
use crate::settings::Settings;
use crate::ticker;

thread_local! {
    /// By the number of the configuration, which a look-up then finds without touching the others.
    static BOUND: RefCell<Vec<(u64, Rc<Bound>)>> = const { RefCell::new(Vec::new()) };
    /// Engines of this thread, one for each process. They stay while configurations come and go, as the
    /// processes do.
    static ENGINES: RefCell<Vec<Arc<WorkerCell>>> = const { RefCell::new(Vec::new()) };
}

/// An engine, which belongs to one worker thread of Envoy's.
///
/// Its lock is taken by that thread for each request, and by the threads for ticks and calls now and
/// then, for some microseconds. Nothing of Envoy's that can run a hook of a stream is called under it.
#[derive(Debug)]
pub(crate) struct WorkerCell {
    worker: Mutex<Worker<NativeHost>>,
    /// Of the streams that the worker remembers, by their numbers.
    mailboxes: Mutex<HashMap<u32, Arc<Mailbox>>>,
    pub(crate) undelivered: Undelivered,
    /// Time of the next tick, in nanoseconds of the filter's clock.
    due: AtomicU64,
    process: Weak<Process>,
}

/// A configuration as one worker thread uses it.
#[derive(Debug)]
pub(crate) struct Bound {
    settings: Weak<Settings>,
    pub(crate) worker: Arc<WorkerCell>,
    pub(crate) binding: Binding,
}

// === impl WorkerCell ===

impl WorkerCell {
    /// Returns the engine that the thread at hand has for the process of `configuration`.
    fn of_thread(configuration: &Configuration) -> Arc<Self> {
        let process = &configuration.process;
        let known = ENGINES.with_borrow_mut(|engines| {
            engines.retain(|engine| !engine.is_lost());
            engines.iter().find(|engine| engine.is_of(process)).cloned()
        });
        known.unwrap_or_else(|| {
            let new = Self::new(configuration);
            process.add_engine(Arc::clone(&new) as Arc<dyn Engine>);
            ENGINES.with_borrow_mut(|engines| engines.push(Arc::clone(&new)));
            new
        })
    }

    fn new(configuration: &Configuration) -> Arc<Self> {
        let process = &configuration.process;
        Arc::new_cyclic(|cell: &Weak<Self>| {
            let host = NativeHost::new(process, Weak::clone(cell) as Weak<dyn Engine>);
            let config = &configuration.settings.config;
            let worker = Worker::new(host, process.identity(), config);
            Self {
                worker: Mutex::new(worker),
                mailboxes: Mutex::default(),
                undelivered: Undelivered::default(),
                due: AtomicU64::new(0),
                process: Arc::downgrade(process),
            }
        })
    }

    /// Returns the engine; `None` if a panic has left it half changed.
    #[inline]
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, Worker<NativeHost>>> {
        self.worker.lock().ok()
    }

    /// Runs `run` with the engine outside of all streams, and lets it have its next tick in time.
    fn run(&self, run: impl FnOnce(&mut Worker<NativeHost>)) {
        let Some(mut worker) = self.lock() else {
            return;
        };
        at_hand::with(AtHand::Nothing, || run(&mut worker));
        let period = worker.tick_period();
        drop(worker);
        self.tick_within(period);
    }

    /// Makes the next tick come within `period`. Returns whether it comes sooner than before.
    fn tick_within(&self, period: Duration) -> bool {
        let due = now().saturating_add(period).as_nanos();
        self.due.fetch_min(due, Ordering::Relaxed) > due
    }

    /// Makes the next tick come within `period`, also if the thread for ticks is asleep.
    #[cold]
    pub(crate) fn hurry(&self, period: Duration) {
        if self.tick_within(period) {
            ticker::wake();
        }
    }

    /// Adds the mailbox of a stream that the worker remembers.
    pub(crate) fn add_mailbox(&self, stream: u32, mailbox: &Arc<Mailbox>) {
        lock(&self.mailboxes).insert(stream, Arc::clone(mailbox));
    }

    /// Removes the mailbox of a stream that has ended.
    pub(crate) fn remove_mailbox(&self, stream: u32) {
        lock(&self.mailboxes).remove(&stream);
    }

    fn is_of(&self, process: &Arc<Process>) -> bool {
        core::ptr::eq(self.process.as_ptr(), Arc::as_ptr(process))
    }
}

impl Engine for WorkerCell {
    fn tick(&self, at: Instant) -> Instant {
        if self.due.load(Ordering::Relaxed) <= at.as_nanos() {
            // Requests that come meanwhile may need a tick sooner.
            self.due.store(u64::MAX, Ordering::Relaxed);
            self.run(Worker::handle_tick);
        }
        Instant::from_nanos(self.due.load(Ordering::Relaxed))
    }

    fn handle_call(&self, token: u32, event: CallEvent<'_>) {
        self.run(|engine| match event {
            CallEvent::Messages(messages) => {
                for message in messages {
                    engine.handle_nudge(token, message);
                }
            }
            CallEvent::Answer(answer) => engine.handle_answer(token, answer),
            CallEvent::Failure(status) => engine.handle_failure(token, status),
            CallEvent::StreamEnd(status) => engine.handle_watch_end(token, status),
        });
    }

    fn take_over(&self, settings: &Settings) {
        if let Some(mut worker) = self.lock()
            && let Err(error) = settings.bind(&mut worker)
        {
            worker.complain(&error);
        }
    }

    fn mailbox(&self, stream: u32) -> Option<Arc<Mailbox>> {
        lock(&self.mailboxes).get(&stream).cloned()
    }

    fn is_lost(&self) -> bool {
        self.worker.is_poisoned()
    }

    #[cold]
    fn give_up(&self, host_failure: Option<HostFailure>) {
        let waiting: Vec<_> = lock(&self.mailboxes).values().cloned().collect();
        for mailbox in waiting {
            mailbox.decide(Verdict::without_engine(
                host_failure.unwrap_or(HostFailure::Open),
            ));
        }
    }
}

// === impl Bound ===

impl Bound {
    /// Returns `configuration` as the thread at hand uses it; `None` if its engine cannot be had.
    #[inline]
    pub(crate) fn of(configuration: &Configuration) -> Option<Rc<Self>> {
        let known = BOUND.with(|bound| {
            let bound = bound.try_borrow().ok()?;
            let (_, known) = bound
                .iter()
                .find(|(id, _)| *id == configuration.settings.id)?;
            (!known.worker.is_lost()).then(|| Rc::clone(known))
        });
        known.or_else(|| Self::bind(configuration))
    }

    #[cold]
    fn bind(configuration: &Configuration) -> Option<Rc<Self>> {
        let new = match Self::new(configuration) {
            Ok(new) => Rc::new(new),
            Err(error) => {
                envoy::log(Level::Error, &format!("tollgate: {error}"));
                return None;
            }
        };
        BOUND.with(|bound| {
            let mut bound = bound.try_borrow_mut().ok()?;
            let in_use = |known: &Rc<Self>| known.settings.strong_count() > 0;
            bound.retain(|(_, known)| in_use(known) && !known.worker.is_lost());
            bound.push((configuration.settings.id, Rc::clone(&new)));
            Some(new)
        })
    }

    fn new(configuration: &Configuration) -> Result<Self, HostError> {
        let lost = HostError {
            call: "lock",
            status: 0,
        };
        let settings = &configuration.settings;
        let worker = WorkerCell::of_thread(configuration);
        let binding = {
            let mut engine = worker.lock().ok_or(lost)?;
            let binding = settings.bind(&mut engine)?;
            // A configuration that is being replaced must not have the last word.
            let latest = configuration.process.latest();
            if let Some(latest) = latest.filter(|latest| latest.id != settings.id) {
                latest.bind(&mut engine)?;
            }
            binding
        };
        Ok(Self {
            settings: Arc::downgrade(settings),
            worker,
            binding,
        })
    }
}
