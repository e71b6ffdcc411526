//! The terminal while `tollgate top` has it.

use std::io::{self, Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use super::screen::Size;

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// To the top left; the rest of a line, and of the screen, empty.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const END_OF_SCREEN: &str = "\x1b[J";

/// Where no terminal says how large it is.
const SIZE_UNKNOWN: Size = Size {
    columns: 80,
    rows: 24,
};

/// The terminal's other screen; dropping it restores what was there.
#[derive(Debug)]
pub(super) struct Terminal {
    before: Termios,
}

// === impl Terminal ===

impl Terminal {
    /// Switches to the other screen, with keys that come at once and are not shown. Ctrl-C still
    /// makes a signal.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        // From here on a failure restores, too.
        let terminal = Self { before };
        write(ENTER)?;
        Ok(terminal)
    }

    /// How large it is now.
    pub(super) fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size {
                columns: size.ws_col.into(),
                rows: size.ws_row.into(),
            },
            _ => SIZE_UNKNOWN,
        }
    }

    /// Shows `text` in one write, so that nothing flickers.
    pub(super) fn draw(&self, text: &str) -> io::Result<()> {
        let mut frame = HOME.to_owned();
        for line in text.lines() {
            frame.push_str(line);
            frame.push_str(END_OF_LINE);
        }
        frame.push_str(END_OF_SCREEN);
        write(&frame)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // If one fails, the other is still tried.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

// === free functions ===

/// The keys that are pressed. A thread waits for them, and ends with the process: nothing can wake
/// a read.
pub(super) fn keys() -> mpsc::Receiver<u8> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        for key in io::stdin().lock().bytes() {
            let Ok(key) = key else { return };
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receiver
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
