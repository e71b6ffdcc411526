//! `tollgate serve`: the coordinator itself.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind};
use tollgate_cluster::election::RunEpoch;
use tollgate_config::{Config, Flags, Listen, parent_address};
use tollgate_coordinator::{Listeners, Server};
use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::Start;
use tollgate_net::clock::epoch_of_this_start;
use tollgate_observe::logging::{self, Format, Options, Otlp};

use crate::check::load;
use crate::failure::Failure;
use crate::watchdog::{self, signals};

/// Time that blocked threads have to return once everything else has ended.
const BLOCKED_GRACE: Duration = Duration::from_secs(1);

pub(super) const EXAMPLES: &str = "\
Examples:
  tollgate serve --config tollgate.yaml
  tollgate serve --config tollgate.yaml --skip-learning
      The first start of a new fleet.
  tollgate serve --config region.yaml --parent root-1:7710 --parent root-2:7710
      Below another coordinator, whose capacity it divides further.
  tollgate serve --config tollgate.yaml --log-format json --otlp-endpoint http://127.0.0.1:4317
      Logs for machines, and one call in a hundred traced.";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration, YAML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Lend at once, without learning mode.
    ///
    /// Only for the first start of a new fleet, when no Envoy can hold a lease of an earlier run:
    /// otherwise more than the capacity may be in use until those leases have expired. Of no effect
    /// in a cluster, where a master may follow one that died.
    #[arg(long)]
    skip_learning: bool,

    /// The term of this run, at least 1; must be higher than that of any earlier one.
    ///
    /// Envoys ignore a lower term than they have seen. The default is the wall clock in
    /// milliseconds, or one more than the term of the last run if the store knows of a higher one. Say
    /// it yourself where that clock can be set back between runs and there is no store. Of no effect
    /// in a cluster.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=Epoch::MAX.0))]
    epoch: Option<u64>,

    /// Serve the admin API beyond loopback even without TLS or without a token.
    #[arg(long)]
    insecure_admin: bool,

    /// Serve gRPC, which Envoys speak, beyond loopback even without TLS.
    #[arg(long)]
    insecure_grpc: bool,

    /// Borrow from the coordinator at this address, such as `root:7710`, and lend only that; say it
    /// again for others, which are tried in order.
    ///
    /// In the place of `parent.addresses` in the configuration.
    #[arg(long = "parent", value_name = "ADDR", value_parser = parent)]
    parents: Vec<String>,

    #[command(flatten)]
    log: Log,
}

/// Options of logs and traces.
#[derive(Debug, Args)]
struct Log {
    /// Filter of the log, such as `info` or `tollgate=debug`.
    #[arg(long, value_name = "FILTER", env = "TOLLGATE_LOG")]
    #[arg(default_value = "info")]
    log: String,

    /// Format of the log: text for people, or an object in JSON a line.
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    #[arg(default_value = "text")]
    log_format: String,

    /// Send traces of calls to an OpenTelemetry collector over gRPC, such as
    /// `http://127.0.0.1:4317`.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,

    /// The part of the calls that is traced, from 0 to 1.
    #[arg(long, value_name = "PART", default_value_t = 0.01)]
    otlp_sample: f64,
}

// === impl Serve ===

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Runtime::new().map_err(Failure::runtime)?;
        let entered = runtime.enter();
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ];
        let signals = signals(kinds).map_err(Failure::runtime)?;
        drop(entered);
        watchdog::start().map_err(Failure::runtime)?;
        let result = runtime.block_on(async {
            let logs = logging::start(&self.log.options());
            let logs = logs.map_err(|error| Failure::Usage(error.into()))?;
            let flags = Flags {
                insecure_admin: self.insecure_admin,
                insecure_grpc: self.insecure_grpc,
                parents: self.parents.clone(),
            };
            let result = match load(&self.config, flags) {
                Ok(config) => self.serve(config, signals).await.map_err(Failure::Runtime),
                Err(failure) => Err(failure),
            };
            logs.end().await;
            result
        });
        // Dropping it would wait for a thread that hangs.
        runtime.shutdown_timeout(BLOCKED_GRACE);
        result
    }

    async fn serve(self, config: Config, signals: [Signal; 3]) -> anyhow::Result<()> {
        let [mut terminate, mut interrupt, mut hangup] = signals;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let given = self.epoch.map(|epoch| RunEpoch::Exactly(Epoch(epoch)));
        let epoch = given.unwrap_or_else(|| RunEpoch::AtLeast(epoch_of_this_start()));
        let start = if self.skip_learning {
            Start::Fresh
        } else {
            Start::Learning
        };
        raise_file_limit();
        let listeners = Listeners::bind(config.listen).await?;
        let listen = listeners.addresses()?;
        let limits = config.catalog.limits.count();
        tracing::info!(?start, limits, "coordinator: starting");
        let mut shutdown = pin!(shutdown);
        let server = tokio::select! {
            server = Server::new(listeners, config, epoch, start) => server?,
            // It may be waiting for an etcd that does not come.
            () = &mut shutdown => return Ok(()),
        };
        let reloads = server.reloads();
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                // One that does not fit: the file will be looked at anyway.
                let _ = reloads.try_send(());
            }
        });
        announce(listen)?;
        server.run(shutdown).await?;
        tracing::info!("coordinator: stopped");
        Ok(())
    }
}

// === impl Log ===

impl Log {
    fn options(&self) -> Options {
        let endpoint = self.otlp_endpoint.clone();
        Options {
            filter: self.log.clone(),
            format: match &*self.log_format {
                "json" => Format::Json,
                _ => Format::Text,
            },
            otlp: endpoint.filter(|url| !url.is_empty()).map(|endpoint| Otlp {
                endpoint,
                sample: self.otlp_sample,
            }),
        }
    }
}

// === free functions ===

/// Writes the line that says that both ports are open.
fn announce(listen: Listen) -> io::Result<()> {
    let Listen { grpc, http } = listen;
    let mut out = io::stdout().lock();
    writeln!(out, "tollgate ready grpc={grpc} http={http}")?;
    out.flush()
}

/// Raises the number of files that the process may have open to the most that the system allows it:
/// each connection is one, and the usual first limit is 1024.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, now = limit.current, "coordinator: cannot raise the limit of open files");
    }
}

fn parent(text: &str) -> Result<String, String> {
    let address = parent_address(text, text.starts_with("https://"));
    address.ok_or_else(|| "is not an address like root:7710 or https://root:7710".to_owned())
}
