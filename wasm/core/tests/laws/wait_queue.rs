//! Laws of waiting: no request is forgotten, members get the same number of tokens, and what they
//! were told about their wait is true.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::bucket::{TakeError, TokenBucket};
use tollgate_core::client::{FairOrder, Shortage, WaitQueue, Waiter};
use tollgate_core::units::{Instant, Rate, Tokens};

use super::random::Random;
use super::{Verdict, ensure};

/// The greatest cost of a request, in tokens.
const COST_MAX: u64 = 9;

const START: Instant = Instant::from_nanos(5_000_000_000);

/// With any arrivals and departures: no request is lost, none goes twice, each member's requests go
/// in the order of their arrival, and while a member waits no other gets more tokens than it by more
/// than the greatest costs of the two together.
pub(crate) fn shares_the_tokens(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let members = 1 + random.below(6);
    let mut turns = FairOrder::default();
    let mut waiting: BTreeMap<(u64, u64), Waiter> = BTreeMap::new();
    let mut taken: Vec<Waiter> = Vec::new();
    let mut leads = Leads::default();
    for arrival in 0..200 {
        let turn = Waiter {
            member: random.below(members),
            arrival,
            stream: arrival as u32,
            cost: Tokens::from_whole(1 + random.below(COST_MAX)),
        };
        match random.below(10) {
            0..=4 => {
                turns.insert(turn);
                waiting.insert((turn.member, arrival), turn);
            }
            5 => {
                // Somebody leaves, or comes back to the place that the arrival gives.
                let Some(turn) = any(&mut random, &waiting) else {
                    continue;
                };
                ensure!(turns.remove(turn.member, turn.arrival), "{turn:?} is lost");
                ensure!(
                    !turns.remove(turn.member, turn.arrival),
                    "{turn:?} was there twice"
                );
                if random.chance(50) {
                    turns.insert(turn)
                } else {
                    waiting.remove(&(turn.member, turn.arrival));
                }
                leads.forget(turn.member);
            }
            _ => {
                let Some(turn) = turns.pop_first() else {
                    ensure!(waiting.is_empty(), "{} are lost", waiting.len());
                    continue;
                };
                let first = waiting.range((turn.member, 0)..).next();
                ensure!(
                    first.map(|(place, _)| place.1) == Some(turn.arrival),
                    "{turn:?} went before {first:?}"
                );
                waiting.remove(&(turn.member, turn.arrival));
                taken.push(turn);
                leads.count(&waiting, turn)?;
            }
        }
        same(&turns, &waiting)?;
    }
    let numbers: BTreeSet<u64> = taken.iter().map(|turn| turn.arrival).collect();
    ensure!(numbers.len() == taken.len(), "somebody went twice");
    Ok(())
}

/// Leads of members over others in tokens, each the greatest over all windows that end now and in
/// which the other always waited.
#[derive(Default)]
struct Leads(BTreeMap<(u64, u64), u64>);

impl Leads {
    /// Begins the windows of `member` anew, since it may not have waited for a moment.
    fn forget(&mut self, member: u64) {
        self.0.retain(|(_, other), _| *other != member);
    }

    /// Counts a request that has gone, when `waiting` are left.
    fn count(&mut self, waiting: &BTreeMap<(u64, u64), Waiter>, gone: Waiter) -> Verdict {
        let waits: BTreeSet<u64> = waiting.keys().map(|(other, _)| *other).collect();
        let cost = gone.cost.whole();
        for ((_, other), lead) in &mut self.0 {
            if *other == gone.member {
                *lead = lead.saturating_sub(cost);
            }
        }
        self.0.retain(|(_, other), _| waits.contains(other));
        for other in waits.into_iter().filter(|other| *other != gone.member) {
            let lead = self.0.entry((gone.member, other)).or_default();
            *lead += cost;
            let most = 2 * COST_MAX;
            ensure!(
                *lead <= most,
                "{other} waits, and {} has {lead} more",
                gone.member
            );
        }
        Ok(())
    }
}

/// Whether `turns` has as many as are `waiting`, and knows what they cost.
fn same(turns: &FairOrder, waiting: &BTreeMap<(u64, u64), Waiter>) -> Verdict {
    ensure!(
        turns.len() == waiting.len(),
        "{} of {}",
        turns.len(),
        waiting.len()
    );
    let costs = waiting.values().map(|turn| turn.cost);
    let cost = costs.fold(Tokens::ZERO, Tokens::saturating_add);
    ensure!(turns.cost() == cost, "{:?} of {cost:?}", turns.cost());
    Ok(())
}

/// At a steady rate, with one worker, nobody goes before the time that was estimated for it, and
/// later only by what those take that came after it and have their turn before it.
pub(crate) fn estimates_are_true(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let rate = Rate::from_micros(1_000_000 + random.spread(1 << 34));
    let burst = Tokens::from_whole(1 + random.below(10));
    let mut scene = Scene {
        bucket: TokenBucket::empty(START, rate, burst),
        queue: None,
        told: BTreeMap::new(),
        gone: Vec::new(),
    };
    let mut now = START;
    for arrival in 0..60 {
        let step = rate.time_for(Tokens::from_micros(1 + random.spread(8_000_000)));
        now = now.saturating_add(step.unwrap_or_default());
        scene.run_until(now)?;
        let cost = Tokens::from_whole(1 + random.below(burst.whole()));
        scene.come(
            now,
            Waiter {
                member: random.below(4),
                arrival,
                stream: 0,
                cost,
            },
        )?;
    }
    scene.run_until(Instant::from_nanos(u64::MAX / 2))?;
    ensure!(scene.queue.is_none(), "somebody still waits");
    for (index, (at, turn)) in scene.gone.iter().enumerate() {
        let Some(told) = scene.told.get(&turn.arrival) else {
            continue;
        };
        ensure!(at >= told, "{turn:?} went at {at:?}, told {told:?}");
        let before = scene.gone.iter().take(index).map(|(_, other)| other);
        let joined = before.filter(|other| other.arrival > turn.arrival);
        let joined = joined.fold(Tokens::ZERO, |sum, other| sum.saturating_add(other.cost));
        // A bucket that is full for a moment, as for a request that takes all of it, loses a fraction.
        let late = rate.time_for(joined).ok_or("no rate")?.as_nanos() + 100;
        ensure!(
            at.saturating_since(*told).as_nanos() <= late,
            "{turn:?} went at {at:?}, told {told:?}, {late} ns for those who joined"
        );
    }
    Ok(())
}

/// A bucket and those who wait for it.
struct Scene {
    bucket: TokenBucket,
    queue: Option<WaitQueue>,
    told: BTreeMap<u64, Instant>,
    gone: Vec<(Instant, Waiter)>,
}

impl Scene {
    fn come(&mut self, now: Instant, turn: Waiter) -> Verdict {
        if let Some(queue) = &mut self.queue {
            let shown = queue
                .estimate(turn.member, turn.cost)
                .ok_or("no estimate")?;
            self.told.insert(turn.arrival, shown.max(now));
            queue.join(now, turn);
            return Ok(());
        }
        match self.ask(now, turn.cost)? {
            None => self.gone.push((now, turn)),
            Some(shortage) => {
                let mut queue = WaitQueue::new(now, shortage);
                let shown = queue
                    .estimate(turn.member, turn.cost)
                    .ok_or("no estimate")?;
                self.told.insert(turn.arrival, shown.max(now));
                queue.join(now, turn);
                self.queue = Some(queue);
            }
        }
        Ok(())
    }

    /// Lets those go whose time has come.
    fn run_until(&mut self, end: Instant) -> Verdict {
        while let Some(mut queue) = self.queue.take() {
            let now = queue.look_at();
            if now > end {
                self.queue = Some(queue);
                return Ok(());
            }
            let mut gone = 0;
            while let Some(turn) = queue.turns().first() {
                if let Some(shortage) = self.ask(now, turn.cost)? {
                    queue.fall_short(now, gone, 1, shortage);
                    self.queue = Some(queue);
                    break;
                }
                queue.let_go();
                self.gone.push((now, turn));
                gone += 1;
            }
        }
        Ok(())
    }

    fn ask(&mut self, now: Instant, need: Tokens) -> Result<Option<Shortage>, String> {
        match self.bucket.take(now, need) {
            Ok(()) => Ok(None),
            Err(TakeError::Short { retry_at }) => Ok(Some(Shortage {
                need,
                retry_at,
                rate: self.bucket.rate(),
            })),
            Err(other) => Err(other.to_string()),
        }
    }
}

fn any(random: &mut Random, waiting: &BTreeMap<(u64, u64), Waiter>) -> Option<Waiter> {
    let index = random.below(waiting.len().max(1) as u64) as usize;
    waiting.values().nth(index).copied()
}
