//! Texts and numbers as they stand on the page.

use std::fmt::{self, Write as _};

use crate::leases::view::Amount;

/// A text that stands for itself in HTML, between tags and in quoted attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            // A change of a text's direction could make one scope look like another.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => f.write_char('\u{fffd}'),
            c => f.write_char(c),
        })
    }
}

/// An amount of `unit`, as people write it.
pub(super) fn amount(unit: &str, amount: Amount) -> String {
    match amount {
        Amount::Unlimited => "unlimited".to_owned(),
        Amount::Number(value) if unit.ends_with("_bytes") => bytes(value),
        Amount::Number(value) => number(value),
    }
}

/// A number with at most one decimal, and a space between thousands.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let mut out = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    out
}

/// A number of bytes in the unit that suits it.
fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut name = units[0];
    for next in &units[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        name = next;
    }
    format!("{} {name}", number(value))
}

/// A duration in its two largest units.
pub(super) fn duration(ms: u64) -> String {
    let s = ms / 1000;
    let (d, h, m) = (s / 86_400, s / 3600 % 24, s / 60 % 60);
    match (d, h, m) {
        (0, 0, 0) if s < 10 => format!("{s}.{} s", ms % 1000 / 100),
        (0, 0, 0) => format!("{s} s"),
        (0, 0, _) => format!("{m} min {} s", s % 60),
        (0, ..) => format!("{h} h {m} min"),
        _ => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_place() {
        let rows = [
            ("tenant/acme", "tenant/acme"),
            ("<script>", "&lt;script&gt;"),
            ("\" onload='x'", "&quot; onload=&#39;x&#39;"),
            ("a&lt;b", "a&amp;lt;b"),
            ("bücher/日本", "bücher/日本"),
            ("a\u{202e}b", "a\u{fffd}b"),
        ];
        for (text, want) in rows {
            assert_eq!(Escaped(text).to_string(), want);
        }
    }

    #[test]
    fn amounts_are_as_people_write_them() {
        let rows = [
            ("requests", 0.0, "0"),
            ("requests", 999.95, "1\u{202f}000"),
            ("requests", 1_234_567.25, "1\u{202f}234\u{202f}567.2"),
            ("request_bytes", 1023.0, "1\u{202f}023 B"),
            ("response_bytes", 52_428_800.0, "50 MiB"),
            ("request_bytes", 1e18, "909\u{202f}494.7 TiB"),
        ];
        for (unit, value, want) in rows {
            assert_eq!(amount(unit, Amount::Number(value)), want, "{value}");
        }
        assert_eq!(amount("requests", Amount::Unlimited), "unlimited");
    }

    #[test]
    fn durations_have_two_units() {
        let rows = [
            (0, "0.0 s"),
            (9_950, "9.9 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ];
        for (ms, want) in rows {
            assert_eq!(duration(ms), want, "{ms}");
        }
    }
}
