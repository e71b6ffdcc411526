//! Tollgate's filter: proxy-wasm in Envoy, one VM per worker thread.
//!
//! It translates: Envoy's callbacks into requests to `tollgate-engine`, and the engine's decisions and
//! effects into what Envoy does. Every call of the host goes through `host`, and `worker` finds the
//! keys of requests and carries effects out. Only `plugin` knows the SDK's contexts. Everything but that
//! compiles natively, for the same filter as a dynamic module of Envoy's, and for the tests against a
//! fake host. What is public here is for that module.

#![cfg_attr(not(target_os = "wasi"), forbid(unsafe_code))]
#![cfg_attr(
    not(any(test, fuzzing)),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]
#![cfg_attr(
    not(target_os = "wasi"),
    allow(dead_code, reason = "Envoy's contexts use it")
)]

mod binding;
mod bound_stream;
mod clock;
mod condition;
mod config;
mod cost;
mod engine_host;
#[cfg(any(test, fuzzing))]
mod fake;
mod final_cost;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod grpc_service;
mod host;
mod key;
mod limit_status;
mod max_wait;
mod metrics;
mod notes;
#[cfg(target_os = "wasi")]
mod plugin;
mod refusal;
mod route;
mod worker;

pub use binding::Binding;
pub use bound_stream::BoundStream;
pub use clock::now;
pub use config::{Config, ConfigError};
pub use grpc_service::{Address, Destination, Files, Pem, REREAD_SECONDS, Tls, authority};
pub use host::{Cas, Host, HostError, Kind, Level, Metric, Written};
pub use metrics::METRICS_MAX;
pub use notes::{MARK, MARK_HEADER, Notes, joined, state_name};
pub use refusal::{Protocol, RESPONSE_DETAILS};
pub use route::{MetadataKind, ROUTE_FIELDS};
pub use worker::Worker;

#[cfg(target_os = "wasi")]
#[allow(missing_docs, reason = "the SDK's macro writes a public function")]
mod entry {
    proxy_wasm::main! {{
        // Also sets the panic hook, which logs before the trap.
        proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
        proxy_wasm::set_root_context(|context| Box::new(crate::plugin::Root::new(context)));
        proxy_wasm::set_http_context(crate::plugin::stream);
    }}
}
