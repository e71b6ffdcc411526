//! What the command line says, and what comes of it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod check;
mod serve;

const EXAMPLES: &str = "\
Examples:
  tollgate check tollgate.yaml
      Says what is wrong with a configuration, all of it, with line, field and rule.
  tollgate serve --config tollgate.yaml
      Leases what the file says; listens on loopback unless the file says otherwise.
  curl -s 127.0.0.1:7711/v1/scopes/tenant/acme
      Who has and wants how much of tenant/acme.

Exit codes: 0 done, 1 failed while running, 2 wrong usage or configuration.";

/// Leases the capacity of services to the Envoys in front of them.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lease capacity to Envoys until SIGTERM or SIGINT.
    ///
    /// When both ports are open one line goes to standard output, `tollgate ready grpc=<address>
    /// http=<address>`; logs go to standard error.
    Serve(serve::Serve),
    /// Check a configuration file and say everything that is wrong with it.
    Check {
        /// The configuration, YAML.
        file: PathBuf,

        /// The admin API may be served beyond loopback even without TLS or without a token.
        #[arg(long)]
        insecure_admin: bool,
    },
}

/// Why the command failed.
#[derive(Debug)]
enum Failure {
    /// The user has to change something.
    Usage(anyhow::Error),
    /// Something went wrong while running.
    Runtime(anyhow::Error),
}

// === impl Cli ===

impl Cli {
    pub(crate) fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Check {
                file,
                insecure_admin,
            } => check::check(&file, insecure_admin),
            Command::Serve(serve) => serve.run(),
        };
        let (error, code) = match result {
            Ok(()) => return ExitCode::SUCCESS,
            Err(Failure::Runtime(error)) => (error, 1),
            Err(Failure::Usage(error)) => (error, 2),
        };
        // Nobody is left to tell if this fails.
        let _ = writeln!(std::io::stderr(), "tollgate: {error:#}");
        ExitCode::from(code)
    }
}

// === impl Failure ===

impl Failure {
    fn runtime(error: impl Into<anyhow::Error>) -> Self {
        Self::Runtime(error.into())
    }
}

// === free functions ===

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
