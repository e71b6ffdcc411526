//! Metrics that Prometheus scrapes; docs/metrics.md lists their names.
//!
//! No label has a value that a request can invent: a caller could invent any number of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tollgate_core::lease::Epoch;

use self::labels::{Answered, By, DoormanCall, Outcome, Reason, method_name};
use crate::cluster::election::ElectionMetrics;
use crate::leases::parent::ParentMetrics;
use crate::leases::stats::LeaseStats;
use crate::net::connections::ConnectionMetrics;
use crate::net::tls::TlsMetrics;

mod books;
mod labels;

pub use self::labels::{AnsweredBy, AuthFault, DoormanMethod, RefreshFault, Reloaded};

const PREFIX: &str = "tollgate";

/// Bounds of the duration histogram: from a call with one scope on an idle machine to the deadline.
const DURATIONS_S: [f64; 10] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0,
];

/// The metrics of one coordinator; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    epoch: Gauge<u64, AtomicU64>,
    refresh_calls: Counter,
    refreshes: Counter,
    refresh_errors: Family<Reason, Counter>,
    answered: Family<By, Counter>,
    releases: Counter,
    refresh_duration: Histogram,
    rest: Rest,
    kept: Kept,
    tls: TlsMetrics,
    connections: ConnectionMetrics,
    election: ElectionMetrics,
    parent: ParentMetrics,
    doorman: Family<DoormanCall, Counter>,
}

/// What is configured: the store and the file.
#[derive(Clone, Debug)]
struct Kept {
    limits: Gauge,
    reloads: Family<Outcome, Counter>,
    store_writes: Histogram,
    store_errors: Counter,
    bad_records: Counter,
    store_detached: Gauge,
}

/// The admin API.
#[derive(Clone, Debug, Default)]
struct Rest {
    requests: Family<Answered, Counter>,
    auth_failures: Family<Reason, Counter>,
}

// === impl Metrics ===

impl Metrics {
    /// All at zero, but for what is known at the start.
    pub fn new(epoch: Epoch, limits: usize) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let refresh_calls = Counter::default();
        registry.register("refresh_calls", "Refresh calls", refresh_calls.clone());
        let refreshes = Counter::default();
        registry.register("refreshes", "Scopes in Refresh calls", refreshes.clone());
        let refresh_errors = Family::<Reason, Counter>::default();
        let help = "Refresh calls, or scopes of them, that were refused";
        registry.register("refresh_errors", help, refresh_errors.clone());
        for reason in RefreshFault::ALL {
            // Shown as zero from the start, so that the first error is seen as a rise.
            drop(refresh_errors.get_or_create(&reason.into()));
        }
        let answered = Family::<By, Counter>::default();
        let help = "Scopes asked for, by who answered";
        registry.register("answered", help, answered.clone());
        for by in AnsweredBy::ALL {
            drop(answered.get_or_create(&by.into()));
        }
        let releases = Counter::default();
        registry.register("releases", "Resources given back", releases.clone());
        let refresh_duration = Histogram::new(DURATIONS_S);
        registry.register_with_unit(
            "refresh_duration",
            "Time from a Refresh call's arrival to its answer",
            Unit::Seconds,
            refresh_duration.clone(),
        );
        let doorman = Family::<DoormanCall, Counter>::default();
        let help = "Calls of Doorman clients";
        registry.register("doorman_requests", help, doorman.clone());
        for method in DoormanMethod::ALL {
            drop(doorman.get_or_create(&method.call(true)));
            drop(doorman.get_or_create(&method.call(false)));
        }
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The build", build);
        let term = Gauge::<u64, AtomicU64>::default();
        term.set(epoch.0);
        registry.register("epoch", "The term of this coordinator", term.clone());
        Self {
            rest: Rest::register(&mut registry),
            kept: Kept::register(&mut registry, limits),
            tls: TlsMetrics::register(&mut registry),
            connections: ConnectionMetrics::register(&mut registry),
            election: ElectionMetrics::register(&mut registry),
            parent: ParentMetrics::register(&mut registry),
            registry: Arc::new(registry),
            epoch: term,
            refresh_calls,
            refreshes,
            refresh_errors,
            answered,
            releases,
            refresh_duration,
            doorman,
        }
    }

    /// Shows the epoch of a coordinator that is alone, which its store has a say in.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.epoch.set(epoch.0);
    }

    /// Those of the doors that speak TLS.
    pub fn tls(&self) -> &TlsMetrics {
        &self.tls
    }

    /// Those of connections.
    pub fn connections(&self) -> &ConnectionMetrics {
        &self.connections
    }

    /// Those of the calls to the parent.
    pub fn parent(&self) -> &ParentMetrics {
        &self.parent
    }

    /// Those of the election.
    pub fn election(&self) -> &ElectionMetrics {
        &self.election
    }

    /// A call with `scopes` scopes was answered after `duration`.
    pub fn count_refresh(&self, scopes: usize, duration: Duration) {
        self.refresh_calls.inc();
        self.refreshes.inc_by(scopes as u64);
        self.refresh_duration.observe(duration.as_secs_f64());
    }

    /// A Doorman client called `method`, and was answered or not.
    pub fn count_doorman(&self, method: DoormanMethod, answered: bool) {
        self.doorman.get_or_create(&method.call(answered)).inc();
    }

    /// A call, or a scope of one, was refused.
    pub fn count_fault(&self, reason: RefreshFault) {
        self.refresh_errors.get_or_create(&reason.into()).inc();
    }

    /// So many scopes were answered for by `by`.
    pub fn count_answered(&self, by: AnsweredBy, scopes: usize) {
        let scopes = scopes as u64;
        self.answered.get_or_create(&by.into()).inc_by(scopes);
    }

    /// So many resources were given back.
    pub fn count_releases(&self, resources: usize) {
        self.releases.inc_by(resources as u64);
    }

    /// A request of the admin API was answered by the route `route`, as the router names it.
    pub fn count_rest(&self, method: &Method, route: &str, status: StatusCode) {
        let answered = Answered {
            method: method_name(method),
            route: route.to_owned(),
            status: status.as_u16(),
        };
        self.rest.requests.get_or_create(&answered).inc();
    }

    /// A request of the admin API was turned away.
    pub fn count_auth_fault(&self, reason: AuthFault) {
        let failures = &self.rest.auth_failures;
        failures.get_or_create(&reason.into()).inc();
    }

    /// The configuration file has changed.
    pub fn count_reload(&self, result: Reloaded) {
        self.kept.reloads.get_or_create(&result.into()).inc();
    }

    /// There are so many limits in the configuration now.
    pub fn set_limits(&self, limits: usize) {
        self.kept.limits.set(gauge(limits));
    }

    /// Writes took so long to make durable, or could not be.
    pub fn count_store_write(&self, duration: Duration, durable: bool) {
        self.kept.store_writes.observe(duration.as_secs_f64());
        if !durable {
            self.kept.store_errors.inc();
        }
    }

    /// A record of the store could not be read.
    pub fn count_bad_record(&self) {
        self.kept.bad_records.inc();
    }

    /// The store's path leads to the file that is open, or not.
    pub fn set_store_detached(&self, detached: bool) {
        self.kept.store_detached.set(i64::from(detached));
    }

    /// How many scopes have been refreshed since the start.
    pub fn refreshes(&self) -> u64 {
        self.refreshes.get()
    }

    /// All metrics in the OpenMetrics text format, with the books as `survey` found them.
    ///
    /// # Errors
    /// If a metric cannot be written as text, which is a bug.
    pub fn encode(&self, survey: &LeaseStats) -> Result<String, fmt::Error> {
        let mut of_books = Registry::with_prefix(PREFIX);
        books::register(&mut of_books, survey);
        let mut text = String::new();
        text::encode_registry(&mut text, &self.registry)?;
        text::encode_registry(&mut text, &of_books)?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }
}

// === impl Kept ===

impl Kept {
    fn register(registry: &mut Registry, limits: usize) -> Self {
        let kept = Self {
            limits: Gauge::default(),
            reloads: Family::default(),
            store_writes: Histogram::new(DURATIONS_S),
            store_errors: Counter::default(),
            bad_records: Counter::default(),
            store_detached: Gauge::default(),
        };
        kept.limits.set(gauge(limits));
        let help = "Limits in the configuration";
        registry.register("limits", help, kept.limits.clone());
        let help = "Times that the configuration file changed";
        registry.register("reloads", help, kept.reloads.clone());
        for result in Reloaded::ALL {
            drop(kept.reloads.get_or_create(&result.into()));
        }
        let help = "Time to make writes of the admin API durable, several at a time";
        let writes = kept.store_writes.clone();
        registry.register_with_unit("store_write_duration", help, Unit::Seconds, writes);
        let help = "Times that writes of the admin API could not be made durable";
        registry.register("store_errors", help, kept.store_errors.clone());
        let help = "Records of the store that could not be read and were skipped";
        registry.register("store_bad_records", help, kept.bad_records.clone());
        let help = "Whether the store's file was deleted or replaced while it is open";
        registry.register("store_detached", help, kept.store_detached.clone());
        kept
    }
}

// === impl Rest ===

impl Rest {
    fn register(registry: &mut Registry) -> Self {
        let rest = Self::default();
        let help = "Requests of the admin API";
        registry.register("admin_requests", help, rest.requests.clone());
        let help = "Requests of the admin API that were turned away";
        registry.register("admin_auth_failures", help, rest.auth_failures.clone());
        for reason in AuthFault::ALL {
            drop(rest.auth_failures.get_or_create(&reason.into()));
        }
        rest
    }
}

// === free functions ===

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
