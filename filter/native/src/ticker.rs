//! The thread that ticks all engines of this module.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_filter::now;

use crate::lock::lock;
use crate::process::Process;

/// The longest sleep, after which new engines are seen.
const SLEEP_MAX: Duration = Duration::from_millis(20);

static TICKER: Ticker = Ticker::new(tick_all);

struct Ticker {
    /// Ticks the engines that are due; returns when the next one is.
    tick: fn() -> Instant,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    /// Configurations that Envoy uses.
    users: usize,
    thread: Option<JoinHandle<()>>,
    /// Number of the latest thread. One that is being waited for has an earlier number, also if
    /// configurations have come meanwhile.
    latest: u64,
    is_woken: bool,
}

// === impl Ticker ===

impl Ticker {
    const fn new(tick: fn() -> Instant) -> Self {
        Self {
            tick,
            state: Mutex::new(State {
                users: 0,
                thread: None,
                latest: 0,
                is_woken: false,
            }),
            wake: Condvar::new(),
        }
    }

    fn start(&'static self) -> Result<(), std::io::Error> {
        let mut state = self.lock();
        if state.thread.is_none() {
            let number = state.latest.wrapping_add(1);
            let thread = thread::Builder::new().name("tollgate".to_owned());
            state.thread = Some(thread.spawn(move || self.run(number))?);
            state.latest = number;
        }
        state.users = state.users.saturating_add(1);
        Ok(())
    }

    fn stop(&self) {
        let last = {
            let mut state = self.lock();
            state.users = state.users.saturating_sub(1);
            (state.users == 0).then(|| state.thread.take()).flatten()
        };
        if let Some(thread) = last {
            self.wake.notify_all();
            // A thread that panicked has logged so, and has ended.
            let _ = thread.join();
        }
    }

    fn wake(&self) {
        self.lock().is_woken = true;
        self.wake.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Ticks until the thread `number` is not needed any more.
    fn run(&self, number: u64) {
        loop {
            let due = (self.tick)();
            let state = self.lock();
            let sleep = due.saturating_since(now()).min(SLEEP_MAX);
            let asleep = |state: &mut State| state.needs(number) && !state.is_woken;
            let woken = self.wake.wait_timeout_while(state, sleep, asleep);
            let (mut state, _) = woken.unwrap_or_else(PoisonError::into_inner);
            if !state.needs(number) {
                return;
            }
            state.is_woken = false;
        }
    }
}

// === impl State ===

impl State {
    fn needs(&self, thread: u64) -> bool {
        self.users > 0 && self.latest == thread
    }
}

// === free functions ===

/// Starts the thread for one more configuration.
pub(crate) fn start() -> Result<(), std::io::Error> {
    TICKER.start()
}

/// Leaves a configuration; with the last one the thread ends, before this returns: Envoy's threads may
/// end then, and nothing may wake their streams.
pub(crate) fn stop() {
    TICKER.stop();
}

/// Ends the sleep of the thread.
pub(crate) fn wake() {
    TICKER.wake();
}

fn tick_all() -> Instant {
    let start = now();
    let mut next = start.saturating_add(SLEEP_MAX);
    for process in Process::all() {
        for engine in process.engines() {
            // A panic poisons the engine's lock, by which it is left out from then on.
            let tick = std::panic::AssertUnwindSafe(|| engine.tick(start));
            if let Ok(due) = std::panic::catch_unwind(tick) {
                next = next.min(due);
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::fake_envoy::eventually;

    static UNDER_TEST: Ticker = Ticker::new(slow_tick);
    static TICKS: AtomicUsize = AtomicUsize::new(0);
    /// Held while the first tick goes on.
    static GATE: Mutex<()> = Mutex::new(());

    fn slow_tick() -> Instant {
        TICKS.fetch_add(1, Ordering::SeqCst);
        drop(GATE.lock().unwrap());
        now()
    }

    #[test]
    fn a_configuration_that_comes_while_the_last_one_leaves_does_not_keep_its_thread() {
        let gate = GATE.lock().unwrap();
        UNDER_TEST.start().unwrap();
        let ticks = |count| (TICKS.load(Ordering::SeqCst) >= count).then_some(());
        eventually("the first tick", || ticks(1));
        let leaves = thread::spawn(|| UNDER_TEST.stop());
        let is_idle = || (UNDER_TEST.lock().users == 0).then_some(());
        eventually("the last configuration to leave", is_idle);
        // The thread is in the middle of a tick, and looks up only when a configuration has come.
        UNDER_TEST.start().unwrap();
        eventually("a thread for the new configuration", || ticks(2));
        drop(gate);
        eventually("the end of the thread before", || {
            leaves.is_finished().then_some(())
        });
        let so_far = TICKS.load(Ordering::SeqCst);
        eventually("ticks to go on", || ticks(so_far + 1));
        UNDER_TEST.stop();
        assert!(UNDER_TEST.lock().thread.is_none());
    }
}
