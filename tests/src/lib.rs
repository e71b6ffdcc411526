//! What the tests, the demo and the benchmarks share: real Envoys, coordinators, an upstream and
//! load, started on free ports and gone when they are dropped.
//!
//! Nothing here decides about rates or leases; it only starts the real programs, offers them
//! traffic and counts what came back.

pub mod artifact;
pub mod cluster;
pub mod conditions;
pub mod connection;
pub mod coordinator;
pub mod cores;
pub mod envoy;
pub mod etcd;
pub mod filter;
pub mod grpc_echo;
pub mod http2;
pub mod load;
pub mod moody;
pub mod ports;
pub mod process;
pub mod record;
pub mod relay;
pub mod roll;
pub mod scene;
pub mod trap;
pub mod upstream;
pub mod wait;
pub mod wall_clock;
