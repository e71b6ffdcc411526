use super::*;
use crate::lease::{Epoch, EpochError, LeaseTerms};

const TIMEOUT: Duration = Duration::from_secs(1);

fn at(ms: u64) -> Instant {
    Instant::ZERO.saturating_add(Duration::from_millis(ms))
}

fn answer(gets: u64, secs: u64) -> Answer {
    Answer {
        lease: Some(LeaseTerms {
            capacity: Capacity::from_whole(gets),
            burst: Tokens::from_whole(gets),
            duration: Duration::from_secs(secs),
            fingerprint: 1,
        }),
        refresh_interval: Duration::from_secs(secs / 2),
        safe: None,
        capacity: Capacity::from_whole(100),
        period: None,
        burst: None,
        draw: None,
    }
}

fn ask(client: &mut LeaseClient, now: Instant, sequence: u64) -> LeaseRequest {
    client.request(now, sequence, TIMEOUT, Demand::of(Capacity::from_whole(9)))
}

#[test]
fn a_lease_counts_from_its_request_and_is_said_until_it_ends() {
    let mut client = LeaseClient::new(Some(at(0)));
    assert!(client.is_due(at(0), Duration::ZERO));
    assert_eq!(ask(&mut client, at(0), 1).has, Capacity::ZERO);
    let origin = Origin::alone(Epoch(1));
    assert_eq!(
        client.handle_answer(at(900), 1, origin, &answer(9, 10)),
        Ok(true)
    );
    assert_eq!(client.due(), Some(at(5900)));
    let next = ask(&mut client, at(6000), 2);
    assert_eq!(next.has, Capacity::from_whole(9));
    assert_eq!(next.remaining, Some(Duration::from_secs(4)));
    assert_eq!(client.valid_lease(at(10_000)), None);
    assert_eq!(client.take_expired(at(9999)), None);
    assert_eq!(client.take_expired(at(10_001)), Some(at(10_000)));
}

#[test]
fn only_the_answer_to_the_latest_request_is_applied() {
    let mut client = LeaseClient::new(None);
    ask(&mut client, at(0), 1);
    ask(&mut client, at(1000), 2);
    let origin = Origin::alone(Epoch(1));
    assert_eq!(
        client.handle_answer(at(1001), 1, origin, &answer(5, 10)),
        Ok(false)
    );
    assert_eq!(
        client.handle_answer(at(1002), 2, origin, &answer(6, 10)),
        Ok(true)
    );
    assert_eq!(
        client.handle_answer(at(1003), 2, origin, &answer(7, 10)),
        Ok(false)
    );
    let lease = client.valid_lease(at(1003)).expect("a lease");
    assert_eq!(lease.capacity, Capacity::from_whole(6));
}

/// The network may have held the request back until its capacity was lent to others, and a master that
/// has started since believes it.
#[test]
fn an_answer_that_comes_after_the_end_of_the_claimed_lease_is_dropped() {
    let origin = Origin::alone(Epoch(1));
    let waiting = |gets| {
        let mut client = LeaseClient::new(None);
        ask(&mut client, at(0), 1);
        client
            .handle_answer(at(1), 1, origin, &answer(gets, 10))
            .unwrap();
        ask(&mut client, at(9900), 2);
        client
    };
    for (gets, ms, applied) in [(9, 9999, true), (9, 10_000, false), (0, 10_100, true)] {
        let mut client = waiting(gets);
        let counts = client.handle_answer(at(ms), 2, origin, &answer(5, 10));
        assert_eq!(counts, Ok(applied), "a lease of {gets} at {ms}");
        assert_eq!(client.due() == Some(at(ms)), !applied, "asks at once");
    }
    // It makes no difference whether the end was noticed before.
    let mut client = waiting(9);
    assert_eq!(client.take_expired(at(10_050)), Some(at(10_000)));
    assert_eq!(client.due(), Some(at(10_050)));
    let late = client.handle_answer(at(10_060), 2, origin, &answer(5, 10));
    assert_eq!(late, Ok(false));
    assert_eq!(ask(&mut client, at(10_060), 3).has, Capacity::ZERO);
    let next = client.handle_answer(at(10_070), 3, origin, &answer(5, 10));
    assert_eq!(next, Ok(true));
}

#[test]
fn an_answer_of_an_earlier_master_counts_as_a_failure() {
    let mut client = LeaseClient::new(None);
    ask(&mut client, at(0), 1);
    assert_eq!(
        client.handle_answer(at(1), 1, Origin::alone(Epoch(2)), &answer(6, 10)),
        Ok(true)
    );
    ask(&mut client, at(1000), 2);
    let lower = client.handle_answer(at(1001), 2, Origin::alone(Epoch(1)), &answer(9, 10));
    assert!(matches!(lower, Err(EpochError::Lower { .. })), "{lower:?}");
    assert!(!client.is_waiting() && !client.may_hurry());
    assert!(client.due() > Some(at(1001)), "backs off");
}

#[test]
fn a_release_is_sent_only_to_a_server_that_has_answered() {
    let mut client = LeaseClient::new(None);
    ask(&mut client, at(0), 1);
    assert_eq!(client.release(2), None);
    ask(&mut client, at(0), 3);
    client
        .handle_answer(at(1), 3, Origin::default(), &answer(6, 10))
        .unwrap();
    let sequence = 4;
    assert_eq!(client.release(4), Some(LeaseMessage::Release { sequence }));
    assert_eq!((client.due(), client.valid_lease(at(1))), (None, None));
}

/// A client that is answered again and again, as a test plays it.
struct Play {
    client: LeaseClient,
    now: u64,
    sequence: u64,
}

impl Play {
    fn new() -> Self {
        Self {
            client: LeaseClient::new(Some(at(0))),
            now: 0,
            sequence: 0,
        }
    }

    /// Lets the next request be answered by the master of `epoch`, when it is due.
    fn answer(&mut self, epoch: u64, answer: &Answer) -> Result<bool, EpochError> {
        let due = self.client.due().expect("a request");
        let due_ms = u64::try_from(due.saturating_since(at(0)).as_millis()).unwrap() + 1;
        self.now = self.now.max(due_ms);
        self.sequence += 1;
        ask(&mut self.client, at(self.now), self.sequence);
        let origin = Origin::alone(Epoch(epoch));
        self.client
            .handle_answer(at(self.now), self.sequence, origin, answer)
    }

    /// Lets requests be answered so until an answer counts; returns how long that took.
    fn answer_until_applied(&mut self, epoch: u64, lends: &Answer) -> Duration {
        let from = self.now;
        while self.answer(epoch, lends) != Ok(true) {
            assert!(self.now < from + 1_000_000, "never");
        }
        Duration::from_millis(self.now - from)
    }
}

/// An epoch of a clock, in 2026.
const CLOCK: u64 = 1_790_000_000_000;

#[test]
fn an_earlier_master_is_believed_again_when_nothing_of_the_later_one_is_left() {
    for lie in [CLOCK + 1, CLOCK + (1 << 36), Epoch::MAX.0] {
        let mut play = Play::new();
        if lie != Epoch::MAX.0 {
            assert_eq!(play.answer(CLOCK, &answer(6, 10)), Ok(true));
        }
        assert_eq!(play.answer(lie, &answer(9, 10)), Ok(true));
        let lease = play.client.lease.unwrap();
        let passed = play.answer_until_applied(CLOCK, &answer(6, 10));
        assert!(at(play.now) >= lease.expiry, "{lie}: while it was in use");
        assert!(passed < Duration::from_secs(11), "{lie}: {passed:?}");
        assert_eq!(play.answer(CLOCK, &answer(6, 10)), Ok(true));
    }
}

#[test]
fn an_earlier_master_has_to_answer_again_and_again() {
    let mut play = Play::new();
    // A master that learns lends nothing, so that there is nothing to use.
    let nothing = Answer {
        lease: None,
        ..answer(0, 10)
    };
    assert_eq!(play.answer(2, &nothing), Ok(true));
    for _ in 0..10 {
        for _ in 0..LOST_AFTER {
            let lower = play.answer(1, &answer(9, 10));
            assert!(matches!(lower, Err(EpochError::Lower { .. })), "{lower:?}");
        }
        assert_eq!(play.answer(2, &nothing), Ok(true));
    }
}

#[test]
fn a_lease_for_a_day_from_a_false_master_holds_for_minutes() {
    let mut play = Play::new();
    play.answer(CLOCK, &answer(6, 10)).unwrap();
    let day = Answer {
        refresh_interval: crate::limit::LEASE_MAX,
        ..answer(0, 86_400)
    };
    // In the same term the next answer corrects it.
    assert_eq!(play.answer(CLOCK, &day), Ok(true));
    let before = play.now;
    assert_eq!(play.answer(CLOCK, &answer(6, 10)), Ok(true));
    assert!(play.now - before <= 60_001, "{}", play.now - before);
    // In a higher one it is given up.
    assert_eq!(play.answer(CLOCK + 1, &day), Ok(true));
    let passed = play.answer_until_applied(CLOCK, &answer(6, 10));
    assert!(passed > Duration::from_secs(60), "{passed:?}");
    assert!(passed < Duration::from_secs(300), "{passed:?}");
    assert_eq!(
        play.client
            .valid_lease(at(play.now))
            .map(|lease| lease.capacity),
        Some(Capacity::from_whole(6))
    );
}

#[test]
fn a_leap_is_believed_when_nothing_of_the_earlier_master_is_left() {
    let mut play = Play::new();
    assert_eq!(play.answer(CLOCK, &answer(6, 10)), Ok(true));
    let (leap, impossible) = (CLOCK + (1 << 37), 1 << 42);
    let refused = play.answer(leap, &answer(6, 10));
    assert!(
        matches!(refused, Err(EpochError::Jump { .. })),
        "{refused:?}"
    );
    for _ in 0..200 {
        assert!(play.answer(impossible, &answer(9, 10)).is_err());
    }
    assert_eq!(play.answer(leap, &answer(6, 10)), Ok(true));
}

/// Law 5: whoever answers, in whatever order.
#[test]
fn no_lower_epochs_answer_is_applied_while_a_lease_of_a_higher_one_is_in_use() {
    let mut lower = 0;
    for seed in 0..300_u64 {
        let mut play = Play::new();
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            crate::hash::mixed(state) % below
        };
        // Most answers of a time come from one master.
        let mut epoch = 1;
        for _ in 0..300 {
            epoch = if random(20) == 0 {
                1 + random(4)
            } else {
                epoch
            };
            let answers = if random(30) == 0 {
                1 + random(4)
            } else {
                epoch
            };
            let lends = Answer {
                lease: answer(5, 1 + random(20)).lease.filter(|_| random(5) > 0),
                ..answer(5, 1 + random(8))
            };
            let (known, held) = (play.client.origin.epoch.0, play.client.lease);
            if play.answer(answers, &lends) == Ok(true) && answers < known {
                let in_use = held.filter(|lease| lease.expiry > at(play.now));
                assert_eq!(in_use, None, "seed {seed}: epoch {answers} after {known}");
                lower += 1;
            }
        }
    }
    assert!(lower > 300, "{lower} masters were lost");
}
