//! A coordinator that is killed in the middle of writes has everything that it acknowledged, and
//! nothing half.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::binary::Serve;
use crate::harness::Answer;

const CONFIG: &str = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}\nlimits: []\n";

/// Arguments that keep the log short: its pipe is not read, and would stop the server when full.
const QUIET: &[&str] = &["--log", "error"];

/// Writers at the same time; each has a group of its own and attaches tenants to it.
const WRITERS: u32 = 10;

/// Writes of each: its group first, then a tenant and the group alternately.
const WRITES: u32 = 100;

/// Acknowledged writes before the kill: at once, in the middle, near the end.
const KILLED_AFTER: [u32; 3] = [3, 500, 970];

/// Acknowledgements of one writer.
struct Acknowledged {
    writer: u32,
    /// The last write that was acknowledged; 0 if none was.
    acknowledged: u32,
}

/// Counts what is acknowledged, and calls for the killer.
struct Count {
    acknowledged: AtomicU32,
    kill_after: u32,
    enough: Notify,
}

// === impl Count ===

impl Count {
    fn one_more(&self) {
        if self.acknowledged.fetch_add(1, Ordering::Relaxed) + 1 == self.kill_after {
            self.enough.notify_one();
        }
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_and_nothing_is_half() {
    for kill_after in KILLED_AFTER {
        let dir = TempDir::new().unwrap();
        let config = dir.path().join("tollgate.yaml");
        std::fs::write(&config, CONFIG).unwrap();
        let config = config.to_str().unwrap();
        let serve = Serve::start(config, QUIET);
        let shown = write_until_killed(serve, kill_after).await;
        let sum: u32 = shown.iter().map(|shown| shown.acknowledged).sum();
        assert!(sum >= kill_after, "{sum}");
        assert!(sum < WRITERS * WRITES, "it was killed after the last write");

        let serve = Serve::start(config, QUIET);
        let http = serve.address("http");
        for shown in &shown {
            check(http, shown).await;
        }
        // And it goes on.
        assert!(matches!(write(http, 0, 1).await.unwrap(), 200 | 201));
    }
}

/// Lets all write and kills the coordinator when enough is acknowledged.
async fn write_until_killed(serve: Serve, kill_after: u32) -> Vec<Acknowledged> {
    let count = Arc::new(Count {
        acknowledged: AtomicU32::new(0),
        kill_after,
        enough: Notify::new(),
    });
    let http = serve.address("http");
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let count = count.clone();
        writers.spawn(async move {
            let mut acknowledged = 0;
            for step in 1..=WRITES {
                match write(http, writer, step).await {
                    Ok(status) => assert!(matches!(status, 200 | 201), "{status}"),
                    Err(_) => break,
                }
                acknowledged = step;
                count.one_more();
            }
            Acknowledged {
                writer,
                acknowledged,
            }
        });
    }
    // On a task of their own, so that one that fails is not waited for.
    let mut writers = tokio::spawn(writers.join_all());
    tokio::select! {
        () = count.enough.notified() => {}
        ended = &mut writers => panic!("they ended before the kill: {}", ended.unwrap().len()),
    }
    // SIGKILL: no handler of its runs.
    drop(serve);
    writers.await.unwrap()
}

/// Makes write number `step` of a writer.
async fn write(http: SocketAddr, writer: u32, step: u32) -> io::Result<u16> {
    if step.is_multiple_of(2) {
        let path = format!("/v1/attachments/tenants/tenant-{writer}-{step}");
        let body = json!({"group": format!("group-{writer}"), "weight": step});
        return put(http, &path, &body).await;
    }
    // Two fields that must agree, and a long one, so that half a write would be seen.
    let body = json!({"requests": {"rate": step}, "concurrency": {"max": step},
        "request_bytes": {"rate": "1MiB", "lease": "1h ".repeat(20).trim_end()}});
    put(http, &format!("/v1/groups/group-{writer}"), &body).await
}

async fn put(http: SocketAddr, path: &str, body: &Value) -> io::Result<u16> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(http).await?;
    let request = format!(
        "PUT {path} HTTP/1.1\r\nhost: {http}\r\nconnection: close\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Checks that everything a writer was told is there, at most its next write more, and all whole.
async fn check(http: SocketAddr, told: &Acknowledged) {
    let Acknowledged {
        writer,
        acknowledged,
    } = *told;
    let group = Answer::get(http, &format!("/v1/groups/group-{writer}")).await;
    if acknowledged == 0 && group.status == 404 {
        return;
    }
    assert_eq!(group.status, 200, "{}", group.body);
    let spec = &group.json()["spec"];
    let rate = spec["requests"]["rate"].as_u64().unwrap();
    assert_eq!(spec["concurrency"]["max"], rate, "{spec}");
    assert_eq!(spec["request_bytes"]["rate"], "1MiB", "{spec}");
    // Odd steps write the group.
    let last_group = u64::from(acknowledged.saturating_sub(1) | 1);
    let in_flight = u64::from(acknowledged + 1);
    assert!(
        rate == last_group || rate == in_flight,
        "{rate} after {acknowledged}"
    );

    let tenants = tenants_of(http, writer).await;
    for step in (2..=acknowledged).step_by(2) {
        assert_eq!(tenants.get(&step), Some(&step), "of {writer}: {tenants:?}");
    }
    let most = acknowledged.div_ceil(2);
    assert!(tenants.len() <= most as usize, "of {writer}: {tenants:?}");
}

/// The weights of the tenants of a writer, by the step that wrote them.
async fn tenants_of(http: SocketAddr, writer: u32) -> BTreeMap<u32, u32> {
    let page = Answer::get(http, "/v1/attachments/tenants?limit=1000").await;
    let page = page.json();
    let prefix = format!("tenant-{writer}-");
    let entries = page["attachments"].as_array().unwrap().iter();
    let own = entries.filter_map(|entry| {
        let name = entry["name"]
            .as_str()
            .or_else(|| entry["tenant"].as_str())?;
        let step = name.strip_prefix(&prefix)?.parse().unwrap();
        assert_eq!(entry["spec"]["group"], format!("group-{writer}"));
        Some((step, entry["spec"]["weight"].as_u64().unwrap() as u32))
    });
    own.collect()
}
