//! Attacks on a coordinator's listeners, and their effect on good clients.
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
use crate::client::{GoodClients, Targets};
use crate::table::AttackRow;
use crate::tls::TlsTrust;

/// Interval between two readings of memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(50);

/// Attacks a coordinator on loopback; reports its memory, and the failures and latencies of good clients.
#[derive(Debug, Parser)]
struct Options {
    /// Length of each attack, in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Seconds after the attack at which memory is measured again.
    #[arg(long, default_value_t = 10)]
    rest: u64,
    /// Runs only the attacks with these words in their names.
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

async fn run(dir: &Path, attack: Attack, options: &Options) -> Result<AttackRow> {
    let trust = attack.needs_tls().then(|| TlsTrust::new(dir)).transpose()?;
    let tls = trust.as_ref().map_or(String::new(), TlsTrust::section);
    let config = format!(
        "{tls}limits: [{{match: '*', requests: {{rate: 1000000}}}}]\n\
         rlqs: {{domains: {{edge: {{scope: 'tenant/{{tenant}}'}}}}}}\n"
    );
    let coordinator = Coordinator::start(dir, &config).await?;
    let targets = Targets {
        grpc: coordinator.grpc(),
        http: coordinator.http(),
        trust,
    };
    let before = coordinator.process.memory_bytes()?;
    let good_clients = GoodClients::start(&targets);
    let mut attackers = JoinSet::new();
    attack.start(&mut attackers, &targets);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut peak = before;
    while Instant::now() < end {
        sleep(MEMORY_INTERVAL).await;
        peak = peak.max(coordinator.process.memory_bytes()?);
    }
    let clients = good_clients.stop().await;
    attackers.shutdown().await;
    sleep(Duration::from_secs(options.rest)).await;
    Ok(AttackRow {
        attack: attack.name(),
        memory: [before, peak, coordinator.process.memory_bytes()?],
        clients,
    })
}
