//! Metrics of the admin API and of Doorman's.

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::observe::metrics::{AddMetrics as _, LabelValue as _, LabeledCounter, label_values};

/// Metrics of the APIs; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ApiMetrics {
    requests: Family<AnsweredRequest, Counter>,
    auth_failures: LabeledCounter<AuthFault>,
    doorman: Family<DoormanCall, Counter>,
}

label_values! {
    /// Reason for which a request of the admin API was turned away.
    pub enum AuthFault as "reason" {
        /// It came without a token.
        Missing = "missing",
        /// Its token is unknown.
        Unknown = "unknown",
        /// Its token does not allow this.
        Role = "role",
        /// Another site made a browser send it.
        Origin = "origin",
    }
}

label_values! {
    /// Method of Doorman's API.
    pub enum DoormanMethod as "method" {
        /// The address of the master.
        Discovery = "discovery",
        /// Leases of a client.
        GetCapacity = "get_capacity",
        /// Leases of a server for its clients.
        GetServerCapacity = "get_server_capacity",
        /// Leases that are given back.
        ReleaseCapacity = "release_capacity",
    }
}

/// Labels of an answered request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnsweredRequest {
    method: &'static str,
    route: String,
    status: u16,
}

/// Labels of a call of a Doorman client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoormanCall {
    method: DoormanMethod,
    result: &'static str,
}

// === impl ApiMetrics ===

impl ApiMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let refused = "Requests of the admin API that were turned away";
        let metrics = Self {
            requests: registry.add("admin_requests", "Requests of the admin API"),
            auth_failures: LabeledCounter::register(registry, "admin_auth_failures", refused),
            doorman: registry.add("doorman_requests", "Calls of Doorman clients"),
        };
        for method in DoormanMethod::ALL {
            for answered in [true, false] {
                drop(
                    metrics
                        .doorman
                        .get_or_create(&DoormanCall::new(*method, answered)),
                );
            }
        }
        metrics
    }

    /// Counts a request that was answered by the route `route`, as the router names it.
    pub fn count_rest(&self, method: &Method, route: &str, status: StatusCode) {
        let answered = AnsweredRequest {
            method: method_name(method),
            route: route.to_owned(),
            status: status.as_u16(),
        };
        self.requests.get_or_create(&answered).inc();
    }

    /// Counts a request that was turned away.
    pub fn count_auth_fault(&self, reason: AuthFault) {
        self.auth_failures.count(reason, 1);
    }

    /// Counts a call of a Doorman client, which was answered or not.
    pub fn count_doorman(&self, method: DoormanMethod, answered: bool) {
        let call = DoormanCall::new(method, answered);
        self.doorman.get_or_create(&call).inc();
    }
}

// === impl DoormanCall ===

impl DoormanCall {
    fn new(method: DoormanMethod, answered: bool) -> Self {
        let result = if answered { "answered" } else { "refused" };
        Self { method, result }
    }
}

// === free functions ===

/// The name of `method`; `other` for one that a caller invented.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
