//! Watchdog that ends a process which hangs after it was told to end.
//!
//! The coordinator ends in order within a few seconds. What it cannot undo is a thread that the
//! kernel holds: in a system call to a file system that does not answer, or in a write to a log that
//! is not read. The watchdog has a thread and a runtime of its own, so that it needs none of those.

use std::io;
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::print;

/// Time that the process has to end in order: to hand its shards over, to end calls (five seconds
/// each), and to deliver the last traces (three).
const EXIT_GRACE: Duration = Duration::from_secs(15);

/// Time that the last line may take, which a standard error that is not read would hold up.
const NOTE_TIMEOUT: Duration = Duration::from_secs(1);

/// The exit code of a process that did not end in order: as for anything that went wrong.
const EXIT_CODE: i32 = 1;

/// Watches for SIGTERM and SIGINT from now on.
///
/// # Errors
/// If there is no thread or no signal handler for it.
pub(super) fn start() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let [mut terminate, mut interrupt] =
        signals([SignalKind::terminate(), SignalKind::interrupt()])?;
    drop(guard);
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let watch = move || runtime.block_on(watch(stop, EXIT_GRACE, exit));
    let named = thread::Builder::new().name("watchdog".to_owned());
    named.spawn(watch).map(drop)
}

/// Listens to signals of these kinds, from now on.
///
/// # Errors
/// If there is no signal handler for one of them.
pub(super) fn signals<const N: usize>(kinds: [SignalKind; N]) -> io::Result<[Signal; N]> {
    let signals = kinds.into_iter().map(signal);
    let signals: Vec<Signal> = signals.collect::<io::Result<_>>()?;
    signals.try_into().map_err(|_| io::ErrorKind::Other.into())
}

/// Calls `exit` when `grace` has passed since `stop` resolved.
async fn watch(stop: impl Future<Output = ()>, grace: Duration, exit: impl FnOnce()) {
    stop.await;
    tokio::time::sleep(grace).await;
    exit();
}

fn exit() {
    let (written, is_written) = mpsc::channel::<()>();
    // Without a thread for it the line is left out.
    let _ = thread::Builder::new().spawn(move || {
        print::note(&format!(
            "something hangs: the process did not end within {EXIT_GRACE:?} after it was told to, \
             and ends now"
        ));
        drop(written);
    });
    let _ = is_written.recv_timeout(NOTE_TIMEOUT);
    process::exit(EXIT_CODE);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_process_is_ended_one_grace_after_it_was_told_to() {
        let start = Instant::now();
        let exited = Cell::new(None);
        let stop = tokio::time::sleep(Duration::from_secs(100));
        let grace = Duration::from_secs(15);
        watch(stop, grace, || exited.set(Some(start.elapsed()))).await;
        assert_eq!(exited.get(), Some(Duration::from_secs(115)));
    }
}
