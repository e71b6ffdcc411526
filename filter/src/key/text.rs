//! Values of other types as texts, and parts of texts.

use regex_lite::Regex;

use super::printable;

/// The largest whole number that is told as such: doubles have them exactly up to here.
const WHOLE_MAX: i64 = 1 << 53;

/// Returns a value of metadata, or of an expression, as a text: a number in digits, `true` or `false`.
///
/// Envoy hands over a number as the eight bytes of a double, or in expressions of a whole number, and a truth as
/// one. The two numbers are told apart by their size: a double whose bytes are a whole number of that size is no
/// number that somebody uses.
pub(super) fn of_value(value: Vec<u8>) -> Vec<u8> {
    if printable(&value).is_some() {
        return value;
    }
    let text = match value.as_slice() {
        [0] => "false".to_owned(),
        [1] => "true".to_owned(),
        bytes => match <[u8; 8]>::try_from(bytes) {
            Ok(bytes) => number(bytes),
            Err(_) => return value,
        },
    };
    text.into_bytes()
}

fn number(bytes: [u8; 8]) -> String {
    let whole = i64::from_le_bytes(bytes);
    let double = f64::from_le_bytes(bytes);
    if (-WHOLE_MAX..WHOLE_MAX).contains(&whole) {
        whole.to_string()
    } else if double.is_finite() {
        double.to_string()
    } else {
        String::new()
    }
}

/// Returns what the first group of `regex` matches in `text`, or without groups the whole match.
pub(super) fn part(text: &[u8], regex: &Regex) -> Option<Vec<u8>> {
    let captures = regex.captures(printable(text)?)?;
    let part = captures.get(1).or_else(|| captures.get(0))?;
    Some(part.as_str().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_truths_are_told_as_texts() {
        let double = |number: f64| number.to_le_bytes().to_vec();
        let whole = |number: i64| number.to_le_bytes().to_vec();
        let rows = [
            (b"acme".to_vec(), "acme"),
            (b"12345678".to_vec(), "12345678"),
            (double(42.0), "42"),
            (double(-7.0), "-7"),
            (double(0.5), "0.5"),
            (double(1e15), "1000000000000000"),
            (double(f64::NAN), ""),
            (double(0.0), "0"),
            (whole(42), "42"),
            (whole(-42), "-42"),
            (vec![0], "false"),
            (vec![1], "true"),
            (vec![2], "\u{2}"),
        ];
        for (value, want) in rows {
            assert_eq!(of_value(value.clone()), want.as_bytes(), "{value:?}");
        }
    }

    #[test]
    fn a_part_is_the_first_group_or_the_whole_match() {
        let part = |text: &str, regex: &str| {
            let part = part(text.as_bytes(), &Regex::new(regex).unwrap());
            part.map(|part| String::from_utf8(part).unwrap())
        };
        assert_eq!(part("org-42-x", "^org-([0-9]+)").as_deref(), Some("42"));
        assert_eq!(part("org-42-x", "[0-9]+").as_deref(), Some("42"));
        assert_eq!(part("team", "^org-([0-9]+)"), None);
        assert_eq!(part("ab", "a(x)?b").as_deref(), Some("ab"));
    }
}
