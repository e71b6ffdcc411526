//! The lines of requests that wait for their turn in one worker, and when something is due there.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::client::{Shortage, WaitQueue, Waiter};
use tollgate_core::units::{Instant, Tokens};

use super::held::Arrival;
use super::{Request, Target};
use crate::refusal::Denial;

/// Where a line is: at an entry of a table.
pub(super) type Place = (u16, u32);

/// All who wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<Place, Queue>,
    /// When each line's bucket should be asked again.
    due: BTreeSet<(Instant, Place)>,
    /// By context.
    waiting: BTreeMap<u32, Waiting>,
    deadlines: BTreeSet<(Instant, u32)>,
    /// How many have begun to wait so far.
    arrivals: u64,
    /// There was more to do than one callback may.
    pub(super) backlog: bool,
}

/// A line, and what its bucket said last.
#[derive(Debug)]
struct Queue {
    line: WaitQueue,
    target: Target,
    denial: Denial,
    due: Instant,
}

/// A request that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) arrival: Arrival,
    pub(super) targets: Request,
    /// When it is refused if it could not go on before.
    pub(super) deadline: Instant,
    /// What it is short of.
    pub(super) target: Target,
    pub(super) member: u64,
    pub(super) number: u64,
}

// === impl Lines ===

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many wait at `target`.
    pub(super) fn len_at(&self, target: Target) -> usize {
        let queue = self.lines.get(&target.place());
        queue.map_or(0, |queue| queue.line.turns().len())
    }

    /// How many of `member` wait at `target`.
    pub(super) fn len_of(&self, target: Target, member: u64) -> usize {
        let queue = self.lines.get(&target.place());
        queue.map_or(0, |queue| queue.line.turns().len_of(member))
    }

    /// What those take together that go before a request of `member` that comes to `target` now.
    pub(super) fn ahead_of(&self, target: Target, member: u64) -> Tokens {
        let queue = self.lines.get(&target.place());
        queue.map_or(Tokens::ZERO, |queue| queue.line.turns().ahead_of(member))
    }

    /// What a request of `member` that comes to `target` now is denied with, if others wait there.
    pub(super) fn denial(&self, target: Target, member: u64, cost: Tokens) -> Option<Denial> {
        let queue = self.lines.get(&target.place())?;
        Some(Denial {
            retry_at: queue.line.estimate(member, cost),
            need: cost,
            ..queue.denial
        })
    }

    /// Adds a request that is short at `target`, of which its bucket said `denial` if nobody waits
    /// there yet. True if nobody did.
    pub(super) fn join(
        &mut self,
        now: Instant,
        arrival: Arrival,
        targets: &Request,
        (target, member): (Target, u64),
        deadline: Instant,
        denial: Denial,
    ) -> bool {
        let number = self.arrivals;
        self.arrivals = number.saturating_add(1);
        let waiting = Waiting {
            arrival,
            targets: *targets,
            deadline,
            target,
            member,
            number,
        };
        self.put(now, waiting, denial)
    }

    /// Lets a request that is first in its line wait in that of `target` instead, at the place that
    /// the order of arrival gives it. True if nobody waits there yet.
    pub(super) fn transfer(
        &mut self,
        now: Instant,
        waiting: Waiting,
        (target, member): (Target, u64),
        deadline: Instant,
        denial: Denial,
    ) -> bool {
        if let Some(queue) = self.lines.get_mut(&waiting.target.place()) {
            queue.line.give_up_turn();
        }
        self.deadlines
            .remove(&(waiting.deadline, waiting.arrival.context));
        let waiting = Waiting {
            target,
            member,
            deadline: waiting.deadline.min(deadline),
            ..waiting
        };
        self.put(now, waiting, denial)
    }

    fn put(&mut self, now: Instant, waiting: Waiting, denial: Denial) -> bool {
        let context = waiting.arrival.context;
        let place = waiting.target.place();
        let fresh = !self.lines.contains_key(&place);
        let queue = self.lines.entry(place).or_insert_with(|| Queue {
            line: WaitQueue::new(now, shortage(&denial)),
            target: waiting.target,
            denial,
            due: now,
        });
        queue.line.join(Waiter {
            member: waiting.member,
            arrival: waiting.number,
            stream: context,
            cost: waiting.targets.cost,
        });
        self.deadlines.insert((waiting.deadline, context));
        self.waiting.insert(context, waiting);
        if fresh {
            self.set_due(place, now);
        }
        fresh
    }

    /// Whose turn it is at `place`.
    pub(super) fn first(&self, place: Place) -> Option<Waiting> {
        let first = self.lines.get(&place)?.line.turns().first()?;
        self.waiting.get(&first.stream).copied()
    }

    /// A request does not wait any more: it goes, or is answered.
    pub(super) fn take(&mut self, now: Instant, context: u32, goes: bool) -> Option<Waiting> {
        let waiting = self.waiting.remove(&context)?;
        self.deadlines.remove(&(waiting.deadline, context));
        let place = waiting.target.place();
        let queue = self.lines.get_mut(&place)?;
        match goes {
            true => {
                queue.line.let_go();
            }
            false => queue.line.leave(now, waiting.member, waiting.number),
        }
        let due = queue.line.look_at().min(queue.due);
        self.set_due(place, due);
        Some(waiting)
    }

    /// Keeps what became of the request whose turn it is: others of its targets, perhaps.
    pub(super) fn keep(&mut self, context: u32, targets: &Request) {
        if let Some(waiting) = self.waiting.get_mut(&context) {
            waiting.targets = *targets;
        }
    }

    /// The bucket at `place` has been asked, `gone` requests went, and for the next it said `denial`.
    pub(super) fn fall_short(
        &mut self,
        now: Instant,
        place: Place,
        gone: usize,
        workers: u32,
        denial: Denial,
    ) {
        let Some(queue) = self.lines.get_mut(&place) else {
            return;
        };
        queue.line.fall_short(now, gone, workers, shortage(&denial));
        queue.denial = denial;
    }

    /// Sets when the bucket at `place` is asked again: when it should be, but within these bounds.
    pub(super) fn look_within(&mut self, place: Place, earliest: Instant, latest: Instant) {
        if let Some(queue) = self.lines.get(&place) {
            let at = queue.line.look_at().clamp(earliest, latest.max(earliest));
            self.set_due(place, at);
        }
    }

    /// Forgets the line at `place` if nobody waits there, and says where it was.
    pub(super) fn close(&mut self, place: Place) -> Option<Target> {
        let queue = self.lines.get(&place)?;
        if !queue.line.turns().is_empty() {
            return None;
        }
        self.due.remove(&(queue.due, place));
        self.lines.remove(&place).map(|queue| queue.target)
    }

    /// A line whose bucket should be asked by `now`.
    pub(super) fn due(&self, now: Instant) -> Option<Place> {
        let (at, place) = self.due.first()?;
        (*at <= now).then_some(*place)
    }

    /// A request whose time is over.
    pub(super) fn overdue(&self, now: Instant) -> Option<u32> {
        let (at, context) = self.deadlines.first()?;
        (*at <= now).then_some(*context)
    }

    /// When something is to be done next, if anybody waits.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        if self.backlog {
            return Some(Instant::ZERO);
        }
        let due = self.due.first().map(|(at, _)| *at);
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        due.into_iter().chain(deadline).min()
    }

    /// The buckets of the lines that `concerned` says should be asked at once.
    pub(super) fn hurry(&mut self, now: Instant, mut concerned: impl FnMut(Target) -> bool) {
        let mut hurried = Vec::new();
        for (place, queue) in &mut self.lines {
            if concerned(queue.target) {
                queue.line.hurry(now);
                hurried.push(*place);
            }
        }
        for place in hurried {
            self.set_due(place, now);
        }
    }

    /// Attempts to count for those who wait, by line.
    pub(super) fn attempts(&mut self, now: Instant, workers: u32) -> Vec<(Target, u32)> {
        let lines = self.lines.values_mut();
        let attempts = lines.map(|queue| {
            let attempts = queue.line.attempts(now, workers);
            (queue.target, u32::try_from(attempts).unwrap_or(u32::MAX))
        });
        attempts.filter(|(_, attempts)| *attempts > 0).collect()
    }

    fn set_due(&mut self, place: Place, due: Instant) {
        if let Some(queue) = self.lines.get_mut(&place) {
            self.due.remove(&(queue.due, place));
            queue.due = due;
            self.due.insert((due, place));
        }
    }
}

// === free functions ===

fn shortage(denial: &Denial) -> Shortage {
    Shortage {
        need: denial.need,
        retry_at: denial.retry_at,
        rate: denial.rate,
    }
}
