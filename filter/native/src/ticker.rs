//! The thread that ticks all engines of this module.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_filter::now;

use crate::process::Process;

/// The longest sleep, after which new engines are seen.
const SLEEP_MAX: Duration = Duration::from_millis(20);

static TICKER: Ticker = Ticker {
    state: Mutex::new(State {
        users: 0,
        thread: None,
        is_woken: false,
    }),
    wake: Condvar::new(),
};

struct Ticker {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    /// Configurations that Envoy uses.
    users: usize,
    thread: Option<JoinHandle<()>>,
    is_woken: bool,
}

// === impl Ticker ===

impl Ticker {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let due = tick_all();
            let state = self.lock();
            let sleep = due.saturating_since(now()).min(SLEEP_MAX);
            let asleep = |state: &mut State| state.users > 0 && !state.is_woken;
            let woken = self.wake.wait_timeout_while(state, sleep, asleep);
            let (mut state, _) = woken.unwrap_or_else(PoisonError::into_inner);
            state.is_woken = false;
            if state.users == 0 {
                return;
            }
        }
    }
}

// === free functions ===

/// Starts the thread for one more configuration.
pub(crate) fn start() -> Result<(), std::io::Error> {
    let mut state = TICKER.lock();
    if state.thread.is_none() {
        let thread = thread::Builder::new().name("tollgate".to_owned());
        state.thread = Some(thread.spawn(|| TICKER.run())?);
    }
    state.users = state.users.saturating_add(1);
    Ok(())
}

/// Leaves a configuration; with the last one the thread ends, before this returns: Envoy's threads may
/// end then, and nothing may wake their streams.
pub(crate) fn stop() {
    let last = {
        let mut state = TICKER.lock();
        state.users = state.users.saturating_sub(1);
        (state.users == 0).then(|| state.thread.take()).flatten()
    };
    if let Some(thread) = last {
        TICKER.wake.notify_one();
        // A thread that panicked has logged so, and has ended.
        let _ = thread.join();
    }
}

/// Returns whether Envoy uses no configuration of this module.
pub(crate) fn is_idle() -> bool {
    TICKER.lock().users == 0
}

/// Ends the sleep of the thread.
pub(crate) fn wake() {
    TICKER.lock().is_woken = true;
    TICKER.wake.notify_one();
}

/// Ticks the engines that are due; returns when the next one is.
fn tick_all() -> Instant {
    let start = now();
    let mut next = start.saturating_add(SLEEP_MAX);
    for process in Process::all() {
        for worker in process.workers() {
            // A panic poisons the engine's lock, by which it is left out from then on.
            let tick = std::panic::AssertUnwindSafe(|| worker.tick(start));
            if let Ok(due) = std::panic::catch_unwind(tick) {
                next = next.min(due);
            }
        }
    }
    next
}
