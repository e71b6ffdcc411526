//! Clients of Doorman's in a cluster.

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_net::wire::CapacityClient;
use tollgate_proto::doorman as wire;
use tonic::transport::Channel;

use super::nodes::{Cluster, Node};

const LIMITS: &str = "limits: [{match: doorman/*, requests: {rate: 100, headroom: 0}}]";

fn client(node: &Node) -> CapacityClient<Channel> {
    CapacityClient::new(node.channel.clone())
}

fn call(id: &str, resources: &[String]) -> wire::GetCapacityRequest {
    let resource = |id: &String| wire::ResourceRequest {
        resource_id: id.clone(),
        priority: 0,
        has: None,
        wants: 60.0,
    };
    wire::GetCapacityRequest {
        client_id: id.to_owned(),
        resource: resources.iter().map(resource).collect(),
    }
}

#[tokio::test]
async fn with_one_shard_a_client_is_sent_to_the_master() {
    let mut cluster = Cluster::start(2, 1, LIMITS).await;
    let resources = ["fair".to_owned()];
    // No node knows a master yet: the client is to ask again.
    let answer = client(&cluster.nodes[1])
        .get_capacity(call("x", &resources))
        .await;
    let mastership = answer.unwrap().into_inner().mastership.unwrap();
    assert_eq!(mastership.master_address, None);

    cluster.elect(ShardId(0), 0, Epoch(7)).await;
    let [master, other] = &cluster.nodes[..] else {
        panic!()
    };
    let address = Some(master.peer.grpc.clone());
    let answer = client(other).get_capacity(call("x", &resources)).await;
    let answer = answer.unwrap().into_inner();
    assert_eq!(answer.response, []);
    assert_eq!(answer.mastership.unwrap().master_address, address);
    let release = wire::ReleaseCapacityRequest {
        client_id: "x".to_owned(),
        resource_id: resources.to_vec(),
    };
    let answer = client(other)
        .release_capacity(release)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.mastership.unwrap().master_address, address);
    let server = wire::GetServerCapacityRequest {
        server_id: "x".to_owned(),
        resource: Vec::new(),
    };
    let answer = client(other)
        .get_server_capacity(server)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.mastership.unwrap().master_address, address);

    for (node, is_master) in [(master, true), (other, false)] {
        let request = wire::DiscoveryRequest {};
        let answer = client(node).discovery(request).await.unwrap().into_inner();
        assert_eq!(answer.mastership.master_address, address);
        assert_eq!(answer.is_master, is_master);
    }
    let answer = client(master).get_capacity(call("x", &resources)).await;
    let answer = answer.unwrap().into_inner();
    assert_eq!(answer.mastership, None);
    assert_eq!(answer.response[0].gets.capacity, 60.0);
}

#[tokio::test]
async fn with_several_shards_every_node_answers_as_one() {
    let cluster = Cluster::of_three(LIMITS).await;
    let resources: Vec<String> = (0..30).map(|i| format!("r{i}")).collect();
    for (i, node) in cluster.nodes.iter().enumerate() {
        let answer = client(node)
            .get_capacity(call(&format!("x{i}"), &resources))
            .await;
        let answer = answer.unwrap().into_inner();
        assert_eq!(answer.mastership, None);
        let mut answered: Vec<_> = answer.response.iter().map(|r| &r.resource_id).collect();
        answered.sort();
        let mut want: Vec<_> = resources.iter().collect();
        want.sort();
        assert_eq!(answered, want);
        for response in answer.response {
            assert_eq!(response.gets.capacity, [60.0, 40.0, 0.0][i], "{response:?}");
        }
        let answer = client(node).discovery(wire::DiscoveryRequest {}).await;
        let answer = answer.unwrap().into_inner();
        assert!(answer.is_master);
        let address = Some(node.peer.grpc.clone());
        assert_eq!(answer.mastership.master_address, address);
    }
}

/// No word would be a lease of nothing: the client keeps what it has.
#[tokio::test]
async fn nothing_is_said_of_resources_for_which_nobody_answers() {
    let mut cluster = Cluster::of_three(LIMITS).await;
    let lost = ShardId(2);
    cluster.nodes[2].lost(lost).await;
    cluster.forget(lost).await;
    let resources: Vec<String> = (0..30).map(|i| format!("r{i}")).collect();
    let answer = client(&cluster.nodes[0])
        .get_capacity(call("x", &resources))
        .await;
    let answer = answer.unwrap().into_inner();
    let there = |id: &str| cluster.shard_of(&format!("doorman/{id}")) != lost;
    let want = resources.iter().filter(|id| there(id)).count();
    assert!(want < resources.len());
    assert_eq!(answer.response.len(), want);
    assert!(
        answer
            .response
            .iter()
            .all(|response| there(&response.resource_id))
    );
}
