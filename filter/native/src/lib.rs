//! Tollgate's filter as a dynamic module: the same filter that Envoy loads as wasm, in Envoy's own
//! process.
//!
//! Envoy calls the module on its main thread for configurations and gRPC, and on its worker threads for
//! streams. Each worker thread has an engine of its own; the records that the engines of a process share
//! are in this module's memory. One more thread ticks all engines. A stream that waits is woken through
//! Envoy's scheduler, on the thread that it belongs to.
//!
//! All that is unsafe is Envoy's C interface: `hooks`, which Envoy calls, on top, and `envoy`, which the
//! module calls, at the bottom. Nothing unwinds into Envoy: a hook that panics decides as `host_failure` of
//! the configuration says.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod address_calls;
mod at_hand;
mod calls;
mod cluster_calls;
mod configuration;
mod engine;
mod envoy;
mod grpc;
mod hooks;
mod host;
mod kinds;
mod lock;
mod mailbox;
mod metrics;
mod process;
mod property;
mod settings;
mod stream;
mod ticker;
mod worker;

#[cfg(test)]
mod fake_envoy;
