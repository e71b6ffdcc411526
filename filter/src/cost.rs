//! Cost of a request, as metadata has it: a number, or a text that is one.
//!
//! Numbers from outside are checked here: finite, not negative, and bounded.

use tollgate_core::units::Tokens;

/// The longest text that is read as a number.
const TEXT_LEN_MAX: usize = 20;
/// The most tokens that a request can turn out to have cost; more count as so many.
const FINAL_MAX: f64 = 1e9;

/// A number of tokens from zero to `max`.
pub(crate) fn number(number: f64, max: f64) -> Option<Tokens> {
    let usable = (0.0..=max).contains(&number);
    usable.then(|| Tokens::from_micros((number * 1e6).round() as u64))
}

/// Returns the final cost of a request from a value of Envoy's dynamic metadata.
///
/// Envoy hands over a number as the eight bytes of a double, and a text as it is. The two cannot be
/// mistaken for each other: eight bytes that are all digits or points would be a double below
/// 1e-30, which is no cost.
pub(crate) fn of_metadata(value: &[u8]) -> Option<Tokens> {
    let is_text = value.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
    let cost = if is_text && value.len() <= TEXT_LEN_MAX {
        core::str::from_utf8(value).ok()?.parse().ok()?
    } else {
        f64::from_le_bytes(value.try_into().ok()?)
    };
    let bounded = if cost > FINAL_MAX && cost.is_finite() {
        FINAL_MAX
    } else {
        cost
    };
    number(bounded, FINAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_read_and_nothing_else_is() {
        let whole = Tokens::from_whole;
        let rows: [(&[u8], Option<Tokens>); 16] = [
            (&1500.0_f64.to_le_bytes(), Some(whole(1500))),
            (&0.25_f64.to_le_bytes(), Some(Tokens::from_micros(250_000))),
            (&0.0_f64.to_le_bytes(), Some(Tokens::ZERO)),
            (&1e300_f64.to_le_bytes(), Some(whole(1_000_000_000))),
            (&(-1.0_f64).to_le_bytes(), None),
            (&f64::NAN.to_le_bytes(), None),
            (&f64::INFINITY.to_le_bytes(), None),
            (b"1500", Some(whole(1500))),
            (b"12345678", Some(whole(12_345_678))),
            (b"0.5", Some(Tokens::from_micros(500_000))),
            (b"99999999999999999999", Some(whole(1_000_000_000))),
            (b"999999999999999999999", None),
            (b"", None),
            (b"1.2.3", None),
            (b"-1", None),
            (b"nan", None),
        ];
        for (value, want) in rows {
            assert_eq!(of_metadata(value), want, "{value:?}");
        }
    }
}
