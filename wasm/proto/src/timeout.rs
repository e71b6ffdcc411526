//! The header `grpc-timeout`.

use core::time::Duration;

/// Reads the value of a `grpc-timeout` header: at most eight digits and a unit; `None` if it is
/// anything else.
///
/// ```
/// use std::time::Duration;
/// use tollgate_proto::timeout::grpc_timeout;
/// assert_eq!(grpc_timeout(b"250m"), Some(Duration::from_millis(250)));
/// assert_eq!(grpc_timeout(b"123456789S"), None);
/// ```
pub fn grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    let of_seconds = |seconds: u64| Duration::from_secs(count.saturating_mul(seconds));
    Some(match unit {
        b'H' => of_seconds(3600),
        b'M' => of_seconds(60),
        b'S' => of_seconds(1),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        let rows = [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("20m", Some(Duration::from_millis(20))),
            ("7u", Some(Duration::from_micros(7))),
            ("0n", Some(Duration::ZERO)),
        ];
        for (text, want) in rows {
            assert_eq!(grpc_timeout(text.as_bytes()), want, "{text}");
        }
        for bad in [
            "",
            "S",
            "123456789S",
            "+5S",
            "-1S",
            "1.5S",
            "5 S",
            "5s",
            "5",
            "ä",
        ] {
            assert_eq!(grpc_timeout(bad.as_bytes()), None, "{bad}");
        }
    }
}
