//! Real Envoys and a real cluster of coordinators under faults: processes are killed and stopped,
//! links are cut and slowed down.
//!
//! A seed decides the faults and their times: `just test-cluster` tries many, `just test-cluster 1 SEED`
//! repeats one. Programs, machine and network are real, so that a seed gives the same
//! faults but never quite the same run.

mod clocks;
mod failover;
mod fault;
mod fault_injector;
mod model_clients;
mod observer;
mod schedule;
mod seeds;
mod spread;

use std::io::{self, Write as _};

use tollgate_tests::test_context;

/// Prints a line of progress at once, also from a test that passes.
fn print_line(line: &str) {
    // Not with `eprintln!`, whose output the test harness keeps back. A failure to print is harmless.
    let _ = writeln!(io::stderr(), "{line}");
}
