//! Table of the rates of all tenants.

use std::fmt::Write as _;
use std::time::Duration;

use tollgate_tests::record::Tally;

/// Line of one tenant.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) tally: Tally,
}

/// The table at `at`, with rates over the last `seconds`.
pub(crate) fn table<'a>(
    at: Duration,
    seconds: u64,
    rows: impl IntoIterator<Item = Row<'a>>,
) -> String {
    let mut text = format!("{} s, requests per second\n", at.as_secs());
    let head = ["tenant", "wanted", "admitted", "refused", "failed"];
    let [tenant, wanted, admitted, refused, failed] = head;
    let _ = writeln!(
        text,
        "{tenant:<12} {wanted:>9} {admitted:>9} {refused:>9} {failed:>9}"
    );
    for Row { tenant, tally } in rows {
        let rate = |count: u64| count as f64 / seconds as f64;
        let _ = writeln!(
            text,
            "{tenant:<12} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
            rate(tally.offered),
            rate(tally.admitted),
            rate(tally.refused),
            rate(tally.failed),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second() {
        let tally = Tally {
            offered: 1500,
            admitted: 1000,
            refused: 495,
            failed: 5,
        };
        let row = Row {
            tenant: "acme",
            tally,
        };
        let text = table(Duration::from_secs(65), 5, [row]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "65 s, requests per second");
        let words: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(words, ["acme", "300.0", "200.0", "99.0", "1.0"]);
    }
}
