//! Memory and CPU time of this process, as Linux accounts them.

use std::fs;

/// Size of a page in `/proc/self/statm`.
const PAGE: u64 = 4096;
/// Ticks of `/proc/self/stat` in a second.
const TICKS: f64 = 100.0;

/// Returns the resident memory in bytes; zero where there is no such account.
pub(crate) fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * PAGE
}

/// Returns the user and system time so far, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program may have spaces; the fields behind it do not.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let times = fields.split(' ').skip(11).take(2);
    let ticks: f64 = times.filter_map(|time| time.parse::<f64>().ok()).sum();
    ticks / TICKS
}

/// Returns the memory that `make` leaves in use, and what it made.
pub(crate) fn grown<T>(make: impl FnOnce() -> T) -> (f64, T) {
    let before = resident();
    let result = make();
    (resident().saturating_sub(before) as f64, result)
}
