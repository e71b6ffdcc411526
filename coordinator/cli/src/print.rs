//! Output on a terminal and in a pipe.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

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
    table.load_style(if ruled {
        presets::UTF8_FULL_CONDENSED
    } else {
        presets::NOTHING
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

/// Returns `value`, or a dash if there is none.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
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
}
