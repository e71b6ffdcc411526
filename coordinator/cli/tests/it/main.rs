//! The real command from outside.

mod binary;
mod check;
mod commands;
mod crash;
mod fleet_limits;
mod import;
mod load;
mod logs;
mod reload;
mod schemas;
mod simulate;
mod store_file;
mod traces;

// Shared with the coordinator's own tests, which need more of it.
#[allow(dead_code)]
#[path = "../../../tests/it/certificates.rs"]
mod certificates;
#[allow(dead_code)]
#[path = "../../../tests/it/harness.rs"]
mod harness;
#[allow(dead_code)]
#[path = "../../../tests/it/cluster/nodes.rs"]
mod nodes;
