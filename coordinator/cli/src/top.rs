//! `tollgate top`: the busiest resources, live.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use tollgate_admin::view::Status;
use tollgate_core::units::Instant;
use tollgate_net::clock::Clock;

use self::keys::{KeyEffect, TopView};
use crate::client::{Call, Client, Reply};
use crate::failure::Failure;
use crate::print;

mod keys;
mod screen;

/// The shortest interval: each look scans all lease tables.
const INTERVAL_MIN: Duration = Duration::from_millis(200);

/// The longest time until a signal ends it.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

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

// === impl Top ===

impl Top {
    pub(crate) fn run(self, client: &Client, json: bool) -> Result<(), Failure> {
        if self.once {
            let reply = self.look(client, self.rows)?;
            if json {
                return print::json(&reply.body);
            }
            return print::lines(&screen::text(client.server(), &reply.read()?));
        }
        if json || !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
            let text = "live only on a terminal and without --json: say --once";
            return Err(Failure::usage(anyhow!(text)));
        }
        let is_ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            signal_hook::flag::register(signal, is_ended.clone()).map_err(Failure::runtime)?;
        }
        // The first look without the terminal: wrong options fail as in any other command.
        let status = self.look(client, self.rows)?.read()?;
        let watched = ratatui::try_init()
            .and_then(|mut terminal| self.watch(&mut terminal, client, status, &is_ended));
        ratatui::restore();
        watched.map_err(Failure::runtime)
    }

    fn look(&self, client: &Client, rows: u8) -> Result<Reply, Failure> {
        let path = format!("/v1/status?resources={rows}&clients=1");
        client.send(Call::get(path))
    }

    /// Draws until the user quits. A coordinator that is away does not end it.
    fn watch(
        &self,
        terminal: &mut DefaultTerminal,
        client: &Client,
        first: Status,
        is_ended: &AtomicBool,
    ) -> io::Result<()> {
        let clock = Clock::start();
        let mut status: Result<Status, String> = Ok(first);
        let mut view = TopView::default();
        let mut due = clock.now().saturating_add(self.interval);
        loop {
            let server = client.server();
            terminal.draw(|frame| screen::draw(frame, &view, self.rows.into(), server, &status))?;
            let effect = match wait(clock, due, is_ended)? {
                _ if is_ended.load(Ordering::Relaxed) => KeyEffect::Quit,
                Some(Event::Key(key)) => view.press(key),
                // The terminal has another size.
                Some(_) => KeyEffect::Redraw,
                None if view.is_paused => {
                    due = clock.now().saturating_add(self.interval);
                    KeyEffect::Redraw
                }
                None => KeyEffect::Look,
            };
            match effect {
                KeyEffect::Quit => return Ok(()),
                KeyEffect::Redraw => continue,
                KeyEffect::Look => {}
            }
            let rows = if view.is_plain() { self.rows } else { ROWS_MAX };
            let reply = self.look(client, rows).and_then(|reply| reply.read());
            status = reply.map_err(|failure| format!("{:#}", failure.into_parts().0));
            due = clock.now().saturating_add(self.interval);
        }
    }
}

// === free functions ===

/// Returns the next event of the terminal; `None` if the next look is due or the user ends it.
fn wait(clock: Clock, due: Instant, is_ended: &AtomicBool) -> io::Result<Option<Event>> {
    while !is_ended.load(Ordering::Relaxed) {
        let left = due.saturating_since(clock.now());
        if event::poll(left.min(SIGNAL_INTERVAL))? {
            return event::read().map(Some);
        }
        if left.is_zero() {
            break;
        }
    }
    Ok(None)
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if interval < INTERVAL_MIN {
        return Err("is less than 200ms".to_owned());
    }
    Ok(interval)
}
