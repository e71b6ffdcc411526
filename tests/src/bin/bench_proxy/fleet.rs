//! The Envoy under test with a listener for each filter, and the services that it calls.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter;
use tollgate_tests::upstream::Upstream;

use crate::closed_loop::{ClosedLoop, HEADERS};
use crate::rate_limit_service::RateLimitService;
use crate::table::Sample;
use crate::{Options, Setup};

/// Envoy's cluster for its global limiter.
const GLOBAL: &str = "global";
/// The listener that the others are compared with.
pub(crate) const BASE: &str = "no filter";
/// The filters that set the aims: Tollgate in wasm shall add at most the CPU that the filter adds which
/// reads as many headers as Tollgate has scopes, and the dynamic module 0.7 times that of Envoy's own local
/// limiter.
pub(crate) const AIM: &str = "wasm, one header";
pub(crate) const AIM_OF_THREE: &str = "wasm, three headers";
pub(crate) const THREE: &str = "tollgate, three";
pub(crate) const AIM_OF_MODULE: &str = "local_ratelimit";
/// A dynamic module without any work: Envoy's own part of its cost.
pub(crate) const EMPTY_MODULE: &str = "module, empty";
pub(crate) const MODULE: &str = "tollgate, module";
/// Tollgate in wasm with one scope.
const WASM: &str = "tollgate";

/// The filters whose latency is measured beside that of no filter.
const FOR_LATENCY: [&str; 3] = [AIM_OF_MODULE, WASM, MODULE];

/// The least number of tenants that filters and the coordinator have room for.
const ROOM_MIN: usize = 10_000;

/// Every tenant's limit is above its load, so that nothing is refused. At 10 000 a second a worker caches
/// tokens for some 25 requests at once. At 600 a second, four times the load of a tenant here, 5 ms of the
/// rate are less than two tokens, and each request draws its own token: the most expensive admission.
const LIMITS: &str = "limits:\n  - match: \"slow/*\"\n    requests: {rate: 600}\n  \
                      - match: \"*\"\n    requests: {rate: 10000}\n";

/// The Envoy under test and its services.
pub(crate) struct Fleet {
    envoy: Envoy,
    listeners: Vec<String>,
    _coordinator: Option<Coordinator>,
    _global: RateLimitService,
    _upstream: Upstream,
}

// === impl Fleet ===

impl Fleet {
    /// Starts all of it on the cores of this thread.
    ///
    /// # Errors
    /// When a program is missing or does not start.
    pub(crate) async fn start(dir: &Path, setup: Setup, options: &Options) -> Result<Self> {
        let upstream = Upstream::start().await?;
        let global = RateLimitService::start().await?;
        let coordinator = if options.baselines_only {
            None
        } else {
            Some(Coordinator::start(dir, &coordinator_config(setup)).await?)
        };
        let mut spec = EnvoySpec::new("envoy", setup.workers, upstream.address(), Vec::new());
        spec.coordinators = coordinator.iter().map(Coordinator::grpc).collect();
        spec.clusters = vec![(GLOBAL.to_owned(), global.address())];
        spec.listeners = listeners(coordinator.is_some(), setup, options)?;
        let envoy = Envoy::start(dir, &spec).await?;
        let listeners = spec.listeners.into_iter().map(|(name, _)| name).collect();
        Ok(Self {
            envoy,
            listeners,
            _coordinator: coordinator,
            _global: global,
            _upstream: upstream,
        })
    }

    /// Names of the listeners, the one without a filter first.
    pub(crate) fn names(&self) -> Vec<String> {
        self.listeners.clone()
    }

    /// Address of a listener by its name.
    ///
    /// # Errors
    /// When there is no such listener.
    pub(crate) fn address(&self, name: &str) -> Result<SocketAddr> {
        let listener = self.envoy.listener(name);
        listener.context("a listener that was started")
    }

    /// Sends load through one listener as fast as it is answered, until each
    /// tenant has had a request and it has settled.
    ///
    /// # Errors
    /// When any request was not admitted.
    pub(crate) async fn warm_up(&self, name: &str, setup: Setup, options: &Options) -> Result<()> {
        let to = self.address(name)?;
        let load = ClosedLoop::start(to, options.connections, setup.tenants).await?;
        while load.answered() < setup.tenants as u64 && !load.has_failed() {
            sleep(Duration::from_millis(100)).await;
        }
        sleep(Duration::from_millis(options.settle_ms)).await;
        load.stop().await.with_context(|| format!("through {name}"))
    }

    /// Sends load through one listener, and measures once it has settled: the reports of a change of demand
    /// are a cost of the change, not of each request.
    ///
    /// # Errors
    /// When any request was not admitted.
    pub(crate) async fn slice(
        &self,
        name: &str,
        setup: Setup,
        options: &Options,
    ) -> Result<Sample> {
        let to = self.address(name)?;
        let load = ClosedLoop::start(to, options.connections, setup.tenants).await?;
        sleep(Duration::from_millis(options.settle_ms)).await;
        let look = || Ok::<_, Error>((Instant::now(), load.answered(), self.envoy.process.cpu()?));
        let before = look()?;
        sleep(Duration::from_millis(options.slice_ms)).await;
        let after = look()?;
        load.stop()
            .await
            .with_context(|| format!("through {name}"))?;
        Ok(Sample {
            took: after.0 - before.0,
            requests: after.1 - before.1,
            cpu: after.2.saturating_sub(before.2),
        })
    }
}

/// Limits, with room for the tenants of two filters.
fn coordinator_config(setup: Setup) -> String {
    let resources = 4 * setup.tenants.max(ROOM_MIN);
    format!(
        "{LIMITS}bounds: {{max_resources: {resources}, max_leases: {}}}\n",
        2 * resources
    )
}

/// The listeners: copies of each filter under test in front of the same upstream.
fn listeners(
    with_tollgate: bool,
    setup: Setup,
    options: &Options,
) -> Result<Vec<(String, Vec<Value>)>> {
    let room = 2 * setup.tenants.max(ROOM_MIN);
    let mut filters = vec![
        ("wasm, empty", filter::empty_baseline()?),
        (AIM, filter::header_baseline(&HEADERS[..1])?),
        (AIM_OF_THREE, filter::header_baseline(&HEADERS)?),
        (AIM_OF_MODULE, filter::local_rate_limit(room)),
        (EMPTY_MODULE, filter::empty_module()?),
    ];
    if with_tollgate {
        // As much as with a lease: a first lease may come late.
        let safe = 10_000.0;
        let rule = filter::tenant_rule(safe);
        let plain = filter::by_tenant(&json!({"scopes": [rule], "max_scopes": room}));
        let three = HEADERS.map(
            |header| json!({"name": header, "key": {"header": header}, "safe_capacity": safe}),
        );
        let three = filter::by_tenant(&json!({"scopes": three, "max_scopes": 3 * room}));
        filters.push((WASM, filter::tollgate_wasm("tollgate", &plain)?));
        filters.push((THREE, filter::tollgate_wasm("three", &three)?));
        filters.push((MODULE, filter::tollgate_native(&plain)?));
    }
    let copies = options.copies();
    if copies == 1 {
        filters.push(("global ratelimit", filter::global_rate_limit(GLOBAL)));
    }
    if copies == 1 && with_tollgate {
        let slow = json!({"scopes": [{"name": "slow", "key": {"header": filter::TENANT_HEADER}}]});
        let slow = filter::tollgate_wasm("slow", &filter::by_tenant(&slow))?;
        filters.push(("tollgate, no cache", slow));
    }
    if options.latency {
        filters.retain(|(name, _)| FOR_LATENCY.contains(name));
    }
    let several = filters
        .into_iter()
        .map(|(name, filter)| (name, vec![filter; copies]));
    let all = [(BASE, Vec::new())].into_iter().chain(several);
    Ok(all
        .map(|(name, filters)| (name.to_owned(), filters))
        .collect())
}
