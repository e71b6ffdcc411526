//! `tollgate top`: the busiest resources, live.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};
use tollgate_coordinator::api::rest::view::Status;

use self::terminal::Terminal;
use crate::client::{Call, Client, Reply};
use crate::failure::Failure;
use crate::print;
use crate::watchdog::signals;

mod screen;
mod terminal;

/// The shortest interval: each look scans all lease tables.
const INTERVAL_MIN: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  tollgate top
      Every two seconds; q quits.
  tollgate top --once --rows 5
      Once, also without a terminal.
  tollgate top --once --json | jq '.busiest[0]'";

/// Show the resources that are most in demand, live; in a cluster, those of all nodes.
///
/// First those of whose capacity the largest part is wanted. The bar shows what clients have (█)
/// and want (▒) of what the limit that binds leaves them; `!` says that more than all of it is wanted.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Top {
    /// The interval, such as `500ms` or `5s`.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,

    /// Look once and end.
    #[arg(long)]
    once: bool,

    /// The most resources.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=200))]
    rows: u8,
}

/// Events that wake the display.
struct Wakes {
    ticks: Interval,
    keys: mpsc::Receiver<u8>,
    signals: [Signal; 4],
}

// === impl Top ===

impl Top {
    pub(crate) fn run(self, client: Client, json: bool) -> Result<(), Failure> {
        if self.once {
            let reply = self.look(&client)?;
            if json {
                return print::json(&reply.body);
            }
            let status = Ok(reply.read()?);
            return print::lines(&screen::text(client.server(), &status, None));
        }
        if json || !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
            let text = "live only on a terminal and without --json: say --once";
            return Err(Failure::usage(anyhow!(text)));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        runtime
            .map_err(Failure::runtime)?
            .block_on(self.watch(Arc::new(client)))
    }

    fn look(&self, client: &Client) -> Result<Reply, Failure> {
        let path = format!("/v1/status?resources={}&clients=1", self.rows);
        client.send(Call::get(path))
    }

    /// Draws until the user quits. A coordinator that is away does not end it.
    async fn watch(self, client: Arc<Client>) -> Result<(), Failure> {
        let mut wakes = Wakes::new(self.interval).map_err(Failure::runtime)?;
        let top = Arc::new(self);
        // The first look without the terminal: what is wrong with the options is said as ever.
        let mut status: Result<Status, String> = Ok(top.look(&client)?.read()?);
        let terminal = Terminal::enter().map_err(Failure::runtime)?;
        loop {
            let size = terminal.size();
            let text = screen::text(client.server(), &status, Some(size));
            terminal.draw(&text).map_err(Failure::runtime)?;
            if !wakes.next().await {
                return Ok(());
            }
            let (again, its) = (top.clone(), client.clone());
            let look = tokio::task::spawn_blocking(move || again.look(&its)?.read());
            status = match look.await.map_err(Failure::runtime)? {
                Ok(status) => Ok(status),
                Err(failure) => Err(format!("{:#}", failure.into_parts().0)),
            };
        }
    }
}

// === impl Wakes ===

impl Wakes {
    fn new(interval: Duration) -> io::Result<Self> {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ];
        Ok(Self {
            ticks,
            keys: terminal::keys(),
            signals: signals(kinds)?,
        })
    }

    /// Resolves when it is time for the next look, or with false when the user quits.
    async fn next(&mut self) -> bool {
        let [interrupt, terminate, hangup, quit] = &mut self.signals;
        loop {
            tokio::select! {
                _ = self.ticks.tick() => return true,
                key = self.keys.recv() => match key {
                    None | Some(b'q' | b'Q') => return false,
                    Some(b' ' | b'r') => return true,
                    Some(_) => {}
                },
                _ = interrupt.recv() => return false,
                _ = terminate.recv() => return false,
                _ = hangup.recv() => return false,
                _ = quit.recv() => return false,
            }
        }
    }
}

// === free functions ===

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if interval < INTERVAL_MIN {
        return Err("is less than 200ms".to_owned());
    }
    Ok(interval)
}
