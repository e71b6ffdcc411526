//! `tollgate top` on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::Server;
use crate::binary::tollgate;

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// A terminal of 80 columns and 10 rows, and its user.
struct Terminal {
    /// Where what is typed goes in and what is shown comes out.
    outside: File,
    /// The other end, kept open so that its modes can be looked at.
    inside: File,
    shown: String,
}

// === impl Terminal ===

impl Terminal {
    fn open() -> Self {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap();
        let mut both = File::options();
        let inside = both.read(true).write(true).open(name.to_str().unwrap());
        let inside = inside.unwrap();
        let size = Winsize {
            ws_col: 80,
            ws_row: 10,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&inside, size).unwrap();
        Self {
            outside: outside.into(),
            inside,
            shown: String::new(),
        }
    }

    fn run(&self, args: &[&str]) -> Child {
        let end = || self.inside.try_clone().unwrap();
        let mut command = tollgate(args);
        command.stdin(end()).stdout(end()).stderr(end());
        command.spawn().unwrap()
    }

    /// Reads until `text` has been shown `times` times.
    fn wait_for(&mut self, text: &str, times: usize) {
        let mut bytes = [0; 4096];
        while self.shown.matches(text).count() < times {
            let len = self.outside.read(&mut bytes).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
    }

    /// Waits for a screen with `keys` in its last line, and returns the first resource there.
    fn first_row_above(&mut self, keys: &str) -> String {
        self.wait_for(keys, 1);
        let mut screens = self.shown.split("\u{1b}[H");
        let screen = screens.find(|screen| screen.contains(keys)).unwrap();
        screen.lines().nth(3).unwrap_or_default().to_owned()
    }

    fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.inside).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }
}

#[tokio::test]
async fn top_shows_what_is_new_and_restores_the_terminal_however_it_ends() {
    let server = Server::start();
    let names: Vec<String> = (0..20).map(|i| format!("tenant/t{i:02}")).collect();
    let clients: Vec<_> = names
        .iter()
        .map(|name| ("envoy-1/a", name.as_str(), 10.0))
        .collect();
    server.refresh(&clients).await;
    for end in ["q", "INT", "TERM", "HUP"] {
        let mut terminal = Terminal::open();
        let args = ["top", "--interval", "200ms", "--server", &server.url];
        let mut top = terminal.run(&args);
        terminal.wait_for("SCOPE", 3);
        assert!(!terminal.echoes(), "keys are shown");
        assert!(terminal.shown.starts_with(ENTER), "{:?}", terminal.shown);
        if end == "q" {
            terminal.outside.write_all(b"xq").unwrap();
        } else {
            let pid = top.id().to_string();
            let kill = Command::new("kill").args(["-s", end, &pid]).status();
            assert!(kill.unwrap().success());
        }
        terminal.wait_for(LEAVE, 1);
        assert_eq!(top.wait().unwrap().code(), Some(0), "{end}");
        assert!(terminal.echoes(), "{end} leaves the terminal as it was not");
        let frame = terminal.shown.split("\u{1b}[H").nth(1).unwrap();
        assert!(
            frame.contains("tenant/t00") && !frame.contains("tenant/t10"),
            "{frame:?}"
        );
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
    let mut top = terminal.run(&["top", "--interval", "200ms", "--server", &server.url]);
    let keys = "s sort [demand]   / filter   p pause   r now   q quit   3 of 3 resources";
    assert!(terminal.first_row_above(keys).starts_with("tenant/acme"));

    terminal.outside.write_all(b"s").unwrap();
    let row = terminal.first_row_above("s sort [wants]");
    assert!(row.starts_with("tenant/bee"), "{row}");

    terminal.outside.write_all(b"/route\n").unwrap();
    let keys = "/ filter [route]   p pause   r now   q quit   1 of 3 resources";
    let row = terminal.first_row_above(keys);
    assert!(row.starts_with("route/x"), "{row}");

    terminal.outside.write_all(b"p").unwrap();
    terminal.wait_for("p go on", 1);
    server.refresh(&[("envoy-2/b", "route/y", 1000.0)]).await;
    terminal.wait_for("p go on", 5);
    assert!(
        !terminal.shown.contains("of 4 resources"),
        "{:?}",
        terminal.shown
    );
    terminal.outside.write_all(b"r").unwrap();
    let row = terminal.first_row_above("2 of 4 resources");
    assert!(row.starts_with("route/y"), "{row}");
    terminal.outside.write_all(b"pq").unwrap();
    terminal.wait_for(LEAVE, 1);
    assert_eq!(top.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn top_outlives_the_coordinator_and_says_that_it_is_away() {
    let server = Server::start();
    let mut terminal = Terminal::open();
    let url = server.url.clone();
    let mut top = terminal.run(&["top", "--interval", "200ms", "--server", &url]);
    terminal.wait_for("no client has or wants a lease", 1);
    drop(server);
    terminal.wait_for(&format!("no answer from {url}"), 2);
    terminal.outside.write_all(b"q").unwrap();
    terminal.wait_for(LEAVE, 1);
    assert_eq!(top.wait().unwrap().code(), Some(0));
}
