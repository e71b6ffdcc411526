//! APIs through which clients lease: gRPC for Envoys and leaf coordinators, Doorman's protocol, Envoy's rate
//! limit and rate limit quota services, and health checks.
//!
//! Each translates into the same refresh, which the router brings to the task that owns the lease table.

#![forbid(unsafe_code)]

pub mod doorman;
pub mod grpc;
pub mod health;
mod outbound;
pub mod rlqs;
pub mod rls;
