//! Answers whose epoch is none that can follow.

use tollgate_core::lease::{Epoch, Origin};
use tollgate_core::message::ScopeAnswer;

use super::permits::FOUR;
use super::*;

/// The epoch of an honest coordinator: a wall clock in 2026.
const CLOCK: u64 = 1_790_000_000_000;

impl Worker {
    /// Serves a busy tenant for `seconds`, while every call is answered with 100 in the term
    /// `epoch`; how many of ten requests in each tick went on.
    fn serve(&mut self, seconds: u64, epoch: u64) -> usize {
        let mut admitted = 0;
        for _ in 0..seconds * 50 {
            self.tick(TICK);
            admitted += self.admitted("acme", 10);
            while let Some((token, call)) = self.process.take_call() {
                if call.is_refresh() {
                    self.handle_answer(token, call.lend_in(100.0, epoch));
                }
            }
        }
        admitted
    }

    fn warnings(&self) -> Vec<String> {
        let logs = self.process.logs.borrow();
        let warnings = logs.iter().filter(|(level, _)| *level == Level::Warn);
        warnings.map(|(_, message)| message.clone()).collect()
    }
}

#[test]
fn a_second_of_answers_from_an_impossible_epoch_pins_nobody() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.serve(5, CLOCK);
    assert_eq!(
        (worker.stats().epoch_jumps.get(), worker.warnings().len()),
        (0, 0)
    );
    for lie in [u64::MAX, 1 << 42, CLOCK + (1 << 37)] {
        worker.serve(1, lie);
        let before = worker.stats().refresh_errors.get();
        let rate = worker.serve(20, CLOCK) / 20;
        assert!((90..=110).contains(&rate), "{rate} per second after {lie}");
        assert!(
            worker.stats().refresh_errors.get() <= before + 1,
            "after {lie}"
        );
    }
    assert!(worker.stats().epoch_jumps.get() >= 3, "each is counted");
    assert!(worker.stats().refresh_errors.get() >= 3, "and is a failure");
    let warnings = worker.warnings();
    let [warning] = &warnings[..] else {
        panic!("logged once: {warnings:?}");
    };
    let both = [u64::MAX, CLOCK].map(|epoch| warning.contains(&epoch.to_string()));
    assert_eq!(both, [true, true], "{warning}");
}

#[test]
fn a_second_of_answers_from_a_higher_epoch_costs_no_more_than_a_lease() {
    for lie in [CLOCK + 1, CLOCK + (1 << 36)] {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
        worker.serve(5, CLOCK);
        worker.serve(1, lie);
        // The false lease lasts for ten seconds, and its master is lost soon after.
        worker.serve(11, CLOCK);
        let refused = worker.stats().lower_epochs.get();
        assert!(refused > 0);
        let rate = worker.serve(20, CLOCK) / 20;
        assert!((90..=110).contains(&rate), "{rate} per second after {lie}");
        assert_eq!(worker.stats().lower_epochs.get(), refused, "after {lie}");
        let warnings = worker.warnings().into_iter();
        let warnings = warnings.filter(|line| line.contains("was not applied"));
        assert_eq!(warnings.count(), 1, "after {lie}");
    }
}

#[test]
fn a_first_answer_from_an_impossible_epoch_is_no_answer() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.serve(1, u64::MAX);
    assert!(worker.stats().epoch_jumps.get() > 0);
    let rate = worker.serve(20, CLOCK) / 20;
    assert!((80..=110).contains(&rate), "{rate} per second");
}

#[test]
fn answers_of_an_earlier_master_are_counted_and_logged_once() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.serve(5, CLOCK);
    worker.serve(5, CLOCK - 1);
    let counted = worker.stats().lower_epochs.get();
    assert!(counted > 1, "{counted}");
    assert_eq!(worker.stats().refresh_errors.get(), counted);
    assert_eq!(worker.stats().epoch_jumps.get(), 0);
    let warnings = worker.warnings();
    let [warning] = &warnings[..] else {
        panic!("logged once: {warnings:?}");
    };
    let both = [CLOCK, CLOCK - 1].map(|epoch| warning.contains(&epoch.to_string()));
    assert_eq!(both, [true, true], "{warning}");
    assert!(warning.contains("tenant/acme"), "{warning}");
}

#[test]
fn an_operators_epoch_gives_way_to_a_clock() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.serve(5, 5);
    let rate = worker.serve(20, CLOCK) / 20;
    assert!((90..=110).contains(&rate), "{rate} per second");
    assert_eq!(worker.stats().epoch_jumps.get(), 0);
}

#[test]
fn an_answer_without_units_changes_no_terms() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", FOUR);
    let (token, call) = loop {
        worker.tick(TICK);
        if let Some(call) = worker.process.take_call() {
            break call;
        }
    };
    let empty = call.answer(|asked| ScopeAnswer {
        limited: Vec::new(),
        origin: Origin::alone(Epoch(0)),
        outcome: Ok(Vec::new()),
        ..lent(asked, 0.0)
    });
    worker.handle_answer(token, empty);
    worker.tick(TICK);
    assert_eq!(worker.admitted("acme", 9), 4);
    assert_eq!(worker.stats().refresh_errors.get(), 1);
}
