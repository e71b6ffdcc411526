//! The coordinator from outside: real sockets and a real gRPC client.

mod auth;
mod bounds;
mod certificates;
mod cluster;
mod decoding;
mod doorman;
mod doorman_bytes;
mod election;
mod etcd;
mod four_apis;
mod harness;
mod held;
mod history;
mod http;
mod leases;
mod metrics;
mod nudges;
mod openapi;
mod openapi_statuses;
mod pages;
mod rlqs;
mod rls;
mod status;
mod tls;
mod tree;
mod writes;
