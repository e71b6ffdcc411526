use std::time::Duration;

use tollgate_core::lease::Origin;
use tollgate_core::units::Capacity;

use super::super::tests::{clients, driver, driver_of_term, gets};
use super::*;

const CONFIG: &str = "limits: [{match: '*', requests: {rate: 100}}]";

#[tokio::test(start_paused = true)]
async fn a_successor_goes_on_where_the_master_ended() {
    let (first, old) = driver();
    tokio::spawn(first.run());
    assert_eq!(gets(&old, "a", 1).await, Capacity::from_whole(100));
    let snapshot = old.hand_over().await.unwrap();

    // The old driver answers no longer, and hands over only once.
    assert_eq!(clients(&old).await, Err(DriverError::Stopped));
    assert_eq!(old.hand_over().await, Err(DriverError::Stopped));

    let (second, new) = driver_of_term(CONFIG, Epoch(2));
    tokio::spawn(second.with_snapshot(snapshot).run());
    assert_eq!(new.origin(), Origin::alone(Epoch(2)));
    assert_eq!(gets(&new, "b", 1).await, Capacity::ZERO);
    // A lease ends when it would have ended.
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    assert_eq!(clients(&new).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_while_a_snapshot_is_read_wait_for_it() {
    let (first, old) = driver();
    tokio::spawn(first.run());
    gets(&old, "a", 1).await;
    let snapshot = old.hand_over().await.unwrap();
    let (second, new) = driver_of_term(CONFIG, Epoch(2));
    let call = tokio::spawn(async move { clients(&new).await });
    tokio::task::yield_now().await;
    tokio::spawn(second.with_snapshot(snapshot).run());
    assert_eq!(call.await.unwrap(), Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_of_no_use_leaves_the_driver_as_it_is() {
    let (first, old) = driver();
    tokio::spawn(first.run());
    gets(&old, "a", 1).await;
    let good = old.hand_over().await.unwrap();
    let cut = good[..good.len() - 1].to_vec();
    // The last is of a driver of the same term.
    for (snapshot, term) in [(vec![0xff; 9], 2), (cut, 2), (good, 1)] {
        let (driver, handle) = driver_of_term(CONFIG, Epoch(term));
        tokio::spawn(driver.with_snapshot(snapshot).run());
        assert_eq!(clients(&handle).await, Ok(0));
        assert_eq!(gets(&handle, "b", 1).await, Capacity::from_whole(100));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_ends_if_whoever_asked_has_gone() {
    let (driver, handle) = driver();
    {
        let hand_over = handle.hand_over();
        let waiting = tokio::time::timeout(Duration::from_millis(1), hand_over);
        assert!(waiting.await.is_err());
    }
    tokio::spawn(driver.run());
    assert_eq!(clients(&handle).await, Ok(0));
}

/// Cost of a hand-over; `--nocapture` shows it.
#[tokio::test]
async fn a_hundred_thousand_leases_are_handed_over() {
    let (first, old) = driver();
    tokio::spawn(first.run());
    for i in 0..LEASES {
        gets(&old, &format!("envoy-{i}/0123456789abcdef"), 1 << 60).await;
    }
    let clock = Clock::start();
    let snapshot = old.hand_over().await.unwrap();
    let written = clock.now();
    let len = snapshot.len();
    let (second, new) = driver_of_term(CONFIG, Epoch(2));
    tokio::spawn(second.with_snapshot(snapshot).run());
    assert_eq!(clients(&new).await, Ok(LEASES));
    let read = clock.now();
    eprintln!(
        "{LEASES} leases of as many clients: {} bytes a lease, written in {:?}, read in {:?}",
        len / LEASES,
        written.saturating_since(tollgate_core::units::Instant::ZERO),
        read.saturating_since(written)
    );
    assert!(len < 100 * LEASES, "{len} bytes");
}

/// As many as a resource has at most; fewer in debug builds.
const LEASES: usize = if cfg!(debug_assertions) {
    1000
} else {
    100_000
};
