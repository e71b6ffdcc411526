//! Real Envoys with the real filter against real coordinators, one file a behaviour.
//!
//! Rates are read from the load's own clock and compared over windows of seconds; nothing here
//! asserts how long a single step took.

mod access_log;
mod accuracy;
mod bytes;
mod cardinality;
mod client;
mod configuration;
mod envoy_lost;
mod fairness;
mod groups;
mod grpc;
mod harness;
mod in_flight;
mod isolation;
mod keys;
mod missing;
mod modes;
mod outage;
mod over_limit;
mod peer_san;
mod per_route;
mod quickstart;
mod reload;
mod scene;
mod shadow;
mod shift;
mod statistics;
mod under_limit;
mod workers;
