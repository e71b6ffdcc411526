//! From a header's value to the key of a scope.
//!
//! A key becomes part of a scope id, which travels to the coordinator, into logs and into tables
//! that people read, so what a stranger may put into a header is narrowed here: surrounding blanks
//! are dropped, and what is left must be 1 to [`KEY_LEN_MAX`] bytes of UTF-8 without control
//! characters. Anything else counts as missing, as an absent header does.

use crate::config::RULE_NAME_LEN_MAX;

/// The longest key, in bytes; a rule's name, a slash and a key fit into a scope id.
pub(crate) const KEY_LEN_MAX: usize = 200;

const _: () = assert!(RULE_NAME_LEN_MAX + 1 + KEY_LEN_MAX <= tollgate_core::lease::ID_LEN_MAX);

/// The key of the bucket that a rule's scopes share when the slot table is full.
pub(crate) const OVERFLOW: &str = "~overflow";

/// `value` without blanks and tabs around it.
///
/// Envoy has trimmed header values on HTTP/1 already; on HTTP/2 and 3 it has not.
#[inline]
pub(crate) fn trimmed(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    match (
        value.iter().position(|byte| !blank(byte)),
        value.iter().rposition(|byte| !blank(byte)),
    ) {
        (Some(first), Some(last)) => value.get(first..=last).unwrap_or_default(),
        _ => &[],
    }
}

/// A trimmed value as a key, or `None` if it cannot be one.
pub(crate) fn parsed(value: &[u8]) -> Option<&str> {
    if value.is_empty() || value.len() > KEY_LEN_MAX {
        return None;
    }
    let key = core::str::from_utf8(value).ok()?;
    (!key.chars().any(char::is_control)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_printable_text_of_bounded_length_is_a_key() {
        let longest = "x".repeat(KEY_LEN_MAX);
        let too_long = "x".repeat(KEY_LEN_MAX + 1);
        let rows: [(&[u8], Option<&str>); 12] = [
            (b"acme", Some("acme")),
            (b"  acme\t", Some("acme")),
            (b"a b", Some("a b")),
            ("b\u{fc}cher".as_bytes(), Some("b\u{fc}cher")),
            (longest.as_bytes(), Some(&longest)),
            (too_long.as_bytes(), None),
            (b"", None),
            (b" \t ", None),
            (b"a\nb", None),
            (b"a\x7f", None),
            ("\u{85}".as_bytes(), None),
            (b"\xff\xfe", None),
        ];
        for (value, want) in rows {
            assert_eq!(parsed(trimmed(value)), want, "{value:?}");
        }
    }
}
