//! The interfaces of the coordinator: gRPC for Envoys and leaf coordinators, Doorman's protocol, the
//! admin API over HTTP, health checks, and the tokens that open the admin API.

pub mod doorman;
pub mod grpc;
pub mod health;
pub mod rest;
