use alloc::borrow::ToOwned as _;
use alloc::string::ToString as _;
use alloc::vec;

use super::*;
use crate::quota::{Calendar, CalendarUnit, QuotaPeriod};

const HOUR_MS: u64 = 3_600_000;

fn tokens(whole: u64) -> Tokens {
    Tokens::from_whole(whole)
}

fn quota(amount: u64, unit: CalendarUnit) -> Quota {
    Quota {
        amount: tokens(amount),
        period: QuotaPeriod::Calendar(Calendar::utc(unit)),
    }
}

fn of(quotas: Vec<Quota>) -> FleetQuotas {
    FleetQuotas::new(&Quotas::new(quotas))
}

/// So long after a whole day in 1970.
fn after(duration: Duration) -> (Instant, WallClock) {
    let wall = WallTime::from_millis(24 * HOUR_MS).saturating_add(duration);
    let now = Instant::ZERO.saturating_add(duration);
    (now, WallClock::new(now, wall))
}

/// Brings so many tokens back that were spent so many seconds before `now`.
fn refund(quotas: &mut FleetQuotas, now: Instant, age: u64, whole: u64) {
    let taken_at = now.saturating_sub(Duration::from_secs(age));
    quotas.refund(now, taken_at, tokens(whole));
}

fn advance(quotas: &mut FleetQuotas, hours: u64, holds: u64) -> Instant {
    let (now, clock) = after(Duration::from_millis(hours * HOUR_MS));
    quotas.advance(now, clock, tokens(holds));
    now
}

#[test]
fn the_strictest_of_several_bounds() {
    let mut quotas = of(vec![
        quota(10, CalendarUnit::Hour),
        quota(25, CalendarUnit::Day),
    ]);
    for hour in 0..4 {
        let now = advance(&mut quotas, hour, 0);
        let left = quotas.left();
        quotas.charge(now, left);
        assert_eq!(left, tokens([10, 10, 5, 0][usize::try_from(hour).unwrap()]));
    }
    let now = advance(&mut quotas, 4, 0);
    let day_ends_in = Duration::from_millis(20 * HOUR_MS);
    assert_eq!(quotas.opens_in(now, Tokens::ONE), Some(day_ends_in));
    let level = quotas.strictest(now).unwrap();
    assert_eq!((level.amount, level.resets_in), (tokens(25), day_ends_in));
}

#[test]
fn tokens_that_clients_hold_at_the_end_count_in_the_next_window() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(10));
    advance(&mut quotas, 1, 3);
    assert_eq!(quotas.left(), tokens(7));
    // One that is given back is there again.
    quotas.give_back(tokens(1));
    assert_eq!(quotas.left(), tokens(8));
}

#[test]
fn tokens_that_were_spent_before_the_window_count_in_the_one_before_alone() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(10));
    let now = advance(&mut quotas, 1, 5).saturating_add(Duration::from_secs(1));
    quotas.note_spent(now, Duration::from_millis(900), tokens(2));
    assert_eq!(quotas.left(), tokens(5), "spent since");
    quotas.note_spent(now, Duration::from_millis(1100), tokens(4));
    assert_eq!(quotas.left(), tokens(9));
    quotas.note_spent(now, Duration::from_millis(1100), tokens(4));
    assert_eq!(quotas.left(), tokens(10), "no more than were carried over");
}

#[test]
fn no_window_opens_twice_when_the_clock_is_set_forth_and_back() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Day)]);
    let now = advance(&mut quotas, 1, 0);
    quotas.charge(now, tokens(10));
    let now = advance(&mut quotas, 25, 0);
    quotas.charge(now, tokens(4));
    advance(&mut quotas, 2, 0);
    assert_eq!(quotas.left(), tokens(6));
    advance(&mut quotas, 26, 0);
    assert_eq!(quotas.left(), tokens(6));
}

#[test]
fn a_rolling_quota_opens_part_by_part() {
    let day = QuotaPeriod::Rolling(Duration::from_millis(24 * HOUR_MS));
    let mut quotas = of(vec![Quota {
        amount: tokens(100),
        period: day,
    }]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(60));
    let now = advance(&mut quotas, 12, 0);
    quotas.charge(now, tokens(40));
    advance(&mut quotas, 23, 0);
    assert_eq!(quotas.left(), Tokens::ZERO);
    advance(&mut quotas, 25, 0);
    assert_eq!(quotas.left(), tokens(60));
    advance(&mut quotas, 37, 0);
    assert_eq!(quotas.left(), tokens(100));
}

#[test]
fn a_quota_that_is_removed_and_comes_back_has_not_been_forgotten() {
    let hourly = vec![quota(10, CalendarUnit::Hour)];
    let mut quotas = of(hourly.clone());
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(10));
    quotas.set(&Quotas::default());
    assert!(!quotas.has_any());
    quotas.set(&Quotas::new(hourly));
    assert_eq!(quotas.left(), Tokens::ZERO);
    // Another amount of the same period bounds at once.
    quotas.set(&Quotas::new(vec![quota(12, CalendarUnit::Hour)]));
    assert_eq!(quotas.left(), tokens(2));
}

#[test]
fn a_record_says_a_little_more_than_is_used_and_is_news_only_beyond_that() {
    let mut quotas = of(vec![quota(64 * 1024, CalendarUnit::Day)]);
    let now = advance(&mut quotas, 0, 0);
    assert!(!quotas.are_beyond_stored());
    quotas.charge(now, tokens(1));
    assert!(quotas.are_beyond_stored());
    let records = quotas.store();
    assert_eq!(records[0].parts[0].used, tokens(1 + 4));
    quotas.charge(now, tokens(4));
    assert!(!quotas.are_beyond_stored());
    quotas.charge(now, tokens(1));
    assert!(quotas.are_beyond_stored());
    let mut restored = of(vec![quota(64 * 1024, CalendarUnit::Day)]);
    restored.restore(&records, (Tokens::ZERO, now));
    advance(&mut restored, 1, 0);
    assert_eq!(restored.left(), tokens(64 * 1024 - 5));
}

#[test]
fn a_threshold_is_reached_once_in_each_window() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    let mut percents = Vec::new();
    for _ in 0..12 {
        quotas.charge(now, tokens(1));
        percents.extend(
            quotas
                .take_thresholds()
                .into_iter()
                .map(|reached| reached.percent),
        );
    }
    assert_eq!(percents, [80, 100]);
    // Tokens that come back, and are granted again, are no news.
    quotas.give_back(tokens(3));
    assert!(quotas.take_thresholds().is_empty());
    quotas.charge(now, tokens(3));
    assert!(quotas.take_thresholds().is_empty());
    // A new window begins anew.
    let now = advance(&mut quotas, 1, 0);
    quotas.charge(now, tokens(8));
    assert_eq!(quotas.take_thresholds().len(), 1);
}

/// A change of a quota of an hour.
fn request(change: QuotaChange) -> QuotaChangeRequest {
    QuotaChangeRequest {
        quota: "hour".to_owned(),
        by: "operator".to_owned(),
        change,
    }
}

fn credit(id: &str, amount: u64, until_hour: Option<u64>) -> QuotaChangeRequest {
    request(QuotaChange::Credit {
        id: id.to_owned(),
        amount: tokens(amount),
        until: until_hour.map(|hour| WallTime::from_millis((24 + hour) * HOUR_MS)),
    })
}

#[test]
fn a_credit_is_given_once_and_used_after_the_window() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    for _ in 0..2 {
        quotas
            .change(now, Tokens::ZERO, &credit("a", 5, Some(3)))
            .unwrap();
    }
    assert_eq!(quotas.left(), tokens(15));
    let differs = quotas.change(now, Tokens::ZERO, &credit("a", 6, None));
    assert_eq!(differs, Err(QuotaError::CreditDiffers));
    quotas.charge(now, tokens(12));
    let level = quotas.strictest(now).unwrap();
    assert_eq!((level.amount, level.left), (tokens(10), tokens(3)));
    // The rest of it holds in the next window, until it expires.
    let now = advance(&mut quotas, 1, 0);
    assert_eq!(quotas.left(), tokens(13));
    let [record] = &*quotas.records() else {
        panic!("one")
    };
    assert_eq!(
        record.ended[0].used,
        tokens(12),
        "what credits paid is used"
    );
    // Of two, the one that expires first is used first.
    quotas
        .change(now, Tokens::ZERO, &credit("b", 2, None))
        .unwrap();
    quotas.charge(now, tokens(12));
    advance(&mut quotas, 2, 0);
    assert_eq!(quotas.left(), tokens(13));
    advance(&mut quotas, 3, 0);
    assert_eq!(quotas.left(), tokens(10));
    let now = advance(&mut quotas, 4, 0);
    let expired = quotas.change(now, Tokens::ZERO, &credit("c", 2, Some(4)));
    assert_eq!(expired, Err(QuotaError::Expired));
    let withdraw = request(QuotaChange::Withdraw { id: "d".to_owned() });
    let none = quotas.change(now, Tokens::ZERO, &withdraw);
    assert_eq!(none, Err(QuotaError::NoCredit));
    quotas
        .change(now, Tokens::ZERO, &credit("d", 2, None))
        .unwrap();
    quotas.change(now, Tokens::ZERO, &withdraw).unwrap();
    assert_eq!(quotas.left(), tokens(10));
}

#[test]
fn a_quota_that_is_gone_for_good_is_forgotten() {
    let hourly = vec![quota(10, CalendarUnit::Hour)];
    let mut quotas = of(hourly);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(1));
    advance(&mut quotas, 1, 0);
    quotas.set(&Quotas::new(vec![quota(10, CalendarUnit::Day)]));
    let now = advance(&mut quotas, 1, 0);
    assert_eq!(quotas.records().len(), 1, "the hour's is gone");
    quotas.charge(now, tokens(1));
    quotas.set(&Quotas::default());
    assert_eq!(quotas.records().len(), 1, "the day's counts still");
    advance(&mut quotas, 24, 0);
    assert!(quotas.records().is_empty());
}

#[test]
fn a_quota_has_so_many_credits_and_changes_and_no_more() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    let mut give = |i: u64| quotas.change(now, Tokens::ZERO, &credit(&i.to_string(), 1, None));
    assert!((0..16).all(|i| give(i).is_ok()));
    assert_eq!(give(16), Err(QuotaError::TooManyCredits));
    assert_eq!(give(3), Ok(()), "known");
    assert_eq!(quotas.left(), tokens(26));
    let [record] = &*quotas.records() else {
        panic!("one")
    };
    let ids = record
        .events
        .iter()
        .map(|event| event.credit.clone().unwrap());
    assert!(ids.eq((8..16).map(|i: u64| i.to_string())));
}

#[test]
fn what_a_person_says_is_used_counts_beside_what_clients_hold() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(9));
    let set = |used| request(QuotaChange::SetUsed(tokens(used)));
    quotas.change(now, tokens(2), &set(0)).unwrap();
    assert_eq!(quotas.left(), tokens(8));
    quotas.change(now, tokens(2), &set(20)).unwrap();
    assert_eq!(quotas.left(), Tokens::ZERO);
    let unknown = QuotaChangeRequest {
        quota: "day".to_owned(),
        ..set(1)
    };
    let refused = quotas.change(now, Tokens::ZERO, &unknown);
    assert_eq!(refused, Err(QuotaError::Unknown));
    advance(&mut quotas, 1, 0);
    assert_eq!(quotas.left(), tokens(10));
}

#[test]
fn windows_that_have_ended_are_remembered_a_while_and_so_many() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    for hour in 0..15 {
        let now = advance(&mut quotas, hour, u64::from(hour == 5));
        quotas.charge(now, tokens(hour));
    }
    let now = advance(&mut quotas, 15, 0);
    let [record] = &*quotas.records() else {
        panic!("one")
    };
    let used: Vec<_> = record
        .ended
        .iter()
        .map(|window| window.used.whole())
        .collect();
    // The client held one of the tokens of the fifth at its end.
    assert_eq!(used, [3, 3, 6, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    let hours = record
        .ended
        .iter()
        .map(|window| window.end.as_millis() / HOUR_MS);
    assert!(hours.eq(28..40));
    // An eighth of an hour after the last of them, also by the word of a store.
    let eighth = Duration::from_millis(HOUR_MS / 8);
    assert_eq!(quotas.unused_at(), Some(now.saturating_add(eighth)));
    quotas.charge(now, tokens(1));
    let later = Duration::from_millis(HOUR_MS) + eighth;
    assert_eq!(quotas.unused_at(), Some(now.saturating_add(later)));
}

#[test]
fn credits_and_what_is_told_of_changes_are_stored_at_once() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(10));
    quotas.store();
    assert!(!quotas.are_beyond_stored());
    quotas
        .change(now, Tokens::ZERO, &credit("a", 5, None))
        .unwrap();
    assert!(quotas.are_beyond_stored());
    let before = quotas.store();
    assert!(!quotas.are_beyond_stored());
    quotas.charge(now, tokens(2));
    assert!(quotas.are_beyond_stored());
    // Of two records the one with less counts.
    let mut other = of(vec![quota(10, CalendarUnit::Hour)]);
    advance(&mut other, 0, 0);
    other.restore(&quotas.store(), (Tokens::ZERO, now));
    other.merge(&before);
    assert_eq!(other.left(), tokens(3));
}

#[test]
fn what_comes_back_counts_no_more_in_the_window_it_was_spent_in() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0).saturating_add(Duration::from_secs(10));
    quotas.charge(now, tokens(10));
    refund(&mut quotas, now, 5, 4);
    assert_eq!(quotas.left(), tokens(4));
    refund(&mut quotas, now, 0, 40);
    assert_eq!(quotas.left(), tokens(10), "no more than was used");
}

#[test]
fn what_was_spent_in_a_window_before_does_not_come_back() {
    let mut quotas = of(vec![
        quota(10, CalendarUnit::Hour),
        quota(25, CalendarUnit::Day),
    ]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(10));
    let now = advance(&mut quotas, 1, 0);
    quotas.charge(now, tokens(8));
    let later = now.saturating_add(Duration::from_secs(30));
    refund(&mut quotas, later, 31, 5);
    assert_eq!(quotas.left(), tokens(2));
    refund(&mut quotas, later, 30, 5);
    assert_eq!(quotas.left(), tokens(7));
}

#[test]
fn what_was_spent_before_a_restart_or_a_change_does_not_come_back() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(10));
    let mut restored = of(vec![quota(10, CalendarUnit::Hour)]);
    restored.restore(&quotas.records(), (Tokens::ZERO, Instant::ZERO));
    let (begun, clock) = after(Duration::from_secs(60));
    restored.advance(begun, clock, Tokens::ZERO);
    let now = begun.saturating_add(Duration::from_secs(30));
    refund(&mut restored, now, 31, 5);
    assert_eq!(restored.left(), Tokens::ZERO);
    refund(&mut restored, now, 20, 5);
    assert_eq!(restored.left(), tokens(5));
}

#[test]
fn what_comes_back_of_a_rolling_quota_is_of_the_part_that_ends_first() {
    let period = QuotaPeriod::Rolling(Duration::from_secs(3600));
    let mut quotas = of(vec![Quota {
        amount: tokens(10),
        period,
    }]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(4));
    let (later, clock) = after(Duration::from_secs(1800));
    quotas.advance(later, clock, Tokens::ZERO);
    quotas.charge(later, tokens(6));
    refund(&mut quotas, later, 0, 3);
    assert_eq!(quotas.left(), tokens(3));
    let (after_first, clock) = after(Duration::from_secs(3800));
    quotas.advance(after_first, clock, Tokens::ZERO);
    assert_eq!(quotas.left(), tokens(4), "six are still used");
}

#[test]
fn what_was_spent_before_there_was_a_quota_does_not_come_back() {
    let mut quotas = of(vec![quota(10, CalendarUnit::Hour)]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(6));
    let both = [quota(10, CalendarUnit::Hour), quota(10, CalendarUnit::Day)];
    quotas.set(&Quotas::new(both.to_vec()));
    let (later, clock) = after(Duration::from_secs(60));
    quotas.advance(later, clock, Tokens::ZERO);
    quotas.charge(later, tokens(3));
    refund(&mut quotas, later, 60, 3);
    assert_eq!(quotas.left(), tokens(1));
    let (again, clock) = after(Duration::from_secs(120));
    quotas.set(&Quotas::new(both.to_vec()));
    quotas.advance(again, clock, Tokens::ZERO);
    refund(&mut quotas, again, 50, 3);
    assert_eq!(quotas.left(), tokens(4), "the same quotas change nothing");
}

#[test]
fn what_does_not_count_any_more_of_a_rolling_quota_does_not_come_back() {
    let period = QuotaPeriod::Rolling(Duration::from_secs(60));
    let amount = tokens(1000);
    let mut quotas = of(vec![Quota { amount, period }]);
    let now = advance(&mut quotas, 0, 0);
    quotas.charge(now, tokens(900));
    let (later, clock) = after(Duration::from_secs(100));
    quotas.advance(later, clock, Tokens::ZERO);
    quotas.charge(later, tokens(900));
    let (end, clock) = after(Duration::from_secs(110));
    quotas.advance(end, clock, Tokens::ZERO);
    refund(&mut quotas, end, 110, 800);
    assert_eq!(quotas.left(), tokens(100));
    refund(&mut quotas, end, 10, 800);
    assert_eq!(quotas.left(), tokens(900));
}
