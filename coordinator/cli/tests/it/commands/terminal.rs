//! `tollgate top` on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use vt100::Parser;

use super::Server;

const ROWS: NonZeroU16 = NonZeroU16::new(10).unwrap();
const COLUMNS: NonZeroU16 = NonZeroU16::new(80).unwrap();

/// Columns of a terminal that a user has made narrow.
const NARROW: NonZeroU16 = NonZeroU16::new(40).unwrap();

/// Time between two looks at the screen, and the most looks.
const WAIT: Duration = Duration::from_millis(5);
const WAITS_MAX: u32 = 4000;

/// A terminal, and its user.
struct Terminal {
    /// The user's end.
    keyboard: File,
    /// The program's end.
    inside: File,
    emulator: Arc<Mutex<Parser>>,
}

// === impl Terminal ===

impl Terminal {
    fn open() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let keyboard = openpt(flags).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let inside = ioctl_tiocgptpeer(&keyboard, flags).unwrap().into();
        let keyboard = File::from(keyboard);
        let mut screen = keyboard.try_clone().unwrap();
        let emulator = Arc::new(Mutex::new(Parser::new(ROWS, COLUMNS, 0)));
        let shown = emulator.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len) = screen.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..len]);
            }
        });
        let terminal = Self {
            keyboard,
            inside,
            emulator,
        };
        terminal.resize(COLUMNS);
        terminal
    }

    fn resize(&self, columns: NonZeroU16) {
        let size = Winsize {
            ws_col: columns.get(),
            ws_row: ROWS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        self.emulator().set_size(ROWS, columns);
        tcsetwinsize(&self.inside, size).unwrap();
    }

    /// Runs `tollgate top` with this terminal as that of its session.
    fn run(&self, server: &str) -> Child {
        let end = || self.inside.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_tollgate"), "top"]);
        command.args(["--interval", "200ms", "--server", server]);
        command.stdin(end()).stdout(end()).stderr(end());
        command.spawn().unwrap()
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn emulator(&self) -> MutexGuard<'_, Parser> {
        self.emulator.lock().unwrap()
    }

    /// Waits until `is_shown` is true of the lines.
    fn wait(&self, is_shown: impl Fn(&[String]) -> bool) {
        let mut lines: Vec<String> = Vec::new();
        for _ in 0..WAITS_MAX {
            let emulator = self.emulator();
            let rows = emulator.screen().rows(0, COLUMNS.get());
            lines = rows.map(|row| row.trim_end().to_owned()).collect();
            drop(emulator);
            if is_shown(&lines) {
                return;
            }
            std::thread::sleep(WAIT);
        }
        panic!("not shown: {lines:#?}");
    }

    /// Waits until the line at `at` begins with `text`.
    fn wait_for(&self, at: usize, text: &str) {
        self.wait(|lines| lines[at].starts_with(text));
    }

    /// Waits until the first resource and the keys begin with these texts.
    fn wait_for_resource(&self, first: &str, keys: &str) {
        self.wait(|lines| lines[3].starts_with(first) && lines[9].starts_with(keys));
    }

    /// Presses `q` until the program ends: a key that comes together with a resize is read with the next one.
    fn quit(&mut self, top: &mut Child) {
        for waits in 0..WAITS_MAX {
            if top.try_wait().unwrap().is_some() {
                break;
            }
            if waits % 100 == 0 {
                self.press("q");
            }
            std::thread::sleep(WAIT);
        }
        self.wait_for_end(top);
    }

    /// Waits until the program ends, which leaves the terminal as it was.
    fn wait_for_end(&self, top: &mut Child) {
        assert_eq!(top.wait().unwrap().code(), Some(0));
        while self.emulator().screen().alternate_screen() {
            std::thread::sleep(WAIT);
        }
        let is_hidden = self.emulator().screen().hide_cursor();
        assert!(self.echoes() && !is_hidden);
    }

    fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.inside).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }
}

#[tokio::test]
async fn top_restores_the_terminal_however_it_ends() {
    let server = Server::start();
    let names: Vec<String> = (0..20).map(|i| format!("tenant/t{i:02}")).collect();
    let clients: Vec<_> = names
        .iter()
        .map(|name| ("envoy-1/a", name.as_str(), 10.0))
        .collect();
    server.refresh(&clients).await;
    for end in ["q", "\u{3}", "INT", "TERM", "HUP"] {
        let mut terminal = Terminal::open();
        let mut top = terminal.run(&server.url);
        terminal.wait_for_resource("tenant/t00", "s sort");
        terminal.wait(|lines| lines[9].ends_with("20 of 20 resources"));
        assert!(!terminal.echoes(), "keys are shown");
        assert!(terminal.emulator().screen().alternate_screen());
        if end.len() == 1 {
            terminal.press("x");
            terminal.press(end);
        } else {
            let pid = top.id().to_string();
            let kill = Command::new("kill").args(["-s", end, &pid]).status();
            assert!(kill.unwrap().success());
        }
        terminal.wait_for_end(&mut top);
    }
}

#[tokio::test]
async fn top_sorts_filters_and_pauses_by_the_keys_that_it_shows() {
    let server = Server::start();
    let clients = [
        ("envoy-1/a", "tenant/acme", 90.0),
        ("envoy-1/a", "tenant/bee", 250.0),
        ("envoy-1/a", "route/x", 7.0),
    ];
    server.refresh(&clients).await;
    let mut terminal = Terminal::open();
    let mut top = terminal.run(&server.url);
    let keys = "s sort [demand]   / filter   p pause   r now   q quit   3 of 3 resources";
    terminal.wait_for_resource("tenant/acme", keys);
    terminal.press("s");
    terminal.wait_for_resource("tenant/bee", "s sort [wants]");
    terminal.press("/route\r");
    let keys = "s sort [wants]   / filter [route]   p pause   r now   q quit   1 of 3 resources";
    terminal.wait_for_resource("route/x", keys);

    terminal.press("p");
    let paused = "s sort [wants]   / filter [route]   p go on   r now   q quit";
    terminal.wait_for_resource("route/x", &format!("{paused}   1 of 3 resources"));
    server.refresh(&[("envoy-2/b", "route/y", 1000.0)]).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    terminal.wait_for_resource("route/x", &format!("{paused}   1 of 3 resources"));
    terminal.press("r");
    terminal.wait_for_resource("route/y", &format!("{paused}   2 of 4 resources"));
    terminal.press("pq");
    terminal.wait_for_end(&mut top);
}

#[tokio::test]
async fn top_fits_wide_names_and_a_terminal_that_becomes_narrow() {
    let server = Server::start();
    server.refresh(&[("envoy-1/a", "日本/acme", 90.0)]).await;
    let mut terminal = Terminal::open();
    let mut top = terminal.run(&server.url);
    terminal.wait_for_resource("日本/acme  requests", "s sort");
    terminal.resize(NARROW);
    terminal.wait(|lines| {
        lines[3].starts_with("日本/acme  requests")
            && lines[9] == "s sort [demand]   / filter   p pause   r"
    });
    terminal.quit(&mut top);
}

#[tokio::test]
async fn top_outlives_the_coordinator_and_says_that_it_is_away() {
    let server = Server::start();
    let mut terminal = Terminal::open();
    let url = server.url.clone();
    let mut top = terminal.run(&url);
    terminal.wait_for(2, "no client has or wants a lease");
    drop(server);
    terminal.wait_for(2, &format!("no answer from {url}"));
    terminal.quit(&mut top);
}
