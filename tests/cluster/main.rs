//! Real Envoys and a real cluster of coordinators, of which parts are killed, stopped, cut off and
//! slowed down.
//!
//! What is killed when is made from a seed: `just test-cluster` tries many, `just test-cluster 1 SEED`
//! plays one again. Programs, machine and network are real, so that a seed gives the same
//! faults but never quite the same run.

mod clocks;
mod failover;
mod fault;
mod models;
mod observer;
#[path = "../sim/random.rs"]
mod random;
mod schedule;
mod seeds;
mod spread;
mod stage;

use std::io::{self, Write as _};

use tollgate_tests::scene;

/// Tells whoever watches, at once and also of a test that passes.
fn say(line: &str) {
    // Not by a macro, whose output would be kept until the end. Who does not watch misses nothing.
    let _ = writeln!(io::stderr(), "{line}");
}
