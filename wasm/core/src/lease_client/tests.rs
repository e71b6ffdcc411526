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
