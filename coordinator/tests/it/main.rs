//! The coordinator from outside: real sockets, a real gRPC client, the real binary.

mod auth;
mod binary;
mod bounds;
mod certificates;
mod cli;
mod cluster;
mod crash;
mod decoding;
mod doorman;
mod doorman_bytes;
mod election;
mod etcd;
mod harness;
mod http;
mod leases;
mod load;
mod logs;
mod openapi;
mod openapi_statuses;
mod reload;
mod status;
mod store_file;
mod tls;
mod traces;
mod tree;
mod writes;
