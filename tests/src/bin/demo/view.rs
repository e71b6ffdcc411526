//! The live table: redrawn in place in a terminal, plain lines in a pipe.

use std::io::{Result, Write};

use crate::fleet::{DemoSnapshot, ENVOYS, TenantRow};

/// Moves the cursor up some lines and clears from there.
fn rewind(lines: usize) -> String {
    format!("\x1b[{lines}A\x1b[J")
}

/// Output of the demo.
pub(crate) struct View<W> {
    out: W,
    live: bool,
    /// Number of lines of the table to redraw.
    drawn: usize,
}

// === impl View ===

impl<W: Write> View<W> {
    pub(crate) fn new(out: W, live: bool) -> Self {
        Self {
            out,
            live,
            drawn: 0,
        }
    }

    /// Shows one line, below the current output.
    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        self.drawn = 0;
        writeln!(self.out, "{line}")
    }

    /// Shows a snapshot, in place of the previous one in a terminal.
    pub(crate) fn show(&mut self, snapshot: &DemoSnapshot) -> Result<()> {
        if self.live && self.drawn > 0 {
            write!(self.out, "{}", rewind(self.drawn))?;
        }
        let lines = table(snapshot);
        for line in &lines {
            writeln!(self.out, "{line}")?;
        }
        self.drawn = lines.len();
        self.out.flush()
    }
}

fn table(snapshot: &DemoSnapshot) -> Vec<String> {
    let [east, west] = ENVOYS;
    let mut lines = vec![
        String::new(),
        format!(
            "{:>5.1} s, requests per second{}",
            snapshot.at.as_secs_f64(),
            snapshot.note
        ),
        format!(
            "{:<7} {:>8} {:>8} {:>8} {:>8} {:>10} {:>10} {:>18}",
            "tenant",
            "wanted",
            "admitted",
            "refused",
            "waiting",
            format!("lease {east}"),
            format!("lease {west}"),
            "sum of capacity",
        ),
    ];
    lines.extend(snapshot.rows.iter().map(line));
    lines
}

fn line(row: &TenantRow) -> String {
    let leases: String = row
        .leases
        .iter()
        .map(|lease| format!(" {lease:>10.1}"))
        .collect();
    let sum: f64 = row.leases.iter().sum();
    let capacity = row.tenant.capacity;
    format!(
        "{:<7} {:>8.0} {:>8.0} {:>8.0} {:>8}{leases} {:>18}",
        row.tenant.name,
        row.wanted,
        row.admitted,
        row.refused,
        row.waiting,
        format!(
            "{sum:.0} of {capacity:.0} ({:.0} %)",
            100.0 * sum / capacity
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shown(live: bool) -> String {
        let mut out = Vec::new();
        let mut view = View::new(&mut out, live);
        view.line("begin").unwrap();
        for seconds in [1, 2] {
            view.show(&DemoSnapshot {
                at: Duration::from_secs(seconds),
                note: "",
                rows: Vec::new(),
            })
            .unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_pipe_gets_plain_lines() {
        let text = shown(false);
        assert!(!text.contains('\x1b'), "{text:?}");
        assert_eq!(text.matches("requests per second").count(), 2);
    }

    #[test]
    fn a_terminal_gets_one_table_drawn_over() {
        let text = shown(true);
        assert_eq!(text.matches("\x1b[3A\x1b[J").count(), 1, "{text:?}");
        assert!(
            text.starts_with("begin\n\n"),
            "the first line stays: {text:?}"
        );
    }
}
