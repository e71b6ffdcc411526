//! Metrics of the admin API.

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tollgate_observe::label_values;
use tollgate_observe::metrics::{AddMetrics as _, LabeledCounter};

/// Metrics of the admin API; clones share them.
#[derive(Clone, Debug, Default)]
pub struct AdminMetrics {
    requests: Family<AnsweredRequest, Counter>,
    auth_failures: LabeledCounter<AuthFault>,
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

/// Labels of an answered request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnsweredRequest {
    method: &'static str,
    route: String,
    status: u16,
}

// === impl AdminMetrics ===

impl AdminMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let refused = "Requests of the admin API that were turned away";
        Self {
            requests: registry.add("admin_requests", "Requests of the admin API"),
            auth_failures: LabeledCounter::register(registry, "admin_auth_failures", refused),
        }
    }

    /// Counts a request that was answered by the route `route`, as the router names it.
    pub fn count(&self, method: &Method, route: &str, status: StatusCode) {
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
