//! The command `tollgate`: serves a coordinator and talks to one.
//!
//! Each command has a module. Commands that talk to a coordinator do so through [`client`], over the
//! admin API that anyone else can use.

#![forbid(unsafe_code)]

use std::process::ExitCode;

mod attach;
mod check;
mod cli;
mod client;
mod completions;
#[cfg(feature = "etcd")]
mod config;
mod connection;
mod delete;
mod drain;
mod failure;
mod get;
mod help;
mod import;
mod kind;
mod list;
mod located;
mod man;
mod print;
mod put;
mod quota;
mod raise;
mod ready;
mod serve;
mod simulate;
mod status;
mod tls;
mod token;
mod top;
mod watchdog;

/// A refresh allocates a few dozen small things that end with it; the system's allocator takes an
/// eighth of the coordinator's time for them, and a fifth in bulk calls.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::Cli::of_process().run()
}
