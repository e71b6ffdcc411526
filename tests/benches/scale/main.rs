//! Model of a large fleet: `just bench-scale [units|model|check] [SCENARIO]`.
//!
//! `units` measures the costs of single things: bytes of messages, memory of leases and engines, CPU of
//! a refresh in the core. `model` multiplies them for fleets of up to a million Envoys, with wants that
//! stand still and with wants that change all the time. `check` plays a scenario and prints its
//! figures between those two of the model for the same fleet.

#![allow(clippy::print_stdout, reason = "a report for people")]

mod check;
mod fleet;
mod memory;
mod model;
mod scenario_file;
mod units;

use std::process::ExitCode;

use self::check::Outcome;
use self::units::Units;

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/scale.yaml");

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-scale: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    // Cargo adds `--bench`.
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let wants = |name: &str| named.first().is_none_or(|named| named == name);
    // Before the units are measured: what that frees would hide the memory of the fleet.
    let outcome = if wants("check") {
        Some(Outcome::of(named.get(1).map_or(SCENARIO, String::as_str))?)
    } else {
        None
    };
    let units = Units::measure();
    if wants("units") {
        units.print();
    }
    if wants("model") {
        model::print(&units);
    }
    if let Some(outcome) = outcome {
        outcome.print(&units);
    }
    Ok(())
}
