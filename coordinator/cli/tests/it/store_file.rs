//! The store's file is deleted, replaced or damaged.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tokio::time::{Duration, sleep};

use crate::binary::{Serve, tollgate};
use crate::harness::{Answer, Ask};

const CONFIG: &str = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}\nlimits: []\n";

/// A directory with a configuration, and the path of its store.
fn place() -> (TempDir, String, PathBuf) {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("tollgate.yaml");
    fs::write(&config, CONFIG).unwrap();
    let store = dir.path().join("tollgate.redb");
    let config = config.to_str().unwrap().to_owned();
    (dir, config, store)
}

async fn put(serve: &Serve, group: &str) -> Answer {
    let path = format!("/v1/groups/{group}");
    let put = Ask::put(&path, r#"{"requests": {"rate": 5}}"#);
    Answer::of(serve.address("http"), &put).await
}

/// Waits until `tollgate_store_detached` is so.
async fn until_detached(serve: &Serve, detached: u32) {
    let line = format!("tollgate_store_detached {detached}");
    loop {
        let metrics = Answer::get(serve.address("http"), "/metrics").await;
        if metrics.body.lines().any(|is| is == line) {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn no_write_is_acknowledged_into_a_store_that_is_gone() {
    let (dir, config, store) = place();
    let serve = Serve::start(&config, &[]);
    assert_eq!(put(&serve, "gold").await.status, 201);
    let away = dir.path().join("away.redb");
    fs::rename(&store, &away).unwrap();
    // It is noticed without a write, too.
    until_detached(&serve, 1).await;
    let refused = put(&serve, "silver").await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    let want = format!("the store {} was deleted or moved away", store.display());
    assert!(detail.contains(&want), "{detail}");
    assert!(!store.exists(), "nothing is made in its place");
    // Reads and limits go on.
    let http = serve.address("http");
    assert_eq!(Answer::get(http, "/v1/groups/gold").await.status, 200);
    assert_eq!(Answer::get(http, "/v1/groups/silver").await.status, 404);

    fs::rename(&away, &store).unwrap();
    assert_eq!(put(&serve, "bronze").await.status, 201);
    until_detached(&serve, 0).await;
    let (code, log) = serve.end("TERM");
    assert_eq!(code, 0, "{log}");
    assert!(log.contains(&want), "{log}");
    assert!(log.contains("store: file is back in its place"), "{log}");

    let serve = Serve::start(&config, &[]);
    let http = serve.address("http");
    for (group, status) in [("gold", 200), ("silver", 404), ("bronze", 200)] {
        let answer = Answer::get(http, &format!("/v1/groups/{group}")).await;
        assert_eq!(answer.status, status, "{group}");
    }
}

#[tokio::test]
async fn a_damaged_store_does_not_start_and_says_what_to_do() {
    let (_dir, config, store) = place();
    let serve = Serve::start(&config, &[]);
    for group in 0..20 {
        assert_eq!(put(&serve, &format!("group-{group}")).await.status, 201);
    }
    assert_eq!(serve.end("TERM").0, 0);
    let mut bytes = fs::read(&store).unwrap();
    let record = b"{\"revision\":7,";
    let at = bytes.windows(record.len()).position(|is| is == record);
    bytes[at.unwrap() + record.len() - 2] = b'8';
    fs::write(&store, &bytes).unwrap();
    let output = tollgate(&["serve", "--config", &config]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    let want = format!("the store {} is damaged", store.display());
    assert!(message.contains(&want), "{message}");
    assert!(message.contains("put a backup in its place"), "{message}");
}
