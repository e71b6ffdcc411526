//! `tollgate status` of a coordinator below another.

use std::time::Duration;

use super::Server;

const ROOT: &str = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
limits: [{match: 'tenant/*', requests: {rate: 100, min_refresh: 20ms, headroom: 0}}]
";

#[tokio::test]
async fn the_status_tells_how_the_parent_is_and_what_it_lends() {
    let root = Server::with(ROOT);
    let address = root.serve.address("grpc");
    let listen = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}";
    let parent = format!("parent: {{name: eu, timeout: 500ms, addresses: ['{address}']}}");
    let leaf = Server::with(&format!("{listen}\n{parent}\nlimits: []\n"));
    let mut sequence = 0;
    let mut until = async |text: &str| {
        loop {
            sequence += 1;
            leaf.gets("a/1", "tenant/acme", sequence, 80.0).await;
            let message = leaf.say("status").done();
            if message.contains(text) {
                return message;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let message = until("0: 80").await;
    let answered = format!("parent http://{address}  answered ");
    assert!(message.contains(&answered), "{message}");
    drop(root);
    until("  last call failed: ").await;
}
