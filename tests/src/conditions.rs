//! Fair conditions of a test: enough cores for the harness and its child processes.
//!
//! Rates, shares and times on the real clock depend on the machine as well: without a core, a load
//! generator offers nothing and an Envoy admits nothing. A watching thread measures its own delays and
//! the time that threads of the harness and of its child processes wait for a core (from the
//! scheduler's account). Load generators note their delays.
//!
//! An assertion that does not hold under such conditions is neither a success nor a failure:
//! [`conclude`] then panics with [`INCONCLUSIVE`] and the figure, and `tests/conclusive.sh` repeats that test,
//! and no other. An assertion that does not hold under fair conditions fails.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::fs;
use std::ops::Range;
use std::process;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

/// Beginning of the message of a test without fair conditions.
pub const INCONCLUSIVE: &str = "INCONCLUSIVE:";

/// Sleep of the watching thread between two looks.
const NAP: Duration = Duration::from_millis(20);
/// Interval at which the scheduler's account is read.
const SAMPLE: Duration = Duration::from_millis(100);
/// Shortest wait for a core, or delay, that counts as a stall; shorter ones disturb no measurement.
const STALL_MIN: Duration = Duration::from_millis(50);
/// Most time lost in stalls with which a measurement counts: somewhat less than the tolerance of the
/// strictest test, 2 % of 10 s.
const LOST_MAX: Duration = Duration::from_millis(150);
/// The same as a part of the measured time, for long ones.
const LOST_PART_MAX: f64 = 0.01;

/// Most stalls that are kept: as many as a quarter of an hour of standstill has.
const STALLS_MAX: usize = 10_000;

static STALL_LOG: Mutex<StallLog> = Mutex::new(StallLog::new());

/// Stalls and processes that the watching thread knows.
#[derive(Debug)]
struct StallLog {
    /// Beginning of the current measurement.
    begun: Option<Instant>,
    stalls: VecDeque<Stall>,
    /// Child processes, by id.
    children: BTreeMap<u32, String>,
}

/// A time in which a process or a generator stood still.
#[derive(Clone, Debug)]
struct Stall {
    ended: Instant,
    lost: Duration,
    source: String,
}

/// Time lost in stalls during a measurement.
#[derive(Clone, Debug)]
pub struct LostTime {
    stretch: Duration,
    /// The most time that one process or generator lost in all, and its name.
    most: Option<(Duration, String)>,
}

// === impl StallLog ===

impl StallLog {
    const fn new() -> Self {
        Self {
            begun: None,
            stalls: VecDeque::new(),
            children: BTreeMap::new(),
        }
    }

    fn lock() -> MutexGuard<'static, Self> {
        STALL_LOG.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, span: Range<Instant>) -> LostTime {
        let mut by: BTreeMap<&str, Duration> = BTreeMap::new();
        for stall in &self.stalls {
            // Only the part within the span counts.
            let from = stall.ended.checked_sub(stall.lost).unwrap_or(stall.ended);
            let (from, to) = (from.max(span.start), stall.ended.min(span.end));
            *by.entry(&stall.source).or_default() += to.saturating_duration_since(from);
        }
        let most = by.into_iter().max_by_key(|(_, lost)| *lost);
        LostTime {
            stretch: span.end.saturating_duration_since(span.start),
            most: most.map(|(of, lost)| (lost, of.to_owned())),
        }
    }
}

// === impl LostTime ===

impl LostTime {
    /// Whether little enough was lost for the measurement to count.
    pub fn is_fair(&self) -> bool {
        self.is_at_most(LOST_PART_MAX)
    }

    /// Whether nothing stood still at all.
    pub fn is_nothing(&self) -> bool {
        self.most.as_ref().is_none_or(|(lost, _)| lost.is_zero())
    }

    /// Whether at most `part` of the measured time was lost, or next to nothing.
    pub fn is_at_most(&self, part: f64) -> bool {
        let most = self.stretch.mul_f64(part).max(LOST_MAX);
        self.most.as_ref().is_none_or(|(lost, _)| *lost <= most)
    }
}

impl fmt::Display for LostTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stretch = self.stretch.as_secs_f64();
        match &self.most {
            None => write!(f, "nothing stood still in {stretch:.1} s"),
            Some((lost, of)) => write!(
                f,
                "{of} stood still for {:.2} s of {stretch:.1} s",
                lost.as_secs_f64()
            ),
        }
    }
}

// === free functions ===

/// Begins a measurement; earlier stalls do not count.
pub fn begin() {
    static START: Once = Once::new();
    START.call_once(|| {
        thread::spawn(watch);
    });
    let mut log = StallLog::lock();
    log.begun = Some(Instant::now());
    log.stalls.clear();
}

/// Time lost since the measurement began.
pub fn lost() -> LostTime {
    let now = Instant::now();
    let log = StallLog::lock();
    log.lost(log.begun.unwrap_or(now)..now)
}

/// Time lost in `span`.
pub fn lost_in(span: Range<Instant>) -> LostTime {
    StallLog::lock().lost(span)
}

/// Asserts a condition that holds under fair conditions.
///
/// # Panics
/// With `failure` if it does not hold; marked as inconclusive if the conditions were not fair.
#[track_caller]
pub fn conclude(holds: bool, failure: impl FnOnce() -> String) {
    if holds {
        return;
    }
    let lost = lost();
    let failure = failure();
    assert!(lost.is_fair(), "{INCONCLUSIVE} {lost}; {failure}");
    panic!("{failure}");
}

/// Asserts a condition that holds under fair conditions, as [`conditions::conclude`](crate::conditions::conclude)
/// does, with a message as `assert!` takes it.
#[macro_export]
macro_rules! conclude {
    ($holds:expr, $($failure:tt)+) => {
        $crate::conditions::conclude($holds, || format!($($failure)+))
    };
}

/// Notes a stall of `source`, which was late by `late` until now.
pub fn note_late(source: &str, late: Duration) {
    if late < STALL_MIN {
        return;
    }
    let stall = Stall {
        ended: Instant::now(),
        lost: late,
        source: source.to_owned(),
    };
    let mut log = StallLog::lock();
    log.stalls.push_back(stall);
    if log.stalls.len() > STALLS_MAX {
        log.stalls.pop_front();
    }
}

/// Begins to watch the child process `pid`.
pub(crate) fn watch_child(pid: u32, name: &str) {
    StallLog::lock().children.insert(pid, name.to_owned());
}

/// Stops watching the child process `pid`.
pub(crate) fn forget_child(pid: u32) {
    StallLog::lock().children.remove(&pid);
}

fn watch() {
    let mut known = HashMap::new();
    let mut sampled = Instant::now();
    loop {
        let before = Instant::now();
        thread::sleep(NAP);
        note_late("the harness", before.elapsed().saturating_sub(NAP));
        let passed = sampled.elapsed();
        if passed >= SAMPLE {
            sampled = Instant::now();
            sample(&mut known, passed);
        }
    }
}

/// Notes a stall of each process with a thread that waited for a core during at least half of the time
/// `passed` since the last sample.
fn sample(known: &mut HashMap<(u32, u32), Duration>, passed: Duration) {
    let mut processes = StallLog::lock().children.clone();
    processes.insert(process::id(), "the harness".to_owned());
    let mut now = HashMap::new();
    for (pid, name) in &processes {
        let mut longest = Duration::ZERO;
        for (thread, waited) in waits(*pid) {
            let before = known.get(&(*pid, thread)).copied().unwrap_or(waited);
            let since = waited.saturating_sub(before);
            if since > longest && since >= passed / 2 && serves(*pid, thread) {
                longest = since;
            }
            now.insert((*pid, thread), waited);
        }
        note_late(name, longest);
    }
    *known = now;
}

/// Time that each thread of a process has waited for a core in all; empty if the kernel keeps no such
/// account.
fn waits(pid: u32) -> Vec<(u32, Duration)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let wait = |thread: fs::DirEntry| {
        let id = thread.file_name().to_str()?.parse().ok()?;
        let account = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let waited = account.split_whitespace().nth(1)?.parse().ok()?;
        Some((id, Duration::from_nanos(waited)))
    };
    threads.filter_map(wait).collect()
}

/// Whether a thread serves requests; V8's threads, which optimise Wasm in the background, do not.
fn serves(pid: u32, thread: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm"));
    !name.is_ok_and(|name| name.starts_with("V8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn log(stalls: &[(u64, u64, &str)], start: Instant) -> StallLog {
        let stall = |(ended, lost, of): &(u64, u64, &str)| Stall {
            ended: start + ms(*ended),
            lost: ms(*lost),
            source: (*of).to_owned(),
        };
        StallLog {
            stalls: stalls.iter().map(stall).collect(),
            ..StallLog::new()
        }
    }

    #[test]
    fn what_counts_is_the_time_that_one_has_lost_within_the_span() {
        let start = Instant::now() + ms(10_000);
        let span = start..start + ms(10_000);
        // Stalls (end, length, source); the most time that one source lost; whether that is fair.
        type Row<'a> = (&'a [(u64, u64, &'a str)], u64, bool);
        let rows: [Row<'_>; 6] = [
            (&[], 0, true),
            (
                &[(5000, 60, "a"), (6000, 60, "a"), (7000, 140, "b")],
                140,
                true,
            ),
            (&[(5000, 60, "a"), (6000, 100, "a")], 160, false),
            // Partly or wholly outside.
            (&[(50, 500, "a")], 50, true),
            (&[(200, 500, "a")], 200, false),
            (&[(20_000, 5000, "a")], 0, true),
        ];
        for (stalls, most, fair) in rows {
            let lost = log(stalls, start).lost(span.clone());
            let longest = lost.most.as_ref().map_or(ms(0), |(lost, _)| *lost);
            assert_eq!(
                (longest, lost.is_fair()),
                (ms(most), fair),
                "{stalls:?}: {lost}"
            );
            assert_eq!(lost.is_nothing(), most == 0, "{stalls:?}: {lost}");
        }
        let lost = log(&[(9000, 400, "a")], start).lost(start..start + ms(60_000));
        assert!(lost.is_fair() && !lost.is_at_most(0.001), "{lost}");
    }

    #[test]
    fn the_watcher_sees_a_process_that_waits_and_a_generator_that_is_late() {
        begin();
        assert!(
            waits(process::id()).len() > 1,
            "no account of the scheduler"
        );
        thread::sleep(ms(500));
        note_late("the generator", ms(400));
        let lost = lost();
        assert!(!lost.is_fair(), "{lost}");
        let message = std::panic::catch_unwind(|| conclude(false, || "9 instead of 10".to_owned()));
        let message = *message.unwrap_err().downcast::<String>().unwrap();
        assert!(message.starts_with(INCONCLUSIVE), "{message}");
        assert!(message.ends_with("; 9 instead of 10"), "{message}");
        conclude(true, || unreachable!());
    }

    /// A stand-in for `cargo test` with four tests: one passes, one fails, and two are inconclusive; one of
    /// these passes in its third run.
    const CARGO: &str = r#"
runs=$(($(cat "$1") + 1)); echo "$runs" >"$1"; shift
all="$*"
case "$all" in *--exact*) names=${all#*--exact }; ignored=0 ;; *) names="good bad slow never"; ignored=1 ;; esac
passed=0 failed=0
for name in $names; do
    if [ "$name" = good ] || { [ "$name" = slow ] && [ "$runs" = 3 ]; }; then
        echo "test $name ... ok"; passed=$((passed + 1)); continue
    fi
    echo "test $name ... FAILED"; failed=$((failed + 1))
done
echo; echo "failures:"; echo
for name in $names; do
    case $name in
    bad)
        printf -- '---- bad stdout ----\nthread x panicked at a.rs:1:\nINCONCLUSIVE: of a part of it\n'
        printf "thread x panicked at a.rs:1:\n9 instead of 10\nINCONCLUSIVE: no\n\n" ;;
    never) printf -- '---- never stdout ----\nthread x panicked at a.rs:1:\nINCONCLUSIVE: x stood still; 9\n\n' ;;
    slow)
        [ "$runs" = 3 ] ||
            printf -- '---- slow stdout ----\nthread x panicked at a.rs:1:\nINCONCLUSIVE: y stood still; 8\n\n' ;;
    esac
done
echo "failures:"; echo "    bad"; echo
echo "test result: FAILED. $passed passed; $failed failed; $ignored ignored; 0 measured"
[ "$failed" = 0 ]
"#;

    #[test]
    fn the_script_repeats_what_was_inconclusive_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("tollgate-conclusive-{}", process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (cargo, runs) = (dir.join("cargo.sh"), dir.join("runs"));
        fs::write(&cargo, CARGO).unwrap();
        fs::write(&runs, "0").unwrap();
        let script = crate::artifact::workspace().join("tests/conclusive.sh");
        let mut command = process::Command::new("bash");
        command.arg(script).arg("bash").args([&cargo, &runs]);
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let count = fs::read_to_string(&runs).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(count.trim(), "4", "{printed}");
        assert_eq!(
            printed.matches("test bad ... FAILED").count(),
            1,
            "{printed}"
        );
        assert_eq!(printed.matches("test good ... ok").count(), 1, "{printed}");
        for line in [
            "INCONCLUSIVE AT FIRST: 2, of which 1 passed later and 1 stayed so",
            "INCONCLUSIVE: never: x stood still; 9",
            "test result: 2 passed; 2 failed; 1 ignored",
        ] {
            assert!(printed.contains(line), "no {line} in\n{printed}");
        }
        assert!(!output.status.success());
        assert_eq!(printed.matches("test result:").count(), 1, "{printed}");
    }
}
