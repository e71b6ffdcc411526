//! Attacks on a coordinator's listeners, and what a good client notices of them.
//!
//! Each attack has a coordinator process of its own, on loopback only, and a bounded number of
//! connections; it ends by itself. `TOLLGATE_BIN` names another binary to compare with.

mod attackers;
mod bodies;
mod client;
mod table;
mod tls;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate_tests::coordinator::Coordinator;

use crate::attackers::Attack;
use crate::client::{Targets, Watch};
use crate::table::Row;
use crate::tls::Trust;

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Attacks on a coordinator on loopback: its memory, and how long and how late good clients are served.
#[derive(Debug, Parser)]
struct Options {
    /// How long each attack lasts.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How long after it memory is measured.
    #[arg(long, default_value_t = 10)]
    rest: u64,
    /// Only the attacks with these words in their names.
    #[arg(value_name = "NAME")]
    only: Vec<String>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    let mut rows = Vec::new();
    for attack in Attack::ALL {
        let name = attack.name();
        if options.only.is_empty() || options.only.iter().any(|only| name.contains(only.as_str())) {
            let dir = TempDir::new()?;
            let row = runtime.block_on(run(dir.path(), attack, &options));
            rows.push(row.with_context(|| format!("during the attack {name}"))?);
        }
    }
    table::print(&rows)
}

async fn run(dir: &Path, attack: Attack, options: &Options) -> Result<Row> {
    let trust = attack.needs_tls().then(|| Trust::new(dir)).transpose()?;
    let tls = trust.as_ref().map_or(String::new(), Trust::section);
    let config = format!("{tls}limits: [{{match: '*', requests: {{rate: 1000000}}}}]\n");
    let coordinator = Coordinator::start(dir, &config).await?;
    let targets = Targets {
        grpc: coordinator.grpc(),
        http: coordinator.http(),
        trust,
    };
    let before = coordinator.process.memory_bytes()?;
    let watch = Watch::start(&targets);
    let mut attackers = JoinSet::new();
    attack.start(&mut attackers, &targets);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut peak = before;
    while Instant::now() < end {
        sleep(LOOK).await;
        peak = peak.max(coordinator.process.memory_bytes()?);
    }
    let seen = watch.stop().await;
    attackers.shutdown().await;
    sleep(Duration::from_secs(options.rest)).await;
    Ok(Row {
        attack: attack.name(),
        memory: [before, peak, coordinator.process.memory_bytes()?],
        seen,
    })
}
