//! Samples as CSV, a line for each time, or for each time and scope or Envoy.

use std::fmt::Write as _;

use super::RunRecord;

// === free functions ===

/// Returns the samples of the whole fleet.
pub(super) fn samples(record: &RunRecord<'_>) -> String {
    let mut text = "seconds,wants,capacity,attainable,handed_out,has,admitted,refused,envoys,\
                    leases,without_lease,waiting,messages\n"
        .to_owned();
    for s in record.samples {
        let _ = writeln!(
            text,
            "{},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3},{},{},{},{},{}",
            s.at,
            s.wants,
            s.capacity,
            s.attainable,
            s.handed_out,
            s.has,
            s.admitted,
            s.refused,
            s.envoys,
            s.leases,
            s.without_lease,
            s.waiting,
            s.messages
        );
    }
    text
}

/// Returns the samples of each scope that is recorded by itself.
pub(super) fn scopes(record: &RunRecord<'_>) -> String {
    let mut text = "seconds,scope,wants,capacity,has,admitted,refused\n".to_owned();
    for sample in record.samples {
        for (name, s) in record.scopes.iter().zip(&sample.scopes) {
            let _ = writeln!(
                text,
                "{},{},{:.3},{},{},{:.3},{:.3}",
                sample.at,
                quoted(name),
                s.wants,
                or_unlimited(s.capacity),
                or_unlimited(s.has),
                s.admitted,
                s.refused
            );
        }
    }
    text
}

/// Returns the samples of each Envoy that is recorded by itself.
pub(super) fn clients(record: &RunRecord<'_>) -> String {
    let mut text = "seconds,envoy,wants,has\n".to_owned();
    for sample in record.samples {
        for (name, s) in record.envoys.iter().zip(&sample.clients) {
            let name = quoted(name);
            let has = or_unlimited(s.has);
            let _ = writeln!(text, "{},{name},{:.3},{has}", sample.at, s.wants);
        }
    }
    text
}

/// Returns a rate, or the word for none.
fn or_unlimited(rate: Option<f64>) -> String {
    rate.map_or_else(|| "unlimited".to_owned(), |rate| format!("{rate:.3}"))
}

/// Returns `text` as one field.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_a_comma_is_quoted() {
        assert_eq!(quoted("tenant/a"), "tenant/a");
        assert_eq!(quoted("tenant/a,\"b\""), "\"tenant/a,\"\"b\"\"\"");
    }
}
