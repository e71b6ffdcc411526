//! Longest wait of a request, as its client says.
//!
//! Three headers count, the shortest time wins: `tollgate-max-wait-ms` (0 asks to be refused at once
//! rather than to wait), the deadline of a gRPC call (`grpc-timeout`), and
//! `x-envoy-expected-rq-timeout-ms`, which an Envoy in front of this one sets. Of the two deadlines four
//! fifths may be spent on waiting: a client that is answered then learns that it was throttled,
//! instead of running into its timeout without knowing why (PIP-385). A header that cannot be read
//! counts as none.

use core::time::Duration;

use tollgate_proto::timeout::grpc_timeout;

use crate::host::Host;

/// Returns the longest wait that the client of the request at hand allows; none if it says nothing.
pub(crate) fn max_wait<H: Host>(host: &H) -> Option<Duration> {
    let header = |name| host.request_header(name).ok().flatten();
    let limits = [
        header("tollgate-max-wait-ms").and_then(|value| millis(&value)),
        header("grpc-timeout").and_then(|value| most_of(grpc_timeout(&value))),
        header("x-envoy-expected-rq-timeout-ms").and_then(|value| most_of(millis(&value))),
    ];
    limits.into_iter().flatten().min()
}

/// Returns the part of a deadline that may be spent on waiting.
fn most_of(deadline: Option<Duration>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_sub(deadline.checked_div(5).unwrap_or_default()))
}

fn millis(value: &[u8]) -> Option<Duration> {
    number(value.trim_ascii(), 18).map(Duration::from_millis)
}

fn number(digits: &[u8], len_max: usize) -> Option<u64> {
    let plain = !digits.is_empty() && digits.len() <= len_max;
    let plain = plain && digits.iter().all(u8::is_ascii_digit);
    plain
        .then(|| core::str::from_utf8(digits).ok()?.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Process};

    #[test]
    fn the_shortest_time_that_can_be_read_counts() {
        let ms = |millis| Some(Duration::from_millis(millis));
        type Row<'a> = (&'a [(&'a str, &'a str)], Option<Duration>);
        let rows: [Row<'_>; 14] = [
            (&[], None),
            (&[("tollgate-max-wait-ms", "0")], ms(0)),
            (&[("tollgate-max-wait-ms", " 250 ")], ms(250)),
            (&[("tollgate-max-wait-ms", "-1")], None),
            (&[("tollgate-max-wait-ms", "1e3")], None),
            (&[("tollgate-max-wait-ms", "")], None),
            (&[("tollgate-max-wait-ms", "9999999999999999999")], None),
            (&[("grpc-timeout", "2H")], ms(5_760_000)),
            (&[("grpc-timeout", "3M")], ms(144_000)),
            (&[("grpc-timeout", "20m")], ms(16)),
            (&[("grpc-timeout", "123456789S")], None),
            (&[("grpc-timeout", "S")], None),
            (
                &[("grpc-timeout", "1S"), ("tollgate-max-wait-ms", "799")],
                ms(799),
            ),
            (
                &[
                    ("grpc-timeout", "1S"),
                    ("x-envoy-expected-rq-timeout-ms", "70"),
                ],
                ms(56),
            ),
        ];
        let host = Fake::new(&Process::new());
        for (headers, want) in rows {
            host.set_headers(headers);
            assert_eq!(max_wait(&host), want, "{headers:?}");
        }
    }
}
