//! APIs of the coordinator: gRPC for Envoys and leaf coordinators, Doorman's protocol, Envoy's rate limit
//! and rate limit quota services, the admin API over HTTP, and health checks.

pub mod doorman;
pub mod grpc;
pub mod health;
pub mod metrics;
mod outbound;
pub mod rest;
pub mod rlqs;
pub mod rls;
