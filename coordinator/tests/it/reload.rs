//! The configuration file changes under a running coordinator.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tollgate_coordinator::grpc::LeaseServiceClient;
use tollgate_proto::response::{Refreshed, ScopeAnswer};

use crate::binary::Serve;
use crate::harness::{Answer, request, unit};

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

    /// What `client` is answered of `scope`.
    async fn refresh(&mut self, client: &str, scope: &str, has: f64, wants: f64) -> ScopeAnswer {
        self.sequence += 1;
        let url = format!("http://{}", self.serve.address("grpc"));
        let mut lease = LeaseServiceClient::connect(url).await.unwrap();
        let asked = request(client, &[(scope, self.sequence, has, wants)]);
        let answer = lease.refresh(asked).await.unwrap().into_inner();
        let mut answers = Refreshed::try_from(answer).unwrap().scopes;
        answers.remove(0).unwrap()
    }

    /// What `client` gets of `scope`.
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
    let said = "tollgate.yaml:3:17: groups.gold.reqests: unknown field";
    assert!(log.contains(said), "{log}");
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
    let line = log.lines().find(|line| line.contains("needs a restart"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("listen, bounds"), "{line}");
}
