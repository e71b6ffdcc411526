//! Checks the sum of the rates that all Envoys admitted against the laws.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use tollgate_tests::record::{BIN, Record};

use crate::fault_injector::{BURST, CAPACITY, ENVOYS, SAFE};
use crate::test_context::s;

/// Time that a restarted Envoy may admit nothing: its connections are new, and its filter waits for its
/// first lease.
const RESTART: Duration = Duration::from_secs(3);

/// Restarts of each Envoy, from the kill until it served again.
pub(crate) type Restarts = [Vec<Range<Duration>>; ENVOYS];

/// Checks laws 1 and 6: in no window do all Envoys together admit more than the capacity, the burst, and
/// the safe capacity of those without a lease: all but one, since at least one has the capacity that is
/// leased. Returns the largest counts as text.
pub(crate) fn never_above(all: &Record, restarts: &Restarts) -> Result<String> {
    let mut largest = Vec::new();
    for window in [s(1.0), s(3.0), s(8.0)] {
        // One bin more: answers of the bin before may have been counted in this one.
        let seconds = (window + BIN).as_secs_f64();
        // A bucket that has no lease holds a second of the safe capacity.
        let without = SAFE * (ENVOYS - 1) as f64;
        let allowed = (CAPACITY + without) * seconds + BURST + without;
        let mut most = (0.0, 0.0);
        let mut from = Duration::ZERO;
        while from + window <= all.length() {
            let admitted = all.within(from..from + window).admitted as f64;
            // A new process begins with a full bucket.
            let started = restarts
                .iter()
                .flatten()
                .filter(|restart| restart.end + RESTART >= from && restart.start <= from + window);
            let allowed = allowed + BURST * started.count() as f64;
            ensure!(
                admitted <= allowed,
                "laws 1 and 6: {admitted} admitted in {window:?} from {from:?}, allowed are {allowed:.0}"
            );
            if admitted / allowed > most.0 {
                most = (admitted / allowed, admitted);
            }
            from += BIN;
        }
        largest.push(format!(
            "{:.0} in {window:?} ({:.0} %)",
            most.1,
            most.0 * 100.0
        ));
    }
    Ok(largest.join(", "))
}

/// Checks law 7: a running Envoy admits at least its safe capacity, whatever is unreachable. `record` is
/// that of a tenant that always wants more.
pub(crate) fn never_dead(
    record: &Record,
    span: &Range<Duration>,
    restarts: &[Range<Duration>],
) -> Result<()> {
    let window = s(3.0);
    let mut from = span.start;
    while from + window <= span.end {
        let admitted = record.within(from..from + window).admitted;
        let restarted = restarts
            .iter()
            .any(|restart| restart.start <= from + window && restart.end + RESTART >= from);
        let least = 0.5 * SAFE * window.as_secs_f64();
        ensure!(
            restarted || admitted as f64 >= least,
            "law 7: {admitted} admitted in {window:?} from {from:?}, safe are at least {least}"
        );
        from += BIN;
    }
    Ok(())
}

/// Max-min fair share of the capacity for each Envoy (law 4), from the loads offered to them.
pub(crate) fn fair(offered: [u32; ENVOYS]) -> [f64; ENVOYS] {
    let offered = offered.map(f64::from);
    let equal = CAPACITY / ENVOYS as f64;
    let [first, second] = offered;
    match (first < equal, second < equal) {
        (true, _) => [first, second.min(CAPACITY - first)],
        (false, true) => [first.min(CAPACITY - second), second],
        (false, false) => [equal; ENVOYS],
    }
}

#[cfg(test)]
mod tests {
    use tollgate_tests::record::RequestOutcome;

    use super::*;

    /// A record of a steady rate.
    fn steady(per_second: u32, seconds: u32) -> Record {
        let mut record = Record::default();
        for request in 0..per_second * seconds {
            let at = f64::from(request) / f64::from(per_second);
            record.add(Duration::from_secs_f64(at), RequestOutcome::Admitted);
        }
        record
    }

    #[test]
    fn twice_the_capacity_is_seen_and_the_capacity_is_not() {
        let restarts = Restarts::default();
        assert!(never_above(&steady(200, 10), &restarts).is_ok());
        assert!(never_above(&steady(260, 10), &restarts).is_err());
        let mut burst = steady(200, 10);
        for _ in 0..120 {
            burst.add(s(5.0), RequestOutcome::Admitted);
        }
        assert!(never_above(&burst, &restarts).is_err());
        let mut restarts = restarts;
        restarts[1].push(s(4.5)..s(5.0));
        assert!(never_above(&burst, &restarts).is_ok());
    }

    #[test]
    fn a_silence_is_seen_unless_the_envoy_was_away() {
        let mut record = steady(10, 5);
        for request in 0..50 {
            record.add(s(9.0) + s(0.1) * request, RequestOutcome::Admitted);
        }
        let span = s(0.0)..s(14.0);
        assert!(never_dead(&steady(10, 14), &span, &[]).is_ok());
        assert!(never_dead(&record, &span, &[]).is_err());
        assert!(never_dead(&record, &span, &[s(5.0)..s(7.0)]).is_ok());
    }

    #[test]
    fn shares_are_max_min_fair() {
        assert_eq!(fair([150, 150]), [100.0, 100.0]);
        assert_eq!(fair([300, 60]), [140.0, 60.0]);
        assert_eq!(fair([60, 300]), [60.0, 140.0]);
        assert_eq!(fair([20, 30]), [20.0, 30.0]);
    }
}
