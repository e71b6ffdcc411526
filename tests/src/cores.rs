//! Which core does what: what is measured has one to itself where the machine has two.

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
        .on_thread_start(|| keep_to(|core| core > 0))
        .build()?;
    keep_to(|core| core > 0);
    Ok(runtime)
}

/// Runs `start` on the first core; the processes that it starts stay there.
pub fn beside_load<T>(start: impl FnOnce() -> T) -> T {
    keep_to(|core| core == 0);
    let started = start();
    keep_to(|core| core > 0);
    started
}

/// Keeps this thread to the cores that `wanted` names, by their place among those it may use.
/// With one core, or where the system forbids it, everything shares what there is.
fn keep_to(wanted: impl Fn(usize) -> bool) {
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
    for (place, core) in allowed.iter().enumerate() {
        if wanted(place) {
            set.set(*core);
        }
    }
    let _ = sched_setaffinity(None, &set);
}
