//! Shared parts of the tests, the demo and the benchmarks: real Envoys, coordinators, upstreams and load
//! generators, started on free ports and ended when they are dropped.
//!
//! Nothing here decides about rates or leases; it only starts the real programs, offers them
//! traffic and counts the answers.

pub mod artifact;
pub mod cluster;
pub mod conditions;
pub mod connection;
pub mod coordinator;
pub mod cores;
pub mod envoy;
pub mod envoy_log;
pub mod etcd;
pub mod faulty_upstream;
pub mod filter;
pub mod grpc_echo;
pub mod http2;
pub mod load;
pub mod mesh;
pub mod monitoring;
pub mod open_loop;
pub mod ports;
pub mod process;
pub mod reactions;
pub mod record;
pub mod recording_upstream;
pub mod relay;
pub mod seeds;
pub mod test_context;
pub mod trap;
pub mod upstream;
pub mod wait;
pub mod wall_clock;
