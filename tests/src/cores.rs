//! Assignment of cores: the measured process has one to itself on a machine with two or more.

use anyhow::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::{Builder, Runtime};

/// A runtime for load and upstreams, on all cores but the first.
///
/// # Errors
/// When threads cannot be started.
pub fn load_runtime() -> Result<Runtime> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .on_thread_start(|| pin_to(|core| core > 0))
        .build()?;
    pin_to(|core| core > 0);
    Ok(runtime)
}

/// Runs `start` on the first core; the processes that it starts stay there.
pub fn beside_load<T>(start: impl FnOnce() -> T) -> T {
    on_first(1, start)
}

/// Runs `start` on the first `count` cores; the processes that it starts stay there. With as many as there
/// are, they share the others with the load.
pub fn on_first<T>(count: usize, start: impl FnOnce() -> T) -> T {
    pin_to(|core| core < count);
    let started = start();
    pin_to(|core| core > 0);
    started
}

/// Pins this thread to the cores for which `wanted` is true, by their index among the allowed ones.
/// With one core, or where the system forbids it, all threads share the allowed cores.
fn pin_to(wanted: impl Fn(usize) -> bool) {
    static ALLOWED: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let allowed = ALLOWED.get_or_init(|| match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|core| set.is_set(*core))
            .collect(),
        Err(_) => Vec::new(),
    });
    if allowed.len() < 2 {
        return;
    }
    let mut set = CpuSet::new();
    for (index, core) in allowed.iter().enumerate() {
        if wanted(index) {
            set.set(*core);
        }
    }
    let _ = sched_setaffinity(None, &set);
}
