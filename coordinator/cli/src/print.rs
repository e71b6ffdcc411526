//! Output on a terminal and in a pipe.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, UNIX_EPOCH};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use tollgate_admin::view::Amount;

use crate::failure::Failure;

/// Rows under a header, on standard output: with lines on a terminal, else in plain columns.
pub(crate) fn table(header: &str, rows: Vec<Vec<String>>) -> Result<(), Failure> {
    let text = render(header, rows, io::stdout().is_terminal());
    lines(&text)
}

/// The text of a table, whose header has a `|` between two columns.
pub(crate) fn render(header: &str, rows: Vec<Vec<String>>, ruled: bool) -> String {
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Disabled);
    let header: Vec<&str> = header.split('|').collect();
    let numbers = columns_of_numbers(header.len(), &rows);
    table.set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| plain(cell)).collect::<Vec<_>>());
    }
    table.load_style(match ruled {
        true => presets::UTF8_FULL_CONDENSED,
        false => presets::NOTHING,
    });
    for (column, numbers) in table.column_iter_mut().zip(numbers) {
        if numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if !ruled {
            column.set_padding((0, 2));
        }
    }
    let rows: Vec<String> = table.lines().collect();
    let rows: Vec<&str> = rows.iter().map(|row| row.trim_end()).collect();
    rows.join("\n")
}

/// Writes `value` as JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    lines(&text.map_err(Failure::runtime)?)
}

/// Writes `value` as YAML to standard output, in the words of the configuration file.
pub(crate) fn yaml(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_saphyr::to_string(value);
    lines(text.map_err(Failure::runtime)?.trim_end())
}

/// `text` and a line break on standard output.
pub(crate) fn lines(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    match written {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::runtime),
    }
}

/// Writes `text` to standard error, after the command's name.
pub(crate) fn note(text: &str) {
    let lines: Vec<String> = text.lines().map(plain).collect();
    // A failure has no other place to go to.
    let _ = writeln!(io::stderr(), "tollgate: {}", lines.join("\n"));
}

/// `text` without what a terminal would obey: names come out of requests.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || turns(character) {
            plain.extend(character.escape_unicode());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Whether `character` changes the direction of what follows, so that a line reads as another.
fn turns(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns an amount of `unit` in few digits.
pub(crate) fn amount(unit: &str, amount: Amount) -> String {
    match amount {
        Amount::Unlimited => "unlimited".to_owned(),
        Amount::Number(value) => number(unit, value),
    }
}

/// Returns `value`, or a dash if there is none.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// `number` of `unit` in at most five digits; bytes in the powers that the configuration knows.
pub(crate) fn number(unit: &str, number: f64) -> String {
    const BYTES: [&str; 5] = ["", "KiB", "MiB", "GiB", "TiB"];
    const OTHERS: [&str; 5] = ["", "k", "M", "G", "T"];
    let (step, suffixes, from) = if unit.ends_with("_bytes") {
        (1024.0, BYTES, 1024.0)
    } else {
        (1000.0, OTHERS, 100_000.0)
    };
    let mut power = 0;
    let mut left = number;
    if left >= from {
        while left >= step && power + 1 < suffixes.len() {
            left /= step;
            power += 1;
        }
    }
    let digits = if left < 10.0 { 100.0 } else { 10.0 };
    let left = (left * digits).round() / digits;
    format!("{left}{}", suffixes.get(power).copied().unwrap_or_default())
}

/// A time in seconds since 1970, as a date.
pub(crate) fn time(since_1970: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(since_1970));
    let time = time.map(|time| humantime::format_rfc3339_seconds(time).to_string());
    time.unwrap_or_else(|| since_1970.to_string())
}

/// A number of milliseconds as a person would say it.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..10 => format!("{:.1}s", ms as f64 / 1000.0),
        10..120 => format!("{seconds}s"),
        120..7200 => format!("{}m{}s", seconds / 60, seconds % 60),
        7200..172_800 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Returns which columns have nothing but numbers.
fn columns_of_numbers(columns: usize, rows: &[Vec<String>]) -> Vec<bool> {
    let starts = |cell: &String| cell.starts_with(|first: char| first.is_ascii_digit());
    let words = ["-", "unlimited"];
    let number = |cell: &String| starts(cell) || words.contains(&cell.as_str());
    let all = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        rows.iter().any(|row| row.get(column).is_some_and(starts)) && cells.all(number)
    };
    (0..columns).map(all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_a_pipe_is_plain_columns() {
        let rows = vec![
            vec!["tenant/acme".to_owned(), "100".to_owned()],
            vec!["a\u{1b}[2J".to_owned(), "7.5".to_owned()],
        ];
        let want = "SCOPE        HAS\ntenant/acme  100\na\\u{1b}[2J   7.5";
        assert_eq!(render("SCOPE|HAS", rows, false), want);
    }

    #[test]
    fn numbers_are_short_and_bytes_are_bytes() {
        let rows = [
            ("requests", 0.0, "0"),
            ("requests", 12.345, "12.3"),
            ("requests", 1.234, "1.23"),
            ("requests", 99_999.0, "99999"),
            ("requests", 100_000.0, "100k"),
            ("requests", 2_500_000.0, "2.5M"),
            ("request_bytes", 1023.0, "1023"),
            ("response_bytes", 52_428_800.0, "50MiB"),
            ("request_bytes", 1e18, "909494.7TiB"),
        ];
        for (unit, value, want) in rows {
            assert_eq!(number(unit, value), want);
        }
    }

    #[test]
    fn durations_have_two_parts_at_most() {
        let rows = [
            (0, "0.0s"),
            (9_940, "9.9s"),
            (61_000, "61s"),
            (150_000, "2m30s"),
            (7_260_000, "2h1m"),
            (180_000_000, "2d2h"),
        ];
        for (ms, want) in rows {
            assert_eq!(duration(ms), want);
        }
    }
}
