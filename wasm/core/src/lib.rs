//! Tollgate's decisions, without I/O, clock, randomness or threads.
//!
//! The caller passes the time in and carries the effects out, so that the same code runs in Envoy's
//! wasm VM, in the coordinator and under a simulated clock. Nothing here can panic in a release
//! build: arithmetic saturates and look-ups are checked.

#![no_std]
#![forbid(unsafe_code)]
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

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bucket;
pub mod client;
pub mod cluster;
pub mod deadlines;
pub mod early;
pub mod fleet;
mod hash;
mod lack;
pub mod lease;
pub mod lease_client;
pub mod lease_server;
mod lease_times;
mod lendable;
pub mod limit;
pub mod message;
pub mod pool;
pub mod quantity;
pub mod quota;
pub mod resource;
mod round;
pub mod share;
pub mod token_cache;
pub mod traffic;
pub mod tree;
pub mod units;
