//! Whether a test had fair conditions: cores enough for the harness and for what it has started.
//!
//! Rates, shares and times on the real clock hang on the machine as well: a load
//! generator that gets no core offers nothing, and an Envoy that gets none admits nothing. A thread
//! looks how late it wakes, and how long the threads of the harness and of its child processes wait
//! for a core (the scheduler's own account), and load generators note how late they are.
//!
//! An assertion that does not hold under such conditions is neither a success nor a failure:
//! [`conclude`] then says [`INCONCLUSIVE`] with the figure, and `tests/conclusive.sh` repeats that test,
//! and no other. One that does not hold under fair conditions fails.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::fs;
use std::ops::Range;
use std::process;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

/// The beginning of the message of a test that found no fair conditions.
pub const INCONCLUSIVE: &str = "INCONCLUSIVE:";

/// How long the watching thread sleeps.
const NAP: Duration = Duration::from_millis(20);
/// How often the scheduler's account is read.
const SAMPLE: Duration = Duration::from_millis(100);
/// A wait for a core, or a delay, that is shorter costs no measurement anything.
const LULL_MIN: Duration = Duration::from_millis(50);
/// The time lost in lulls from which on what was measured says nothing: somewhat less than what the
/// strictest of the tests, 2 % of 10 s, can bear.
const LOST_MAX: Duration = Duration::from_millis(150);
/// And the part of a whole stretch, for long ones.
const LOST_PART_MAX: f64 = 0.01;

/// The most lulls that are remembered: those of a quarter of an hour in which all stands still.
const LULLS_MAX: usize = 10_000;

static WATCHED: Mutex<Watched> = Mutex::new(Watched::new());

/// The knowledge of the watching thread.
#[derive(Debug)]
struct Watched {
    /// When the test at hand began to measure.
    begun: Option<Instant>,
    lulls: VecDeque<Lull>,
    /// Child processes, by id.
    children: BTreeMap<u32, String>,
}

/// A time in which something that a test relies on stood still.
#[derive(Clone, Debug)]
struct Lull {
    ended: Instant,
    lost: Duration,
    of: String,
}

/// The time that was lost in a stretch of time.
#[derive(Clone, Debug)]
pub struct Lost {
    stretch: Duration,
    /// The longest time that one process or generator has lost in all, and which one.
    most: Option<(Duration, String)>,
}

// === impl Watched ===

impl Watched {
    const fn new() -> Self {
        Self {
            begun: None,
            lulls: VecDeque::new(),
            children: BTreeMap::new(),
        }
    }

    fn lock() -> MutexGuard<'static, Self> {
        WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, span: Range<Instant>) -> Lost {
        let mut by: BTreeMap<&str, Duration> = BTreeMap::new();
        for lull in &self.lulls {
            // Only the part of it that lies within.
            let from = lull.ended.checked_sub(lull.lost).unwrap_or(lull.ended);
            let (from, to) = (from.max(span.start), lull.ended.min(span.end));
            *by.entry(&lull.of).or_default() += to.saturating_duration_since(from);
        }
        let most = by.into_iter().max_by_key(|(_, lost)| *lost);
        Lost {
            stretch: span.end.saturating_duration_since(span.start),
            most: most.map(|(of, lost)| (lost, of.to_owned())),
        }
    }
}

// === impl Lost ===

impl Lost {
    /// Whether so little was lost that what was measured counts.
    pub fn is_fair(&self) -> bool {
        self.is_at_most(LOST_PART_MAX)
    }

    /// Whether no more than `part` of the stretch was lost, or next to nothing.
    pub fn is_at_most(&self, part: f64) -> bool {
        let most = self.stretch.mul_f64(part).max(LOST_MAX);
        self.most.as_ref().is_none_or(|(lost, _)| *lost <= most)
    }
}

impl fmt::Display for Lost {
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

/// Begins to measure: what was before does not count.
pub fn begin() {
    static START: Once = Once::new();
    START.call_once(|| {
        thread::spawn(watch);
    });
    let mut watched = Watched::lock();
    watched.begun = Some(Instant::now());
    watched.lulls.clear();
}

/// The time lost since the test began to measure.
pub fn lost() -> Lost {
    let now = Instant::now();
    let watched = Watched::lock();
    watched.lost(watched.begun.unwrap_or(now)..now)
}

/// The time lost in `span`.
pub fn lost_in(span: Range<Instant>) -> Lost {
    Watched::lock().lost(span)
}

/// Asserts what holds under fair conditions.
///
/// # Panics
/// With `failure` if it does not hold; said to be inconclusive if the conditions were not fair.
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

/// Asserts what holds under fair conditions, as [`conditions::conclude`](crate::conditions::conclude)
/// does, with a message as `assert!` takes it.
#[macro_export]
macro_rules! conclude {
    ($holds:expr, $($failure:tt)+) => {
        $crate::conditions::conclude($holds, || format!($($failure)+))
    };
}

/// Notes that something called `of` was late by `late`, until now.
pub fn note_late(of: &str, late: Duration) {
    if late < LULL_MIN {
        return;
    }
    let lull = Lull {
        ended: Instant::now(),
        lost: late,
        of: of.to_owned(),
    };
    let mut watched = Watched::lock();
    watched.lulls.push_back(lull);
    if watched.lulls.len() > LULLS_MAX {
        watched.lulls.pop_front();
    }
}

/// Watches the child process `pid` as well.
pub(crate) fn watch_child(pid: u32, name: &str) {
    Watched::lock().children.insert(pid, name.to_owned());
}

/// Watches the child process `pid` no longer.
pub(crate) fn forget_child(pid: u32) {
    Watched::lock().children.remove(&pid);
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

/// Notes which processes had a thread that waited for a core for half of the time that has `passed` since
/// the last sample.
fn sample(known: &mut HashMap<(u32, u32), Duration>, passed: Duration) {
    let mut processes = Watched::lock().children.clone();
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

/// How long each thread of a process has waited for a core in all; nothing where the kernel does not
/// say.
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

/// Whether requests may wait for a thread: not for those that compile Envoy's Wasm better in the
/// background.
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

    fn watched(lulls: &[(u64, u64, &str)], start: Instant) -> Watched {
        let lull = |(ended, lost, of): &(u64, u64, &str)| Lull {
            ended: start + ms(*ended),
            lost: ms(*lost),
            of: (*of).to_owned(),
        };
        Watched {
            lulls: lulls.iter().map(lull).collect(),
            ..Watched::new()
        }
    }

    #[test]
    fn what_counts_is_the_time_that_one_has_lost_within_the_span() {
        let start = Instant::now() + ms(10_000);
        let span = start..start + ms(10_000);
        // When each lull ended, how long it was, and of whom; then the most that one has lost.
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
        for (lulls, most, fair) in rows {
            let lost = watched(lulls, start).lost(span.clone());
            let seen = lost.most.as_ref().map_or(ms(0), |(lost, _)| *lost);
            assert_eq!(
                (seen, lost.is_fair()),
                (ms(most), fair),
                "{lulls:?}: {lost}"
            );
        }
        let lost = watched(&[(9000, 400, "a")], start).lost(start..start + ms(60_000));
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
        let said = std::panic::catch_unwind(|| conclude(false, || "9 instead of 10".to_owned()));
        let said = *said.unwrap_err().downcast::<String>().unwrap();
        assert!(said.starts_with(INCONCLUSIVE), "{said}");
        assert!(said.ends_with("; 9 instead of 10"), "{said}");
        conclude(true, || unreachable!());
    }

    /// A `cargo test` of four tests: one passes, one fails, and two are inconclusive, of which one passes
    /// when it runs for the third time.
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
        let said = String::from_utf8_lossy(&output.stdout);
        let count = fs::read_to_string(&runs).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(count.trim(), "4", "{said}");
        assert_eq!(said.matches("test bad ... FAILED").count(), 1, "{said}");
        assert_eq!(said.matches("test good ... ok").count(), 1, "{said}");
        for line in [
            "INCONCLUSIVE AT FIRST: 2, of which 1 passed later and 1 stayed so",
            "INCONCLUSIVE: never: x stood still; 9",
            "test result: 2 passed; 2 failed; 1 ignored",
        ] {
            assert!(said.contains(line), "no {line} in\n{said}");
        }
        assert!(!output.status.success());
        assert_eq!(said.matches("test result:").count(), 1, "{said}");
    }
}
