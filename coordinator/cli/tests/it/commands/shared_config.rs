//! The configuration that the nodes of a cluster share.

use tempfile::TempDir;
use tollgate_tests::etcd::Etcd;

use crate::binary::{file, run};

#[tokio::test]
async fn the_command_line_puts_and_gets() {
    let folder = TempDir::new().unwrap();
    let etcd = Etcd::start(folder.path(), 1).await.unwrap();
    let endpoints = etcd.endpoints_yaml();
    let node = file(&format!(
        "cluster: {{node: a, shared_config: true, etcd: {{endpoints: {endpoints}}}}}\n"
    ));
    let node = node.path().to_str().unwrap().to_owned();
    let text = "limits: [{match: tenant/a, requests: {rate: 5}}]\n".to_owned();
    let good = file(&text);
    let good = good.path().to_str().unwrap().to_owned();
    let shown = tokio::task::spawn_blocking(move || {
        let (code, out, _) = run(&["check", &node]);
        assert_eq!(
            (code, out),
            (0, format!("{node}: good, with limits in etcd\n"))
        );
        let bad = file("limits: []\nlisten: {}\n");
        let bad = bad.path().to_str().unwrap();
        [
            run(&["config", "get", "--config", &node]),
            run(&["config", "put", bad, "--config", &node]),
            run(&["config", "put", &good, "--config", &node]),
            run(&["config", "get", "--config", &node]),
            run(&["config", "get", "--config", &good]),
        ]
    });
    let [none, bad, put, got, alone] = shown.await.unwrap();
    assert_eq!((none.0, none.1.as_str()), (3, ""), "{}", none.2);
    assert_eq!(bad.0, 2, "{}", bad.2);
    assert!(bad.2.contains("2:1: listen: unknown field"), "{}", bad.2);
    assert_eq!(put.0, 0, "{}", put.2);
    assert_eq!((got.0, got.1), (0, text), "{}", got.2);
    assert_eq!(alone.0, 2);
    assert!(
        alone.2.contains("cluster: {shared_config: true}"),
        "{}",
        alone.2
    );
}
