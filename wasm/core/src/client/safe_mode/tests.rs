use alloc::vec::Vec;

use super::*;

/// A process whose calls and leases a test makes go as it likes, second by second.
#[derive(Default)]
struct Process {
    calls: CallHistory,
    record: SafeMode,
    now_s: u64,
}

impl Process {
    fn now(&self) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(1000 + self.now_s))
    }

    fn look(&mut self, without_lease: u64) -> Option<SafeModeReport> {
        let (record, report) = self.record.next(self.now(), &mut self.calls, without_lease);
        self.record = SafeMode::decode(&record.encode());
        assert_eq!(self.record, record);
        report
    }

    /// Lets calls fail, or be answered, for so many seconds; all that is reported.
    fn run(&mut self, seconds: u64, fails: bool, without_lease: u64) -> Vec<SafeModeReport> {
        let mut reports = Vec::new();
        for _ in 0..seconds {
            if fails {
                self.calls.handle_failure(self.now(), 0)
            } else {
                self.calls.handle_answer(0)
            }
            reports.extend(self.look(without_lease));
            self.now_s += 1;
        }
        reports
    }
}

fn entered(seconds: u64, unreported: u32) -> SafeModeReport {
    SafeModeReport::Entered {
        failing_for: Duration::from_secs(seconds),
        unreported,
    }
}

fn left(seconds: u64) -> SafeModeReport {
    let after = Duration::from_secs(seconds);
    SafeModeReport::Left { after }
}

#[test]
fn an_outage_is_reported_when_a_lease_has_ended_and_when_it_is_over() {
    let mut process = Process::default();
    assert_eq!(process.run(5, false, 0), []);
    // Calls fail, but leases are valid.
    assert_eq!(process.run(9, true, 0), []);
    assert_eq!(process.run(100, true, 3), [entered(9, 0)]);
    assert_eq!(process.run(5, false, 0), [left(109)]);
}

#[test]
fn a_single_failure_and_want_of_leases_alone_are_no_outage() {
    let mut process = Process::default();
    // A coordinator that learns answers and lends nothing.
    assert_eq!(process.run(100, false, 5), []);
    assert_eq!(process.run(1, true, 5), []);
    assert_eq!(process.run(1, false, 0), []);
    // And much later another one.
    assert_eq!(process.run(1, true, 5), []);
    assert_eq!(process.run(1, false, 0), []);
}

#[test]
fn it_is_over_too_when_the_coordinators_answer_for_long_without_a_lease_for_all() {
    let mut process = Process::default();
    assert_eq!(process.run(5, true, 1), [entered(1, 0)]);
    assert_eq!(process.run(9, false, 1), []);
    assert_eq!(process.run(5, false, 1), [left(14)]);
    assert_eq!(process.run(100, false, 1), []);
}

#[test]
fn answers_of_one_shard_do_not_hide_that_another_is_away() {
    // Its own cluster does not answer, or any coordinator says that the shard's master does not.
    let failures: [fn(&mut CallHistory, Instant); 2] = [
        |calls, now| calls.handle_failure(now, 1),
        CallHistory::handle_out_of_reach,
    ];
    for fail in failures {
        let mut process = Process::default();
        let mut reports = Vec::new();
        for _ in 0..100 {
            let now = process.now();
            fail(&mut process.calls, now);
            reports.extend(process.run(3, false, 2));
        }
        assert_eq!(reports, [entered(3, 0)]);
    }
}

#[test]
fn failures_with_answers_between_them_are_no_outage() {
    let mut process = Process::default();
    // A lost call, and new scopes that have no lease at any look.
    assert_eq!(process.run(1, true, 1), []);
    assert_eq!(process.run(20, false, 1), []);
    for _ in 0..20 {
        assert_eq!(process.run(1, true, 1), []);
        assert_eq!(process.run(2, false, 1), []);
    }
    // Nor are two failures, long after each other, of what is not asked else.
    process.calls.handle_failure(process.now(), 1);
    process.calls.handle_out_of_reach(process.now());
    process.now_s += 11;
    process.calls.handle_failure(process.now(), 1);
    process.calls.handle_out_of_reach(process.now());
    assert_eq!(process.look(1), None);
}

#[test]
fn a_coordinator_that_comes_and_goes_is_reported_once_a_minute() {
    let mut process = Process::default();
    let mut reports = Vec::new();
    for _ in 0..30 {
        reports.extend(process.run(3, true, 1));
        reports.extend(process.run(3, false, 0));
    }
    let begun = reports.iter().filter(|report| **report != left(3)).count();
    assert_eq!((reports.len(), begun), (6, 3), "{reports:?}");
    assert_eq!(reports[2], entered(1, 9));
    // One that stays away is reported when the minute is over.
    let late = process.run(100, true, 1);
    assert!(
        matches!(late[..], [SafeModeReport::Entered { .. }]),
        "{late:?}"
    );
}

#[test]
fn a_worker_that_takes_over_says_nothing_twice() {
    let mut process = Process::default();
    assert_eq!(process.run(5, true, 1), [entered(1, 0)]);
    process.calls = CallHistory::default();
    assert_eq!(process.look(1), None);
    assert_eq!(process.run(5, true, 1), []);
    process.calls = CallHistory::default();
    assert_eq!(process.run(1, false, 0), [left(10)]);
}

#[test]
fn what_cannot_be_read_says_that_all_is_well() {
    let record = SafeMode {
        since: Some(Instant::from_nanos(7)),
        reported: true,
        reported_at: Some(Instant::from_nanos(u64::MAX)),
        unreported: 9,
    };
    let bytes = record.encode();
    assert_eq!(SafeMode::decode(&bytes), record);
    for len in 0..bytes.len() {
        assert_eq!(SafeMode::decode(&bytes[..len]), SafeMode::default());
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(SafeMode::decode(&longer), SafeMode::default());
    // Times that lie ahead, as of another boot, lead to no report and no panic.
    let mut calls = CallHistory::default();
    assert_eq!(record.next(Instant::ZERO, &mut calls, 1), (record, None));
}
