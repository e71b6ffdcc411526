//! The `tollgate` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;

mod cli;
mod client;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
