//! Tollgate's filter: proxy-wasm in Envoy, one VM per worker thread.
//!
//! It translates: Envoy's callbacks into what core decides, and core's decisions into what Envoy
//! does. What the filter asks of its host goes through `host`; what the workers of a process
//! share is in the `shared table`; what a request meets is in `worker`. Only `plugin` knows the SDK's
//! contexts. Everything but that compiles natively, where its tests run against a fake host.

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
