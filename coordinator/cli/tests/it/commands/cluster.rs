//! Commands that show a whole cluster.

use super::say;
use crate::nodes::Cluster;

const LIMITS: &str = "limits: [{match: tenant/*, requests: {rate: 100, headroom: 0}}]";

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_is_named() {
    let mut cluster = Cluster::of_three(LIMITS).await;
    let tenants: Vec<String> = (0..30).map(|i| format!("tenant/{i}")).collect();
    cluster.nodes[0].refresh("envoy-a/x", &tenants, 1.0).await;
    let url = format!("http://{}", cluster.nodes[0].http);
    let message = say(&["status", "--server", &url], "").done();
    assert_eq!(message.matches(" alive ").count(), 2, "{message}");
    cluster.nodes.remove(1).stop().await;
    let message = say(&["status", "--server", &url], "").done();
    assert!(message.contains("no answer from b\n"), "{message}");
    let row = message.lines().find(|line| line.starts_with("b ")).unwrap();
    assert!(row.contains("no answer"), "{message}");
    let message = say(&["top", "--once", "--server", &url], "").done();
    assert!(message.contains("no answer from b\n"), "{message}");
}
