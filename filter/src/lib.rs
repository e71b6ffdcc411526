//! Tollgate's filter: proxy-wasm in Envoy, one VM per worker thread.
//!
//! It translates: Envoy's callbacks into requests to `tollgate-engine`, and the engine's decisions and
//! effects into what Envoy does. Every call of the host goes through `host`, and `worker` finds the
//! keys of requests and carries effects out. Only `plugin` knows the SDK's contexts. Everything but that
//! compiles natively, where its tests run against a fake host.

#![forbid(unsafe_code)]
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

mod clock;
mod condition;
mod config;
mod cost;
mod engine_host;
#[cfg(any(test, fuzzing))]
mod fake;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod grpc_service;
mod host;
mod key;
mod limit_status;
mod max_wait;
mod metrics;
#[cfg(target_os = "wasi")]
mod plugin;
mod refusal;
mod route;
mod worker;

#[cfg(target_os = "wasi")]
#[allow(missing_docs, reason = "the SDK's macro writes a public function")]
mod entry {
    proxy_wasm::main! {{
        // Also sets the panic hook, which logs before the trap.
        proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
        proxy_wasm::set_root_context(|context| Box::new(crate::plugin::Root::new(context)));
    }}
}
