//! `tollgate top`: the busiest resources, live.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};
use tollgate_admin::view::Status;

use self::keys::{KeyEffect, TopView};
use self::screen::Screen;
use self::terminal::Terminal;
use crate::client::{Call, Client, Reply};
use crate::failure::Failure;
use crate::print;
use crate::watchdog::signals;

mod keys;
mod screen;
mod terminal;

/// The shortest interval: each look scans all lease tables.
const INTERVAL_MIN: Duration = Duration::from_millis(200);

/// The most resources that a coordinator tells.
const ROWS_MAX: u8 = 200;

const EXAMPLES: &str = "\
Keys, which are on the screen, too:
  s      sorts by demand, wants, has, or name
  /      shows only scopes and units with a text in them; Enter keeps the filter, Esc ends it
  p      pauses, and goes on
  r      looks at once; so does the space bar
  q      quits

Examples:
  tollgate top
      Every two seconds, until q.
  tollgate top --once --rows 5
      Once, also without a terminal.
  tollgate top --once --json | jq '.busiest[0]'";

/// Show the resources that are most in demand, live; in a cluster, those of all nodes.
///
/// First those of whose capacity the largest part is wanted. The bar shows what clients have (█)
/// and want (▒) of what the limit that binds leaves them; `!` says that more than all of it is wanted.
/// Sorted or filtered, it is the 200 most in demand that are.
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

/// Event that wakes the display.
enum Wake {
    Tick,
    Key(u8),
    Quit,
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
            let reply = self.look(&client, self.rows)?;
            if json {
                return print::json(&reply.body);
            }
            let status = Ok(reply.read()?);
            return print::lines(&screen::text(client.server(), &status));
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

    fn look(&self, client: &Client, rows: u8) -> Result<Reply, Failure> {
        let path = format!("/v1/status?resources={rows}&clients=1");
        client.send(Call::get(path))
    }

    /// Draws until the user quits. A coordinator that is away does not end it.
    async fn watch(self, client: Arc<Client>) -> Result<(), Failure> {
        let mut wakes = Wakes::new(self.interval).map_err(Failure::runtime)?;
        let top = Arc::new(self);
        // The first look without the terminal: what is wrong with the options is said as ever.
        let mut status: Result<Status, String> = Ok(top.look(&client, top.rows)?.read()?);
        let terminal = Terminal::enter().map_err(Failure::runtime)?;
        let mut view = TopView::default();
        loop {
            let screen = Screen {
                view: &view,
                rows: top.rows.into(),
                size: terminal.size(),
            };
            let text = screen.text(client.server(), &status);
            terminal.draw(&text).map_err(Failure::runtime)?;
            let effect = match wakes.next().await {
                Wake::Tick if view.is_paused => KeyEffect::Ignored,
                Wake::Tick => KeyEffect::Look,
                Wake::Key(key) => view.press(key),
                Wake::Quit => KeyEffect::Quit,
            };
            match effect {
                KeyEffect::Quit => return Ok(()),
                KeyEffect::Redraw | KeyEffect::Ignored => continue,
                KeyEffect::Look => {}
            }
            let rows = if view.is_plain() { top.rows } else { ROWS_MAX };
            let (again, its) = (top.clone(), client.clone());
            let look = tokio::task::spawn_blocking(move || again.look(&its, rows)?.read());
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

    /// Resolves when it is time for the next look, when a key is pressed, or when the user ends it.
    async fn next(&mut self) -> Wake {
        let [interrupt, terminate, hangup, quit] = &mut self.signals;
        tokio::select! {
            _ = self.ticks.tick() => Wake::Tick,
            key = self.keys.recv() => key.map_or(Wake::Quit, Wake::Key),
            _ = interrupt.recv() => Wake::Quit,
            _ = terminate.recv() => Wake::Quit,
            _ = hangup.recv() => Wake::Quit,
            _ = quit.recv() => Wake::Quit,
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
