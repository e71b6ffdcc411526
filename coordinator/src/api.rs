//! APIs of the coordinator: gRPC for Envoys and leaf coordinators, Doorman's protocol, the admin API
//! over HTTP, and health checks.

pub mod doorman;
pub mod grpc;
pub mod health;
pub mod metrics;
pub mod rest;
