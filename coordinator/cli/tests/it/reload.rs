//! The configuration file changes under a running coordinator.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::response::{Refreshed, ScopeAnswer};

use crate::binary::{Serve, tollgate};
use crate::harness::{Answer, Ask, request, unit};

const LISTEN: &str = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}\n";

/// A coordinator whose file can be changed.
struct Reloading {
    dir: TempDir,
    serve: Serve,
    sequence: u64,
}

// === impl Reloading ===

impl Reloading {
    fn start(limits: &str) -> Self {
        let dir = TempDir::new().unwrap();
        write(&dir.path().join("tollgate.yaml"), limits);
        Self::of(dir)
    }

    fn of(dir: TempDir) -> Self {
        let config = dir.path().join("tollgate.yaml");
        let serve = Serve::start(config.to_str().unwrap(), &["--skip-learning"]);
        Self {
            dir,
            serve,
            sequence: 0,
        }
    }

    fn change(&self, limits: &str) {
        write(&self.dir.path().join("tollgate.yaml"), limits);
    }

    /// Replaces the file by a pipe without a writer.
    fn replace_by_pipe(&self) {
        let file = self.dir.path().join("tollgate.yaml");
        fs::remove_file(&file).unwrap();
        let created = Command::new("mkfifo").arg(&file).status();
        assert!(created.unwrap().success());
    }

    /// Waits until it was counted that the file cannot be read.
    async fn until_unreadable(&self) {
        let line = "tollgate_reloads_total{result=\"unreadable\"} ";
        loop {
            let metrics = Answer::get(self.serve.address("http"), "/metrics").await;
            let mut counts = metrics.body.lines().filter_map(|is| is.strip_prefix(line));
            if counts.next().unwrap() != "0" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn hang_up(&self) {
        let pid = self.serve.pid().to_string();
        let sent = Command::new("kill").args(["-s", "HUP", &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until so many changes were taken and refused.
    async fn until(&self, taken: u32, refused: u32) {
        let lines = [("taken", taken), ("refused", refused)].map(|(result, count)| {
            format!("tollgate_reloads_total{{result=\"{result}\"}} {count}")
        });
        loop {
            let metrics = Answer::get(self.serve.address("http"), "/metrics")
                .await
                .body;
            let has = |line: &String| metrics.lines().any(|is| is == line);
            if lines.iter().all(has) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the answer for `scope` to `client`.
    async fn refresh(&mut self, client: &str, scope: &str, has: f64, wants: f64) -> ScopeAnswer {
        self.sequence += 1;
        let url = format!("http://{}", self.serve.address("grpc"));
        let mut lease = LeaseServiceClient::connect(url).await.unwrap();
        let requested = request(client, &[(scope, self.sequence, has, wants)]);
        let answer = lease.refresh(requested).await.unwrap().into_inner();
        let mut answers = Refreshed::try_from(answer).unwrap().scopes;
        answers.remove(0).unwrap()
    }

    /// Returns the amount of `scope` that `client` gets.
    async fn gets(&mut self, client: &str, scope: &str, has: f64, wants: f64) -> f64 {
        let answer = self.refresh(client, scope, has, wants).await;
        unit(&answer).answer.lease.unwrap().capacity.as_f64()
    }
}

fn write(path: &Path, limits: &str) {
    fs::write(path, format!("{LISTEN}{limits}")).unwrap();
}

fn requests(rate: &str) -> String {
    format!("limits: [{{match: tenant/acme, requests: {{rate: {rate}, headroom: 0}}}}]\n")
}

#[tokio::test]
async fn a_changed_limit_holds_from_the_next_refresh_of_each_client() {
    let mut coordinator = Reloading::start(&requests("100"));
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 0.0, 500.0).await,
        100.0
    );
    coordinator.change(&requests("40"));
    coordinator.until(1, 0).await;
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 100.0, 500.0).await,
        40.0
    );
    coordinator.change(&requests("2k"));
    coordinator.until(2, 0).await;
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 40.0, 500.0).await,
        500.0
    );
    // A removed limit, and one that comes back.
    coordinator.change("limits: []\n");
    coordinator.until(3, 0).await;
    let answer = coordinator.refresh("a", "tenant/acme", 500.0, 500.0).await;
    assert!(unit(&answer).answer.lease.unwrap().capacity.is_unlimited());
    assert_eq!(answer.limited, []);
    coordinator.change(&requests("30"));
    coordinator.until(4, 0).await;
    let gets = coordinator.gets("a", "tenant/acme", 1e12, 500.0).await;
    assert_eq!(gets, 30.0);
}

#[tokio::test]
async fn a_bad_file_is_refused_whole_and_the_old_one_stays() {
    let mut coordinator = Reloading::start(&requests("100"));
    coordinator.change(&format!(
        "{}groups: {{gold: {{reqests: {{}}}}}}\n",
        requests("50")
    ));
    coordinator.until(0, 1).await;
    coordinator.change("");
    coordinator.until(0, 2).await;
    fs::remove_file(coordinator.dir.path().join("tollgate.yaml")).unwrap();
    coordinator.hang_up();
    coordinator.until(0, 3).await;
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 0.0, 500.0).await,
        100.0
    );
    coordinator.change(&requests("50"));
    coordinator.until(1, 3).await;
    assert_eq!(
        coordinator.gets("b", "tenant/b", 0.0, 500.0).await,
        f64::INFINITY
    );
    let (code, log) = coordinator.serve.end("TERM");
    assert_eq!(code, 0, "{log}");
    let message = "tollgate.yaml:3:17: groups.gold.reqests: unknown field";
    assert!(log.contains(message), "{log}");
    assert!(log.contains("limits: is missing"), "{log}");
}

#[tokio::test]
async fn a_signal_takes_the_file_although_it_is_the_same() {
    let coordinator = Reloading::start(&requests("100"));
    coordinator.hang_up();
    coordinator.until(1, 0).await;
    coordinator.hang_up();
    coordinator.until(2, 0).await;
}

#[tokio::test]
async fn a_swapped_link_two_directories_up_is_seen_as_kubernetes_swaps_it() {
    let dir = TempDir::new().unwrap();
    for (version, rate) in [("v1", "100"), ("v2", "70")] {
        fs::create_dir(dir.path().join(version)).unwrap();
        let file = dir.path().join(version).join("tollgate.yaml");
        write(&file, &requests(rate));
    }
    symlink("v1", dir.path().join("..data")).unwrap();
    symlink("..data/tollgate.yaml", dir.path().join("tollgate.yaml")).unwrap();
    let mut coordinator = Reloading::of(dir);
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 0.0, 500.0).await,
        100.0
    );
    let path = coordinator.dir.path();
    symlink("v2", path.join("..tmp")).unwrap();
    fs::rename(path.join("..tmp"), path.join("..data")).unwrap();
    coordinator.until(1, 0).await;
    assert_eq!(
        coordinator.gets("a", "tenant/acme", 100.0, 500.0).await,
        70.0
    );
}

#[tokio::test]
async fn what_is_looked_at_only_at_the_start_is_said_to_need_a_restart() {
    let coordinator = Reloading::start(&requests("100"));
    let file = coordinator.dir.path().join("tollgate.yaml");
    let other = "listen: {grpc: '127.0.0.1:1', http: '127.0.0.1:0'}\nbounds: {max_resources: 3}\n";
    fs::write(file, format!("{other}{}", requests("50"))).unwrap();
    coordinator.until(1, 0).await;
    let (_, log) = coordinator.serve.end("TERM");
    let line = log.lines().find(|line| line.contains("need a restart"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("listen, bounds"), "{line}");
}

#[tokio::test]
async fn a_pipe_in_the_place_of_the_file_is_said_counted_and_recovered_from() {
    let mut coordinator = Reloading::start(&requests("100"));
    coordinator.replace_by_pipe();
    coordinator.until_unreadable().await;
    // A signal is answered as well, more than once.
    coordinator.hang_up();
    coordinator.until(0, 1).await;
    coordinator.hang_up();
    coordinator.until(0, 2).await;
    let gets = coordinator.gets("a", "tenant/acme", 0.0, 500.0).await;
    assert_eq!(gets, 100.0);

    fs::remove_file(coordinator.dir.path().join("tollgate.yaml")).unwrap();
    coordinator.change(&requests("40"));
    coordinator.until(1, 2).await;
    let gets = coordinator.gets("a", "tenant/acme", 100.0, 500.0).await;
    assert_eq!(gets, 40.0);
    let (code, log) = coordinator.serve.end("TERM");
    assert_eq!(code, 0, "{log}");
    let message = "tollgate.yaml: is a pipe, and only a regular file is read";
    let lines = log.lines().filter(|line| line.contains(message));
    let looked = lines.filter(|line| line.contains("configuration: cannot be read"));
    // Once, however often it was looked at.
    assert_eq!(looked.count(), 1, "{log}");
    assert!(log.contains("configuration: can be read again"), "{log}");
}

#[tokio::test]
async fn a_coordinator_ends_in_order_although_its_file_is_a_pipe() {
    let coordinator = Reloading::start(&requests("100"));
    coordinator.replace_by_pipe();
    coordinator.until_unreadable().await;
    // The test would hang if it did not end.
    let (code, log) = coordinator.serve.end("TERM");
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("coordinator: stopped"), "{log}");
}

/// The log's pipe is not read: sooner or later the kernel blocks every thread that logs.
#[tokio::test]
async fn a_coordinator_that_hangs_is_ended_after_its_grace() {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("tollgate.yaml");
    write(&config, &requests("100"));
    let args = ["serve", "--config"];
    let mut child = tollgate(&args)
        .arg(&config)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    let http = ready
        .trim()
        .rsplit_once("http=")
        .unwrap()
        .1
        .parse()
        .unwrap();
    // Each write is a line of the audit log, with its path.
    let long = Ask::new("POST", &format!("/v1/{}", "x".repeat(4000)));
    let hangs = || tokio::time::timeout(Duration::from_secs(2), Answer::of(http, &long));
    while hangs().await.is_ok() {}
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
    assert!(sent.unwrap().success());
    let ended = tokio::task::spawn_blocking(move || child.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(1));
}
