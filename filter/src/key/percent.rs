//! Percent-encoding (RFC 3986, section 2.1), undone once.

use std::borrow::Cow;

/// `text` with every `%XX` replaced by its byte; none if a `%` is not followed by two digits.
pub(super) fn decoded(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.contains(&b'%') {
        return Some(Cow::Borrowed(text));
    }
    let mut whole = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let (byte, after) = match first {
            b'%' => escaped(others)?,
            byte => (*byte, others),
        };
        whole.push(byte);
        rest = after;
    }
    Some(Cow::Owned(whole))
}

/// Like [`decoded`], but what is not an escape stays as it is.
pub(crate) fn decoded_leniently(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let mut whole = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let escape = escaped(others).filter(|_| *first == b'%');
        let (byte, after) = escape.unwrap_or((*first, others));
        whole.push(byte);
        rest = after;
    }
    Cow::Owned(whole)
}

/// The byte that two hexadecimal digits stand for, and what follows them.
fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_at_checked(2)?;
    let [high, low] = digits else { return None };
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = value(high)?.checked_mul(16)?.checked_add(value(low)?)?;
    Some((u8::try_from(byte).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_once() {
        let rows: [(&str, Option<&str>, &str); 7] = [
            ("acme", Some("acme"), "acme"),
            ("a%20b", Some("a b"), "a b"),
            ("%61%6D", Some("am"), "am"),
            ("%2541", Some("%41"), "%41"),
            ("50%", None, "50%"),
            ("%4", None, "%4"),
            ("%zz%41", None, "%zzA"),
        ];
        for (text, strictly, leniently) in rows {
            let text = text.as_bytes();
            assert_eq!(decoded(text).as_deref(), strictly.map(str::as_bytes));
            assert_eq!(*decoded_leniently(text), *leniently.as_bytes());
        }
    }
}
