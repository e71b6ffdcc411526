//! Many groups and attachments: how long a coordinator takes to start with them, and how much
//! memory. `just bench-load` prints the figures of the optimised program.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use tollgate_config::Config;
use tollgate_config::catalog::metrics::CatalogMetrics;
use tollgate_config::catalog::store::{RecordKey, RecordKind, RedbStore, Store as _, WriteBatch};
use tollgate_config::catalog::{MemberKind, Resolver};
use tollgate_config::writer::CatalogWriter;
use tollgate_net::clock::Clock;

use crate::binary::Serve;
use crate::harness::Answer;

const GROUPS: u32 = 10_000;
const ATTACHMENTS: u32 = 100_000;

/// The issue allows so much for a coordinator with all of them.
const MEMORY_MAX: u64 = 200 << 20;

const FILE: &str = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
store: {path: load.redb}
limits: [{match: 'tenant/vip-*', requests: {rate: 1000}}, {match: 'tenant/*', requests: {rate: 10}}]
";

/// A store as a coordinator would have written it.
async fn fill(path: &Path) {
    let group = |i: u32| {
        let spec = format!(
            "{{\"requests\":{{\"rate\":{i},\"safe\":\"dynamic\"}},\"request_bytes\":{{\"rate\":\"50MiB\"}}}}"
        );
        (
            RecordKey::new(RecordKind::Group, &format!("group-{i}")),
            spec,
        )
    };
    let attachment = |i: u32| {
        let key = RecordKind::Attachment(MemberKind::Tenant);
        let spec = format!(
            "{{\"group\":\"group-{}\",\"weight\":{}}}",
            i % GROUPS,
            1 + i % 9
        );
        (RecordKey::new(key, &format!("tenant-number-{i}")), spec)
    };
    let all = (0..GROUPS)
        .map(group)
        .chain((0..ATTACHMENTS).map(attachment));
    let records = all.zip(1..).map(|((key, spec), revision)| {
        let record = format!("{{\"revision\":{revision},\"spec\":{spec}}}");
        (key, Some(record.into_bytes()))
    });
    let batch = WriteBatch {
        revision: u64::from(GROUPS + ATTACHMENTS),
        changes: records.collect(),
        ..WriteBatch::default()
    };
    RedbStore::create(path.to_owned())
        .unwrap()
        .apply(batch)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_hundred_thousand_attachments_to_ten_thousand_groups_fit() {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("tollgate.yaml");
    std::fs::write(&config, FILE).unwrap();
    fill(&dir.path().join("load.redb")).await;

    let start = Instant::now();
    let serve = Serve::start(config.to_str().unwrap(), &[]);
    let started = start.elapsed();
    assert_eq!(
        Answer::get(serve.address("http"), "/readyz").await.status,
        200
    );
    let memory = memory_of(serve.pid());
    eprintln!(
        "{GROUPS} groups with {ATTACHMENTS} attachments: ready after {started:?}, {} MiB of memory",
        memory >> 20
    );
    assert!(memory < MEMORY_MAX, "{memory} bytes");
    drop(serve);

    let config = Config::load(&config, Default::default()).unwrap();
    let (path, _) = config.store_path().unwrap();
    let store = Box::new(RedbStore::create(path).unwrap());
    let metrics = CatalogMetrics::default();
    let writer = CatalogWriter::new(store, config, Clock::start(), metrics).await;
    let (_writer, handle) = writer.unwrap();
    let mut resolver = Resolver::new(handle.watch(), 100_000);
    let scope = |i: u32| format!("tenant/tenant-number-{}", (i * 7919) % ATTACHMENTS).into();
    let scopes: Vec<Arc<str>> = (0..50_000).map(scope).collect();
    let mut pass = || {
        let start = Instant::now();
        for scope in &scopes {
            black_box(resolver.resolve(scope));
        }
        start.elapsed() / scopes.len() as u32
    };
    let (first, again): (Duration, Duration) = (pass(), pass());
    eprintln!("a scope is resolved in {first:?} the first time and {again:?} after that");
    let resolved = resolver.resolve(&"tenant/tenant-number-7".into()).clone();
    assert_eq!(&**resolved.member.unwrap().group.name(), "group-7");
}

/// Bytes of memory of its own that the process uses.
fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kilobytes.trim().parse::<u64>().unwrap() * 1024
}
