//! What the tests, the demo and the benchmarks share: real Envoys, coordinators, an upstream and
//! load, started on free ports and gone when they are dropped.
//!
//! Nothing here decides about rates or leases; it only starts the real programs, offers them
//! traffic and counts what came back.

pub mod artifact;
pub mod connection;
pub mod coordinator;
pub mod cores;
pub mod envoy;
pub mod filter;
pub mod grpc_echo;
pub mod http2;
pub mod load;
pub mod moody;
pub mod process;
pub mod record;
pub mod upstream;
pub mod wait;
