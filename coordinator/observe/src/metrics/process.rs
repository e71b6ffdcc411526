//! Metrics of the process, by the names that Prometheus' client libraries give them.

use std::fs;
use std::time::Duration;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use tollgate_net::clock::{boot_time, unix_time};

/// Prefix of their names.
const PREFIX: &str = "process";

/// Resources that the process uses. A figure that the system does not tell is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessStats {
    cpu: Option<Duration>,
    resident_bytes: Option<u64>,
    open_files: Option<u64>,
    files_max: Option<u64>,
}

// === impl ProcessStats ===

impl ProcessStats {
    /// Asks the system.
    pub(super) fn read() -> Self {
        Self {
            cpu: Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok(),
            resident_bytes: fs::read_to_string("/proc/self/status")
                .ok()
                .and_then(|status| resident_bytes(&status)),
            open_files: open_files(),
            files_max: getrlimit(Resource::Nofile).current,
        }
    }

    /// Returns a registry with its figures, and with `started`, when the process started, since 1970.
    pub(super) fn registry(self, started: Option<Duration>) -> Registry {
        let mut registry = Registry::with_prefix(PREFIX);
        if let Some(cpu) = self.cpu {
            let help = "Time that all cores together have spent on the process";
            let cpu = ConstCounter::new(cpu.as_secs_f64());
            registry.register_with_unit("cpu", help, Unit::Seconds, cpu);
        }
        if let Some(bytes) = self.resident_bytes {
            let bytes = ConstGauge::new(bytes);
            let help = "Memory of the process that is not swapped out";
            registry.register_with_unit("resident_memory", help, Unit::Bytes, bytes);
        }
        if let Some(open) = self.open_files {
            registry.register("open_fds", "Open files and sockets", ConstGauge::new(open));
        }
        if let Some(max) = self.files_max {
            let help = "The most files and sockets that may be open";
            registry.register("max_fds", help, ConstGauge::new(max));
        }
        if let Some(started) = started {
            let started = ConstGauge::new(started.as_secs_f64());
            let help = "When the process started, since 1970";
            registry.register_with_unit("start_time", help, Unit::Seconds, started);
        }
        registry
    }
}

// === free functions ===

/// Start of the process, since 1970. It is read once: with a wall clock that is adjusted the answer
/// moves, and a move means a restart to those who read it.
pub(super) fn started() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let after_boot = started_after_boot(&stat, clock_ticks_per_second())?;
    let age = boot_time().checked_sub(after_boot)?;
    let millis = unix_time().checked_sub(age)?.as_millis();
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Field 22 of `stat`, the contents of `/proc/self/stat`. The second is the program's name in
/// parentheses, which may have spaces and parentheses of its own.
fn started_after_boot(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let (_, from_third) = stat.rsplit_once(')')?;
    let ticks: f64 = from_third.split_whitespace().nth(22 - 3)?.parse().ok()?;
    Duration::try_from_secs_f64(ticks / ticks_per_second as f64).ok()
}

/// `VmRSS` of `status`, the contents of `/proc/self/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Number of open files, without the directory that is read to count them.
fn open_files() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    u64::try_from(entries).ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_the_texts_of_the_system() {
        let status = "Name:\ttollgate\nVmHWM:\t   20000 kB\nVmRSS:\t   12345 kB\nThreads:\t9\n";
        assert_eq!(resident_bytes(status), Some(12_345 * 1024));
        assert_eq!(resident_bytes("Name:\ttollgate\n"), None);
        let stat = "42 (a) (b 7) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1250 20 21";
        let after = Duration::from_millis(12_500);
        assert_eq!(started_after_boot(stat, 100), Some(after));
        assert_eq!(started_after_boot("42 (a) S 1 2", 100), None);
    }

    #[test]
    fn the_figures_of_this_process_are_plausible() {
        let before = ProcessStats::read();
        let file = fs::File::open("/proc/self/stat").unwrap();
        let mut turns = 0_u64;
        while ProcessStats::read().cpu <= before.cpu {
            turns += 1;
            assert!(turns < 1_000_000, "the process uses no time");
        }
        let after = ProcessStats::read();
        drop(file);
        assert!(after.resident_bytes > Some(1 << 20), "{after:?}");
        assert!(after.open_files > Some(3), "{after:?}");
        assert!(after.files_max >= after.open_files, "{after:?}");
        let age = unix_time() - started().unwrap();
        assert!(age < Duration::from_secs(24 * 3600), "{age:?}");
    }
}
