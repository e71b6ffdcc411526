//! Context of a test with real Envoys: a directory for logs, an upstream, and exclusive use of the
//! machine.

use std::fs;
use std::io::{Write as _, stderr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::artifact;
use crate::cluster::Cluster;
use crate::conditions::{self, INCONCLUSIVE, LostTime, conclude};
use crate::coordinator::Coordinator;
use crate::envoy::{Envoy, EnvoySpec};
use crate::filter::{self, Build};
use crate::load::Load;
use crate::process::log_tails;
use crate::record::{BIN, Record};
use crate::upstream::Upstream;

/// Tests share two cores, so they run one after another, whatever the number of test threads.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Directory and upstream of one test.
#[derive(Debug)]
pub struct TestContext {
    dir: PathBuf,
    /// The upstream of admitted requests.
    pub upstream: Upstream,
}

/// Runs a test in `target/it/<name>`, or with the dynamic module in `target/it-native/<name>`, so that both
/// may run at once; a failure prints the ends of all logs there. An error while processes stood still is
/// inconclusive: see [`conditions`].
///
/// # Panics
/// When the test fails, or its folder cannot be made.
pub fn run_test(name: &str, body: impl AsyncFnOnce(&TestContext) -> Result<()>) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let parent = match Build::under_test().unwrap() {
        Build::Wasm => "it",
        Build::Native => "it-native",
    };
    let dir = artifact::target_dir().join(parent).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let _logs = LogsOfFailure(&dir);
    conditions::begin();
    let result: Result<()> = Runtime::new().unwrap().block_on(async {
        let test = TestContext {
            dir: dir.clone(),
            upstream: Upstream::start().await?,
        };
        body(&test).await
    });
    let lost = conditions::lost();
    eprintln!("since the measurement began: {lost}");
    if let Err(error) = result {
        fail(&format!("{error:?}"), &lost);
    }
}

/// Fails a test. It is inconclusive if `failure` is of an assertion that says so, or if processes stood still; a law
/// holds whatever stands still.
fn fail(failure: &str, lost: &LostTime) -> ! {
    // The marker has to begin the message, however many contexts are around it.
    let mut lines = failure.lines();
    let inconclusive = lines.find_map(|line| line.find(INCONCLUSIVE).and_then(|at| line.get(at..)));
    let breaks_law = failure
        .split([':', '\n'])
        .any(|part| part.trim_start().starts_with("law "));
    match inconclusive {
        Some(inconclusive) => panic!("{inconclusive}; {failure}"),
        None if breaks_law || lost.is_fair() => panic!("{failure}"),
        None => panic!("{INCONCLUSIVE} {lost}; {failure}"),
    }
}

/// Runs a test that says nothing of the dynamic module, since it is about the wasm build alone or has no
/// Tollgate filter. With the module it is skipped: the line with the `reason` goes past the harness, which
/// holds back what a test prints, and `tests/conclusive.sh` counts it.
///
/// # Panics
/// As [`run_test`].
pub fn run_wasm_test(name: &str, reason: &str, body: impl AsyncFnOnce(&TestContext) -> Result<()>) {
    if Build::under_test().unwrap() == Build::Wasm {
        return run_test(name, body);
    }
    // The harness has begun a line.
    let line = format!("\nSKIPPED: {name}: {reason}\n");
    stderr().write_all(line.as_bytes()).unwrap();
}

// === impl TestContext ===

impl TestContext {
    /// Directory of this test's files and logs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a coordinator with `limits`, the YAML of that name.
    ///
    /// # Errors
    /// As [`Coordinator::start`].
    pub async fn coordinator(&self, limits: &str) -> Result<Coordinator> {
        Coordinator::start(&self.dir, limits).await
    }

    /// Starts an Envoy that calls `coordinator`, with `plugin` as the filter's configuration.
    ///
    /// # Errors
    /// As [`Envoy::start`].
    pub async fn envoy(
        &self,
        name: &str,
        workers: u32,
        coordinator: &Coordinator,
        plugin: &Value,
    ) -> Result<Envoy> {
        let filters = vec![filter::tollgate(plugin)?];
        let spec = EnvoySpec::new(name, workers, self.upstream.address(), filters);
        Envoy::start(&self.dir, &spec.asking(coordinator.grpc())).await
    }

    /// Starts Envoys with two workers at once, each as [`Self::envoy`] does.
    ///
    /// # Errors
    /// As [`Envoy::start`].
    pub async fn envoys<const N: usize>(
        &self,
        names: [&str; N],
        coordinator: &Coordinator,
        plugin: &Value,
    ) -> Result<[Envoy; N]> {
        let filters = vec![filter::tollgate(plugin)?];
        let spec = |name| EnvoySpec::new(name, 2, self.upstream.address(), filters.clone());
        let specs = names.map(|name| spec(name).asking(coordinator.grpc()));
        all_of(Envoy::start_all(&self.dir, &specs).await?)
    }

    /// Starts Envoys at once that limit by tenant and call any node of `cluster`.
    ///
    /// # Errors
    /// As [`Envoy::start`].
    pub async fn envoys_of<const N: usize>(
        &self,
        names: [&str; N],
        cluster: &Cluster,
    ) -> Result<[Envoy; N]> {
        let filters = vec![filter::tollgate(&filter::by_tenant(&json!({})))?];
        let spec = |name| EnvoySpec::new(name, 2, self.upstream.address(), filters.clone());
        let specs = names.map(|name| spec(name).asking_any_of(cluster.addresses()));
        all_of(Envoy::start_all(&self.dir, &specs).await?)
    }

    /// Starts an Envoy with any filters and no coordinator.
    ///
    /// # Errors
    /// As [`Envoy::start`].
    pub async fn envoy_with(&self, name: &str, filters: Vec<Value>) -> Result<Envoy> {
        let spec = EnvoySpec::new(name, 2, self.upstream.address(), filters);
        Envoy::start(&self.dir, &spec).await
    }
}

/// Prints the ends of the logs when the test panics.
struct LogsOfFailure<'a>(&'a Path);

impl Drop for LogsOfFailure<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", log_tails(self.0));
        }
    }
}

fn all_of<const N: usize>(envoys: Vec<Envoy>) -> Result<[Envoy; N]> {
    let envoys = <[Envoy; N]>::try_from(envoys);
    envoys.map_err(|envoys| anyhow!("{} Envoys instead of {N}", envoys.len()))
}

/// Converts seconds to a duration.
pub const fn s(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1000.0) as u64)
}

/// Prints the rate admitted in each half second, to help explain a failure.
pub fn print_course(name: &str, record: &Record) {
    let step = s(0.5);
    let mut rates = Vec::new();
    let mut from = s(0.0);
    while from + step <= record.length() {
        rates.push(record.admitted_per_second(from..from + step).to_string());
        from += step;
    }
    eprintln!("{name}, admitted/s every {step:?}: {}", rates.join(" "));
}

/// Asserts that `measured` is within `part` of `expected`, and prints both.
///
/// # Panics
/// When it is not.
#[track_caller]
pub fn assert_near(name: &str, measured: f64, expected: f64, part: f64) {
    eprintln!(
        "{name}: {measured:.1}, expected {expected:.1} within {:.0} %",
        part * 100.0
    );
    conclude((measured - expected).abs() <= part * expected, || {
        format!("{name}: {measured} instead of {expected}")
    });
}

/// Asserts law 6 for a whole fleet: in no window of a second or more does it admit more than the bursts
/// and the capacity allow. `burst` is in tokens, for all processes together.
///
/// # Panics
/// When it admits more.
#[track_caller]
pub fn assert_never_above(record: &Record, capacity: f64, burst: f64) {
    assert_never_above_in(record, s(0.0)..record.length(), capacity, burst);
}

/// Asserts the same of the windows within `span`. `burst` is what the buckets held at its start, or
/// earned and kept since.
///
/// # Panics
/// When it admits more.
#[track_caller]
pub fn assert_never_above_in(record: &Record, span: Range<Duration>, capacity: f64, burst: f64) {
    for seconds in [1.0, 3.0] {
        let most = record.windows(span.clone(), s(seconds)).into_iter();
        let most = most.map(|rate| rate * seconds).fold(0.0, f64::max);
        // One bin more: a bin may count answers that belong to the one before.
        let allowed = capacity * (seconds + BIN.as_secs_f64()) + burst;
        eprintln!("most admitted in {seconds} s: {most:.0}, allowed {allowed:.0}");
        conclude(most <= allowed, || {
            format!("{most} admitted in {seconds} s, allowed are {allowed}")
        });
    }
}

/// Checks law 1 in the coordinator's lease table, every tenth of a second until `end` of the load.
///
/// # Errors
/// When the law does not hold, or the coordinator does not answer or has never known the scope.
pub async fn watch_leases(
    coordinator: &Coordinator,
    scope: &str,
    load: &Load,
    end: Duration,
) -> Result<()> {
    let mut checks = 0;
    while load.elapsed() < end {
        load.run_until((load.elapsed() + BIN).min(end)).await;
        if let Some(leases) = coordinator.leases(scope).await? {
            let (sum, capacity) = (leases.sum_has(), leases.capacity);
            ensure!(
                sum <= capacity + 1e-6,
                "law 1: leases of {sum} at a capacity of {capacity}: {leases:?}"
            );
            checks += 1;
        }
    }
    ensure!(checks > 0, "the coordinator never knew {scope}");
    Ok(())
}
