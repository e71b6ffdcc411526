//! Doorman's clients: their bytes on real HTTP/2, and leases beside those of Envoys.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use tollgate_core::lease_server::Start;
use tollgate_net::clock::unix_time;
use tollgate_net::wire::CapacityClient;
use tollgate_proto::doorman as wire;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::doorman_bytes::Vector;
use crate::harness::Coordinator;

const LIMITS: &str = "doorman: {scopes: {shared: tenant/acme}}
limits:
- {match: doorman/fair, requests: {rate: 120, headroom: 0, min_refresh: 1ms}}
- {match: doorman/blocked, requests: {rate: 0}}
- {match: doorman/safe, requests: {rate: 100, safe: 7, algorithm: static, lease: 300s}}
- match: tenant/acme
  requests: {rate: 100, headroom: 0, refresh: 5ms, min_refresh: 1ms, lease: 10s}";

/// No capacity at all, as it must be on the wire: field 3, a double.
const ZERO_CAPACITY: [u8; 9] = [0x19, 0, 0, 0, 0, 0, 0, 0, 0];

async fn coordinator() -> (Coordinator, Channel) {
    let coordinator = Coordinator::with(LIMITS, Start::Fresh).await;
    let endpoint = Endpoint::try_from(format!("http://{}", coordinator.grpc)).unwrap();
    (coordinator, endpoint.connect_lazy())
}

/// A Doorman client as its library is one: says the lease that it was answered last.
pub(crate) struct Client {
    id: String,
    resource: &'static str,
    has: Option<wire::Lease>,
    channel: CapacityClient<Channel>,
}

impl Client {
    pub(crate) fn new(channel: &Channel, id: &str, resource: &'static str) -> Self {
        Self {
            id: id.to_owned(),
            resource,
            has: None,
            channel: CapacityClient::new(channel.clone()),
        }
    }

    async fn asks(&mut self, wants: f64) -> Result<wire::ResourceResponse, Status> {
        let request = wire::GetCapacityRequest {
            client_id: self.id.clone(),
            resource: vec![wire::ResourceRequest {
                resource_id: self.resource.to_owned(),
                priority: 0,
                has: self.has,
                wants,
            }],
        };
        let answer = self.channel.get_capacity(request).await?.into_inner();
        assert_eq!(answer.mastership, None, "it is master");
        let response = answer.response.into_iter().next().unwrap();
        self.has = Some(response.gets);
        Ok(response)
    }

    pub(crate) async fn gets(&mut self, wants: f64) -> f64 {
        self.asks(wants).await.unwrap().gets.capacity
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The capacity of the lease that it was answered last.
    fn capacity(&self) -> f64 {
        self.lease().0
    }

    /// The capacity of the lease that it was answered last, and the time that is left of it.
    pub(crate) fn lease(&self) -> (f64, Duration) {
        let Some(lease) = self.has else {
            return (0.0, Duration::ZERO);
        };
        let expiry = Duration::from_secs(lease.expiry_time.try_into().unwrap());
        (lease.capacity, expiry.saturating_sub(unix_time()))
    }

    /// Gives its lease back.
    pub(crate) async fn release(&mut self) {
        self.has = None;
        let request = wire::ReleaseCapacityRequest {
            client_id: self.id.clone(),
            resource_id: vec![self.resource.to_owned()],
        };
        let answer = self.channel.release_capacity(request).await.unwrap();
        assert_eq!(answer.into_inner().mastership, None, "it is master");
    }
}

#[tokio::test]
async fn a_go_clients_bytes_are_answered_with_all_fields() {
    let (_coordinator, channel) = coordinator().await;
    let before = unix_time().as_secs() as i64;
    let bytes = Vector::read("first_request").send(&channel).await.unwrap();
    let answer = wire::GetCapacityResponse::decode(bytes.as_slice()).unwrap();
    let [response] = &answer.response[..] else {
        panic!("{answer:?}");
    };
    assert_eq!(response.resource_id, "fair");
    assert_eq!(response.gets.capacity, 120.0);
    assert_eq!(response.gets.refresh_interval, 1);
    let until = response.gets.expiry_time - before;
    assert!((9..=70).contains(&until), "{until}");
    assert_eq!(response.safe_capacity, Some(120.0), "capacity / clients");
    assert_eq!(answer.mastership, None);

    let bytes = Vector::read("several_resources").send(&channel).await;
    let bytes = bytes.unwrap();
    let answer = wire::GetCapacityResponse::decode(bytes.as_slice()).unwrap();
    let gets = answer.response.iter();
    let gets: Vec<_> = gets.map(|r| (&*r.resource_id, r.gets.capacity)).collect();
    let want = [
        ("fair", 120.0),
        ("fair", 120.0),
        ("", 5.0),
        ("blocked", 0.0),
    ];
    assert_eq!(gets, want, "no limit is what is wanted");
    let zeros = bytes.windows(9).filter(|bytes| *bytes == ZERO_CAPACITY);
    assert_eq!(zeros.count(), 2, "zeros are on the wire: gets and safe");

    let bytes = Vector::read("without_priority").send(&channel).await;
    let answer = wire::GetCapacityResponse::decode(bytes.unwrap().as_slice()).unwrap();
    assert_eq!(answer.response[0].gets.capacity, 120.0);
}

#[tokio::test]
async fn what_is_released_is_free_at_once() {
    let (_coordinator, channel) = coordinator().await;
    Vector::read("first_request").send(&channel).await.unwrap();
    let mut other = Client::new(&channel, "other", "fair");
    assert_eq!(other.gets(50.0).await, 0.0, "the first has it all");
    let answer = Vector::read("release").send(&channel).await.unwrap();
    assert!(answer.is_empty(), "no mastership: it was done");
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(other.gets(50.0).await, 50.0);
}

#[tokio::test]
async fn a_server_gets_for_its_clients() {
    let (_coordinator, channel) = coordinator().await;
    let bytes = Vector::read("server_request").send(&channel).await.unwrap();
    let answer = wire::GetServerCapacityResponse::decode(bytes.as_slice()).unwrap();
    let response = &answer.response[0];
    assert_eq!(
        (&*response.resource_id, response.gets.capacity),
        ("fair", 120.0)
    );
    assert_eq!(response.safe_capacity, Some(12.0), "120 over ten clients");
    let want = wire::Algorithm {
        kind: wire::algorithm::Kind::FairShare.into(),
        lease_length: 10,
        refresh_interval: 1,
        parameters: vec![],
        learning_mode_duration: Some(10),
    };
    assert_eq!(response.algorithm, Some(want));
}

#[tokio::test]
async fn the_master_says_who_it_is() {
    let (coordinator, channel) = coordinator().await;
    let bytes = Vector::read("discovery").send(&channel).await.unwrap();
    let answer = wire::DiscoveryResponse::decode(bytes.as_slice()).unwrap();
    assert!(answer.is_master);
    let address = coordinator.grpc.to_string();
    assert_eq!(answer.mastership.master_address, Some(address));
}

#[tokio::test]
async fn a_configured_safe_capacity_and_lease_are_said() {
    let (_coordinator, channel) = coordinator().await;
    let mut client = Client::new(&channel, "a", "safe");
    let before = unix_time().as_secs() as i64;
    let answer = client.asks(1000.0).await.unwrap();
    assert_eq!(
        (answer.gets.capacity, answer.safe_capacity),
        (100.0, Some(7.0))
    );
    assert!(answer.gets.expiry_time >= before + 299);
    let mut other = Client::new(&channel, "b", "safe");
    assert_eq!(other.gets(1000.0).await, 100.0, "static: each its own");
}

#[tokio::test]
async fn bad_input_is_refused_by_field_value_and_rule() {
    let (_coordinator, channel) = coordinator().await;
    let rows = [
        (
            "a",
            f64::NAN,
            "resource[0].wants: NaN is not a finite number",
        ),
        ("a", -5.0, "resource[0].wants: -5 is negative"),
        ("", 5.0, "client_id: is empty"),
    ];
    for (id, wants, want) in rows {
        let error = Client::new(&channel, id, "fair")
            .asks(wants)
            .await
            .unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Code::InvalidArgument, want)
        );
    }
    let request = wire::GetServerCapacityRequest {
        server_id: "leaf".to_owned(),
        resource: vec![wire::ServerCapacityResourceRequest {
            resource_id: "fair".to_owned(),
            has: None,
            wants: vec![wire::PriorityBandAggregate {
                priority: 0,
                num_clients: 0,
                wants: 1.0,
            }],
        }],
    };
    let mut client = CapacityClient::new(channel);
    let error = client.get_server_capacity(request).await.unwrap_err();
    let want = "resource[0].wants[0].num_clients: must be at least 1";
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidArgument, want)
    );
}

/// Envoys and Doorman's clients change what they want in a long random order; after each answer
/// both the lease table and what the clients say they have sum to at most the capacity.
#[tokio::test]
async fn envoys_and_doormans_clients_share_one_capacity() {
    let (coordinator, channel) = coordinator().await;
    let mut clients: Vec<Client> = (0..3)
        .map(|i| Client::new(&channel, &format!("go:{i}"), "shared"))
        .collect();
    let mut envoys: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    let mut random = 42_u64;
    let mut full = 0;
    for round in 1..=300_u64 {
        // Xorshift: any order will do, as long as it is the same each time.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let wants = (random >> 32) as f64 % 90.0;
        match random % 5 {
            i @ 0..3 => {
                clients[i as usize].gets(wants).await;
            }
            i => {
                let name = ["envoy/a", "envoy/b"][i as usize - 3];
                let (sequence, has) = envoys.get(name).copied().unwrap_or_default();
                let sequence = sequence + 1;
                let gets = coordinator
                    .gets(name, "tenant/acme", sequence, (has, wants))
                    .await;
                envoys.insert(name, (sequence, gets));
            }
        }
        let by_doorman: f64 = clients.iter().map(Client::capacity).sum();
        let by_envoys: f64 = envoys.values().map(|(_, has)| has).sum();
        let sum = by_doorman + by_envoys;
        assert!(
            sum <= 100.000_001,
            "round {round}: {by_doorman} + {by_envoys}"
        );
        let status = coordinator.get("/v1/scopes/tenant/acme").await.json();
        let status = status["units"]["requests"]["sum_has"].as_f64().unwrap();
        assert!(status <= 100.000_001, "round {round}: {status}");
        assert!(sum <= status + 0.000_001, "round {round}: {sum} > {status}");
        full += u32::from(sum > 95.0);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(full > 30, "capacity is lent, too: {full} of 300");
}
