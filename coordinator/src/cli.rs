//! What the command line says, and what comes of it.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tollgate_coordinator::clock::epoch_of_this_start;
use tollgate_coordinator::config::{Config, Flags};
use tollgate_coordinator::server::{Listeners, Server};
use tollgate_core::lease::Epoch;
use tollgate_core::node::Start;
use tracing_subscriber::EnvFilter;

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
    Serve(Serve),
    /// Check a configuration file and say everything that is wrong with it.
    Check {
        /// The configuration, YAML.
        file: PathBuf,

        /// The admin API may be served beyond loopback even without TLS or without a token.
        #[arg(long)]
        insecure_admin: bool,
    },
}

#[derive(Debug, Args)]
struct Serve {
    /// The configuration, YAML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Lend at once, without learning first what Envoys hold.
    ///
    /// Only for the first start of a new fleet, when no Envoy can hold a lease of an earlier run:
    /// otherwise more than the capacity may be in use until those leases have expired.
    #[arg(long)]
    skip_learning: bool,

    /// The term of this run; must be higher than that of any earlier one.
    ///
    /// Envoys ignore a lower term than they have seen. The default is the wall clock in
    /// milliseconds; say it yourself where that clock can be set back between runs.
    #[arg(long, value_name = "NUMBER")]
    epoch: Option<u64>,

    /// Serve the admin API beyond loopback even without TLS or without a token.
    #[arg(long)]
    insecure_admin: bool,

    /// What to log, such as `info` or `tollgate_coordinator=debug`.
    #[arg(
        long,
        value_name = "FILTER",
        env = "TOLLGATE_LOG",
        default_value = "info"
    )]
    log: String,
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
            } => check(&file, insecure_admin),
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

// === impl Serve ===

impl Serve {
    fn run(self) -> Result<(), Failure> {
        let filter = EnvFilter::try_new(&self.log).context("--log");
        let filter = filter.map_err(Failure::Usage)?;
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .init();
        let config = load(&self.config, self.insecure_admin)?;
        let runtime = tokio::runtime::Runtime::new().map_err(Failure::runtime)?;
        runtime
            .block_on(self.serve(config))
            .map_err(Failure::Runtime)
    }

    async fn serve(self, config: Config) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let epoch = self.epoch.map_or_else(epoch_of_this_start, Epoch);
        let start = if self.skip_learning {
            Start::Fresh
        } else {
            Start::Learning
        };
        let listeners = Listeners::bind(config.listen).await?;
        let listen = listeners.addresses()?;
        let limits = config.catalog.limits.count();
        tracing::info!(epoch = epoch.0, ?start, limits, "starting");
        let server = Server::new(listeners, config, epoch, start).await?;
        let reloads = server.reloads();
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                // One that does not fit: the file will be looked at anyway.
                let _ = reloads.try_send(());
            }
        });
        say(&format!(
            "tollgate ready grpc={} http={}",
            listen.grpc, listen.http
        ))?;
        server.run(shutdown).await?;
        tracing::info!("stopped");
        Ok(())
    }
}

// === impl Failure ===

impl Failure {
    fn runtime(error: impl Into<anyhow::Error>) -> Self {
        Self::Runtime(error.into())
    }
}

// === free functions ===

fn check(file: &Path, insecure_admin: bool) -> Result<(), Failure> {
    let config = load(file, insecure_admin)?;
    let catalog = &config.catalog;
    let attachments = catalog.tenants.len() + catalog.namespaces.len();
    let counts = [
        (catalog.limits.count(), "limit"),
        (catalog.groups.len(), "group"),
        (attachments, "attachment"),
    ];
    let counts = counts.iter().enumerate();
    // Limits always, the others if there are any.
    let counts = counts.filter(|(i, (count, _))| *i == 0 || *count > 0);
    let counts: Vec<String> = counts
        .map(|(_, (count, noun))| format!("{count} {noun}{}", if *count == 1 { "" } else { "s" }))
        .collect();
    let line = format!("{}: good, {}", file.display(), counts.join(", "));
    say(&line).map_err(Failure::runtime)
}

fn load(file: &Path, insecure_admin: bool) -> Result<Config, Failure> {
    let config = Config::load(file, Flags { insecure_admin });
    config.map_err(|error| Failure::Usage(error.into()))
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
