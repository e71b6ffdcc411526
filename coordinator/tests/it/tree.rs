//! Coordinators below coordinators.

mod epochs;
mod nudges;
mod rlqs;
mod secured;
mod slow;

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tollgate_core::lease::{Epoch, Unit};
use tollgate_core::lease_server::Start;
use tollgate_proto::response::{Refreshed, UnitAnswer};
use tollgate_proto::v1;
use tollgate_tests::ports;

use crate::harness::{Coordinator, EPOCH, INCARNATION, request};

const ROOT: &str = "limits: [{match: 'tenant/*', requests: \
    {rate: 100, safe: 7, lease: 2s, refresh: 200ms, min_refresh: 20ms, headroom: 0}}]";

/// An Envoy that asks one coordinator for one tenant.
struct Envoy<'a> {
    at: &'a Coordinator,
    id: &'static str,
    sequence: u64,
    has: f64,
    /// Until when it has that.
    expiry: Instant,
}

// === impl Envoy ===

impl<'a> Envoy<'a> {
    fn new(at: &'a Coordinator, id: &'static str) -> Self {
        Self {
            at,
            id,
            sequence: 0,
            has: 0.0,
            expiry: Instant::now(),
        }
    }

    /// Refreshes its lease, uses what it gets, and returns the answer.
    async fn refresh(&mut self, wants: f64) -> UnitAnswer {
        self.sequence += 1;
        let now = Instant::now();
        if now >= self.expiry {
            self.has = 0.0;
        }
        let call = request(self.id, &[("tenant/acme", self.sequence, self.has, wants)]);
        let answer = self.at.client().refresh(call).await.unwrap().into_inner();
        let mut refreshed = Refreshed::try_from(answer).unwrap();
        let scope = refreshed.scopes.remove(0).unwrap();
        let unit = scope.outcome.unwrap()[0];
        let lease = unit.answer.lease;
        self.has = lease.map_or(0.0, |lease| lease.capacity.as_f64());
        self.expiry = now + lease.map_or(Duration::ZERO, |lease| lease.duration);
        unit
    }

    /// Asks for `wants` until it gets `gets`.
    async fn until(&mut self, wants: f64, gets: f64) -> UnitAnswer {
        let all = together(std::slice::from_mut(self), &[wants], gets).await;
        all[0]
    }
}

// === free functions ===

/// All ask, each for what it wants, until every one gets `gets`.
async fn together(envoys: &mut [Envoy<'_>], wants: &[f64], gets: f64) -> Vec<UnitAnswer> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut answers = Vec::new();
        for (envoy, wants) in envoys.iter_mut().zip(wants) {
            answers.push(envoy.refresh(*wants).await);
        }
        let right = |envoy: &Envoy<'_>| (envoy.has - gets).abs() < 0.001;
        if envoys.iter().all(right) && answers.iter().all(|unit| unit.answer.lease.is_some()) {
            return answers;
        }
        let has: Vec<_> = envoys.iter().map(|envoy| envoy.has).collect();
        assert!(Instant::now() < deadline, "{has:?}, not {gets} each");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn below(name: &str, parents: &[&Coordinator], limits: &str) -> Coordinator {
    let addresses: Vec<_> = parents
        .iter()
        .map(|parent| format!("'{}'", parent.grpc))
        .collect();
    let addresses = addresses.join(", ");
    let parent = format!("parent: {{name: {name}, timeout: 500ms, addresses: [{addresses}]}}");
    Coordinator::with(&format!("{parent}\n{limits}"), Start::Fresh).await
}

/// The value of a metric's line that starts with `name`.
async fn metric(of: &Coordinator, name: &str) -> f64 {
    let metrics = of.get("/metrics").await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}"))
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn a_leaf_lends_what_it_borrows() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let leaf = below("eu", &[&root], "limits: []").await;
    let mut envoys = [Envoy::new(&leaf, "a/1"), Envoy::new(&leaf, "b/1")];
    let a = &mut envoys[0];
    // A newcomer is told to come back; what it may do meanwhile it decides itself.
    let first = a.refresh(80.0).await;
    assert_eq!(first.answer.lease, None);
    let second = a.until(80.0, 80.0).await;
    assert_eq!(second.answer.capacity.as_f64(), 100.0);
    assert_eq!(second.answer.safe.unwrap().as_f64(), 7.0);
    let lease = second.answer.lease.unwrap();
    assert!(lease.duration <= Duration::from_secs(2), "{lease:?}");
    // The root counts one client, which speaks for two.
    together(&mut envoys, &[80.0, 1000.0], 50.0).await;
    let status = root.get("/v1/scopes/tenant/acme").await.json();
    let status = &status["units"]["requests"];
    assert_eq!(status["clients"][0]["client"], "eu/0", "{status}");
    assert_eq!(status["client_count"], 1, "{status}");
    // The root's limits apply to scopes that the leaf's file does not limit.
    let call = request("a/1", &[("tenant/acme", 1 << 40, 0.0, 80.0)]);
    let answer = leaf.client().refresh(call).await.unwrap().into_inner();
    let scope = Refreshed::try_from(answer)
        .unwrap()
        .scopes
        .remove(0)
        .unwrap();
    assert_eq!(scope.limited, [Unit::Requests]);
    assert!(metric(&leaf, "tollgate_parent_calls_total{result=\"answered\"}").await >= 2.0);
    assert!(metric(&leaf, "tollgate_parent_answer_timestamp_seconds").await > 0.0);
}

#[tokio::test]
async fn three_levels_divide_one_capacity() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let region = below("eu", &[&root], "limits: []").await;
    let leaf = below("eu-1", &[&region], "limits: []").await;
    let mut envoys = [
        Envoy::new(&root, "at-root/1"),
        Envoy::new(&region, "at-region/1"),
        Envoy::new(&leaf, "a/1"),
        Envoy::new(&leaf, "b/1"),
    ];
    let all = together(&mut envoys, &[1000.0; 4], 25.0).await;
    // The regular interval halves with each level, but what shifts is asked for sooner.
    assert!(all[0].answer.refresh_interval <= Duration::from_millis(200));
    assert!(all[1].answer.refresh_interval <= Duration::from_millis(500));
    assert!(all[2].answer.refresh_interval <= Duration::from_millis(250));
}

#[tokio::test]
async fn a_lowered_capacity_reaches_the_leaves() {
    let root = Coordinator::with(&format!("{ROOT}\nstore: {{path: memory}}"), Start::Fresh).await;
    let leaf = below("eu", &[&root], "limits: []").await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.until(80.0, 80.0).await;
    let ask = crate::harness::Ask::put(
        "/v1/overrides/tenant/acme",
        r#"{"requests": {"rate": 30, "lease": "2s", "refresh": "200ms", "headroom": 0}}"#,
    );
    let answer = root.ask(&ask).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    envoy.until(80.0, 30.0).await;
}

#[tokio::test]
async fn a_leaf_goes_on_without_its_root_and_finds_it_again() {
    // In a runtime of its own, which can be killed with all that is open.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let root = runtime.spawn(Coordinator::with(ROOT, Start::Fresh));
    let root = root.await.unwrap();
    let port = root.grpc.port();
    let leaf = below("eu", &[&root], "limits: []").await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.until(80.0, 80.0).await;
    runtime.shutdown_background();
    // The leaf lends the parent's lease on until it expires, and then the safe capacity.
    let left = envoy.refresh(80.0).await;
    assert_eq!(left.answer.lease.unwrap().capacity.as_f64(), 80.0);
    envoy.until(80.0, 7.0).await;
    assert!(metric(&leaf, "tollgate_parent_calls_total{result=\"failed\"}").await >= 1.0);
    let root = Coordinator::at(port, ROOT, Start::Fresh, Epoch(EPOCH + 1)).await;
    envoy.until(80.0, 80.0).await;
    drop(root);
}

#[tokio::test]
async fn the_next_address_is_tried() {
    let gone = Coordinator::with(ROOT, Start::Fresh).await;
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let leaf = below("eu", &[&gone, &root], "limits: []").await;
    gone.stop().await.unwrap();
    Envoy::new(&leaf, "a/1").until(80.0, 80.0).await;
}

/// As after a move of mastership to a node whose clock is behind: the later term counts, whatever
/// the sequences are.
#[tokio::test]
async fn a_leaf_takes_over_from_an_earlier_term_and_nothing_of_that_counts_any_more() {
    // The leases of the earlier run outlast the test.
    let root = Coordinator::with(&ROOT.replace("2s", "300s"), Start::Fresh).await;
    let ahead = 1 << 60;
    let mut earlier = root.client();
    let call = |tenant| v1::RefreshRequest {
        incarnation: 0,
        term: EPOCH - 1,
        ..request("eu/0", &[(tenant, ahead, 0.0, 60.0)])
    };
    for tenant in ["tenant/acme", "tenant/other"] {
        let answer = earlier.refresh(call(tenant)).await.unwrap().into_inner();
        assert!(answer.scopes[0].error.is_none(), "{answer:?}");
    }
    // The lease of the earlier run would leave too little beside it.
    let leaf = below("eu", &[&root], "limits: []").await;
    Envoy::new(&leaf, "a/1").until(80.0, 80.0).await;
    let answer = earlier.refresh(call("tenant/acme")).await;
    let error = answer.unwrap().into_inner().scopes[0].error.clone();
    let error = error.unwrap();
    assert_eq!(error.code, tonic::Code::Aborted as u32);
    let text = format!("term {} came after term {EPOCH}", EPOCH - 1);
    assert_eq!(error.message, text);
    let errors = metric(&leaf, "tollgate_parent_scope_errors_total").await;
    assert_eq!(errors, 0.0);
}

#[tokio::test]
async fn what_nobody_uses_is_given_back() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let leaf = below("eu", &[&root], "limits: []").await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.until(100.0, 100.0).await;
    leaf.release("a/1", "tenant/acme", 1 << 40).await;
    Envoy::new(&root, "b/1").until(100.0, 100.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_tells_how_the_parent_is_and_what_it_lends() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let leaf = below("eu", &[&root], "limits: []").await;
    let parent = async || leaf.get("/v1/status").await.json()["parent"].clone();
    let none = parent().await;
    let address = format!("http://{}", root.grpc);
    assert_eq!(
        (&none["address"], &none["error"]),
        (&json!(address), &json!(null))
    );
    assert_eq!(none["answered_ms_ago"], json!(null));
    let mut envoy = Envoy::new(&leaf, "a/1");
    envoy.until(80.0, 80.0).await;
    let there = parent().await;
    assert!(there["answered_ms_ago"].is_u64(), "{there}");
    let requests = &there["units"]["requests"];
    assert_eq!(
        (&requests["borrowed"], &requests["wants"]["0"]),
        (&json!(80.0), &json!(80.0))
    );
    assert_eq!(there["above"].as_array().unwrap().len(), 1, "{there}");
    let page = leaf.get("/").await.body;
    assert!(
        page.contains("<h2>Parent</h2>") && page.contains(" ago; above are "),
        "{page}"
    );
    assert_eq!(root.get("/v1/status").await.json()["parent"], json!(null));

    root.stop().await.unwrap();
    while parent().await["error"].is_null() {
        envoy.refresh(80.0).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn nobody_borrows_from_itself() {
    let port = ports::free().unwrap();
    let yaml = format!("parent: {{name: x, addresses: ['127.0.0.1:{port}']}}\nlimits: []");
    let leaf = Coordinator::at(port, &yaml, Start::Fresh, Epoch(EPOCH)).await;
    let mut envoy = Envoy::new(&leaf, "a/1");
    let name = "tollgate_parent_calls_total{result=\"loop\"}";
    while metric(&leaf, name).await < 1.0 {
        assert_eq!(envoy.refresh(10.0).await.answer.lease, None);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        metric(&leaf, "tollgate_parent_calls_total{result=\"answered\"}").await,
        0.0
    );
}

/// Forgetting a unit's limit would forget the requests in flight as well.
#[tokio::test]
async fn a_unit_that_is_given_back_leaves_what_is_known_of_the_others() {
    let times = "lease: 2s, refresh: 200ms, min_refresh: 20ms";
    let limits = format!(
        "limits: [{{match: 'tenant/*', requests: {{rate: 100, {times}}}, concurrency: {{max: 10, {times}}}}}]"
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let root = runtime.spawn(async move { Coordinator::with(&limits, Start::Fresh).await });
    let root = root.await.unwrap();
    let leaf = below("eu", &[&root], "limits: []").await;
    let mut sequence = 0;
    let mut ask = async |units: &[v1::Unit]| {
        sequence += 1;
        let units = units.iter().map(|unit| v1::UnitRequest {
            unit: (*unit).into(),
            sequence,
            wants: 5.0,
            ..v1::UnitRequest::default()
        });
        let scopes = vec![v1::ScopeRequest {
            scope: "tenant/acme".to_owned(),
            units: units.collect(),
        }];
        let client_id = "a/1".to_owned();
        let call = v1::RefreshRequest {
            client_id,
            scopes,
            incarnation: INCARNATION,
            term: 0,
        };
        let answer = leaf.client().refresh(call).await.unwrap().into_inner();
        Refreshed::try_from(answer)
            .unwrap()
            .scopes
            .remove(0)
            .unwrap()
    };
    let both = [v1::Unit::Requests, v1::Unit::Concurrency];
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let scope = ask(&both).await;
        let units = scope.outcome.unwrap();
        if units.iter().all(|unit| unit.answer.lease.is_some()) {
            break;
        }
        assert!(Instant::now() < deadline, "no leases");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let released = v1::ReleasedResource {
        scope: "tenant/acme".to_owned(),
        unit: v1::Unit::Requests.into(),
        sequence: u64::MAX,
    };
    let release = v1::ReleaseRequest {
        client_id: "a/1".to_owned(),
        resources: vec![released],
        incarnation: INCARNATION,
        term: 0,
    };
    // It does not hear from the root again, but what it was lent in flight lasts.
    runtime.shutdown_background();
    leaf.client().release(release).await.unwrap();
    let given_back = async |leaf: &Coordinator| {
        let scope = leaf.get("/v1/scopes/tenant/acme").await.json();
        scope["units"]["requests"].is_null()
    };
    while !given_back(&leaf).await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..60 {
        let scope = ask(&[v1::Unit::Concurrency]).await;
        assert_eq!(scope.limited, [Unit::Requests, Unit::Concurrency]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
