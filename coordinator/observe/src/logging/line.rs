//! One event, one line, whatever is in it.
//!
//! Text logs show many values as they are, and some of them come out of requests: a scope's id, an
//! error that quotes its input. A line break among them would let whoever sent it write lines of
//! the log. The formatter takes the other control characters out; this takes the rest.

use std::borrow::Cow;
use std::io::{self, Write};

/// Standard error, to which each write is one event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines;

// === impl Lines ===

impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(&one_line(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

// === free functions ===

/// `event` with one line break, at its end. Escapes stay: here they are the formatter's own
/// colours, as it writes those of values as text.
fn one_line(event: &[u8]) -> Cow<'_, [u8]> {
    let body = event.strip_suffix(b"\n").unwrap_or(event);
    if !body.iter().any(|&byte| breaks(byte)) {
        return Cow::Borrowed(event);
    }
    let mut line = Vec::with_capacity(event.len() + 16);
    for &byte in body {
        if breaks(byte) {
            line.extend(byte.escape_ascii());
        } else {
            line.push(byte);
        }
    }
    line.push(b'\n');
    Cow::Owned(line)
}

/// Whether `byte` is a control character that is not part of a longer one in UTF-8 and not the
/// escape of a colour.
fn breaks(byte: u8) -> bool {
    byte.is_ascii_control() && byte != 0x1b
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let rows = [
            (
                "fine: ü → \u{1b}[2mdim\u{1b}[0m\n",
                "fine: ü → \u{1b}[2mdim\u{1b}[0m\n",
            ),
            (
                "scope=a\n2026 INFO forged\n",
                "scope=a\\n2026 INFO forged\n",
            ),
            ("a\r\nb\tc\0d\u{7f}\n\n", "a\\r\\nb\\tc\\x00d\\x7f\\n\n"),
            ("", ""),
        ];
        for (event, want) in rows {
            assert_eq!(one_line(event.as_bytes()), want.as_bytes(), "{event:?}");
        }
    }
}
