//! Real Envoys with the real filter against real coordinators, one file per behaviour.
//!
//! Rates are read from the load's own clock and compared over windows of seconds; no test
//! asserts the time of a single step.

mod access_log;
mod accuracy;
mod address;
mod bytes;
mod canonical;
mod cardinality;
mod cel;
mod certificates;
mod client;
mod configuration;
mod coordinators;
mod envoy_lost;
mod examples;
mod fairness;
mod fallback;
mod false_coordinator;
mod final_cost;
mod groups;
mod grpc;
mod grpc_translated;
mod harness;
mod hint;
mod hot_restart;
mod http2;
mod in_flight;
mod isolation;
mod keys;
mod limit_headers;
mod memory;
mod mesh;
mod missing;
mod modes;
mod module_by_name;
mod nudges;
mod outage;
mod outage_logs;
mod over_limit;
mod peer_san;
mod per_route;
mod prefer_master;
mod quickstart;
mod redirects;
mod reload;
mod request_bodies;
mod rlqs;
mod rls;
mod rolling_restart;
mod service_gap;
mod shadow;
mod shape;
mod shift;
mod shutdown;
mod statistics;
mod straight;
mod tower_service;
mod trap;
mod tree;
mod two_filters;
mod under_limit;
mod wait_queues;
mod workers;

use tollgate_tests::test_context;
