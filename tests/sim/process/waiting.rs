//! A worker in which requests beyond the limit wait for their turn, as with `on_limit: shape`.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::client::{DrawResult, Shortage, WaitQueue, Waiter};
use tollgate_core::token_cache::TokenCache;
use tollgate_core::units::{Instant, Tokens};

use super::requests::take;
use super::work::{Desk, Tally, Worker};
use crate::random::Random;

/// The most requests of one member that wait.
const MEMBER_MAX: usize = 200;
/// How long the bucket is left alone at most, for limits may be raised.
const LOOK_LATEST: Duration = Duration::from_millis(100);
/// How much later than its time a request may be answered: the workers' tick.
const LATE: Duration = Duration::from_millis(10);

/// A slab, and those who wait for tokens.
pub(super) struct Queue {
    max_wait: Duration,
    members: u64,
    cache: TokenCache,
    line: Option<WaitQueue>,
    /// When the bucket is asked again.
    due: Instant,
    /// By arrival.
    waiting: BTreeMap<u64, Waiting>,
    arrivals: u64,
    /// The arrival of the last one of each member that went.
    went: BTreeMap<u64, u64>,
    tally: Tally,
}

struct Waiting {
    member: u64,
    deadline: Instant,
}

// === impl Queue ===

impl Queue {
    pub(super) fn new(max_wait: Duration, members: u64) -> Self {
        Self {
            max_wait,
            members,
            cache: TokenCache::default(),
            line: None,
            due: Instant::ZERO,
            waiting: BTreeMap::new(),
            arrivals: 0,
            went: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// A request waits, if its turn comes in time.
    fn join(&mut self, now: Instant, member: u64, goes_at: Option<Instant>) {
        let deadline = now.saturating_add(self.max_wait);
        let Some(line) = &mut self.line else {
            return;
        };
        let room = line.turns().len_of(member) < MEMBER_MAX;
        if room && goes_at.is_some_and(|at| at <= deadline) {
            self.arrivals += 1;
            self.tally.joined += 1;
            self.waiting
                .insert(self.arrivals, Waiting { member, deadline });
            line.join(Waiter {
                member,
                arrival: self.arrivals,
                stream: 0,
                cost: Tokens::ONE,
            });
        }
    }

    /// Those whose turn it is go until there are no tokens.
    fn run(&mut self, desk: &mut Desk<'_>) -> u64 {
        let mut gone = 0;
        while let Some(first) = self.line.as_ref().and_then(|line| line.turns().first()) {
            match take(&mut self.cache, desk) {
                Ok(()) => {
                    gone += 1;
                    let turn = self.line.as_mut().and_then(WaitQueue::let_go);
                    desk.ensure(turn == Some(first), || {
                        format!("{first:?} goes, not {turn:?}")
                    });
                    self.goes(desk, first);
                }
                Err(said) => {
                    let short = shortage(desk, said);
                    let now = desk.now;
                    if let (Some(line), Some(short)) = (&mut self.line, short) {
                        line.fall_short(now, gone as usize, desk.workers, short);
                        self.due = line.look_at().min(now.saturating_add(LOOK_LATEST));
                    }
                    break;
                }
            }
        }
        gone
    }

    fn goes(&mut self, desk: &mut Desk<'_>, turn: Waiter) {
        self.tally.went += 1;
        let known = self.waiting.remove(&turn.arrival);
        desk.ensure(known.is_some(), || format!("{turn:?} went twice"));
        let before = self.went.insert(turn.member, turn.arrival);
        desk.ensure(before < Some(turn.arrival), || {
            format!("{turn:?} went after {before:?} of its member")
        });
        let rest = self
            .waiting
            .iter()
            .find(|(_, waiting)| waiting.member == turn.member);
        desk.ensure(
            rest.is_none_or(|(arrival, _)| *arrival > turn.arrival),
            || format!("{turn:?} overtook one of its member"),
        );
    }

    /// A request leaves without having gone.
    fn leave(&mut self, desk: &Desk<'_>, arrival: u64) {
        if let (Some(waiting), Some(line)) = (self.waiting.remove(&arrival), &mut self.line) {
            line.leave(desk.now, waiting.member, arrival);
            self.due = self.due.min(line.look_at());
        }
    }
}

impl Worker for Queue {
    fn attempt(&mut self, desk: &mut Desk<'_>, random: &mut Random) -> u64 {
        let now = desk.now;
        desk.rate().count(now, 1);
        let member = random.between(1, self.members);
        if let Some(line) = &self.line {
            self.join(now, member, line.estimate(member, Tokens::ONE));
            return 0;
        }
        match take(&mut self.cache, desk) {
            Ok(()) => 1,
            Err(said) => {
                if let Some(short) = shortage(desk, said) {
                    let line = WaitQueue::new(now, short);
                    self.due = line.look_at().min(now.saturating_add(LOOK_LATEST));
                    self.line = Some(line);
                    self.join(now, member, short.retry_at);
                }
                0
            }
        }
    }

    fn tick(&mut self, desk: &mut Desk<'_>, random: &mut Random, tidy: bool) -> u64 {
        let now = desk.now;
        if tidy && self.line.is_none() {
            let policy = desk.policy;
            desk.rate().give_back(now, policy, self.cache.drain());
        }
        if !self.waiting.is_empty() && random.chance(2) {
            let index = random.between(0, self.waiting.len() as u64 - 1) as usize;
            let arrival = self.waiting.keys().nth(index).copied();
            self.leave(desk, arrival.unwrap_or_default());
            self.tally.left += 1;
        }
        let gone = if self.due <= now { self.run(desk) } else { 0 };
        let over = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.deadline <= now);
        let over: Vec<u64> = over.map(|(arrival, _)| *arrival).collect();
        for arrival in over {
            self.leave(desk, arrival);
            self.tally.timed_out += 1;
        }
        let workers = desk.workers;
        let attempts = self.line.as_mut().map(|line| line.attempts(now, workers));
        desk.rate().count(now, attempts.unwrap_or(0));
        self.line.take_if(|line| line.turns().is_empty());
        gone
    }

    fn hurry(&mut self, now: Instant) {
        if let Some(line) = &mut self.line {
            line.hurry(now);
            self.due = line.look_at();
        }
    }

    fn tally(&self) -> Tally {
        Tally {
            waiting: self.waiting.len() as u64,
            ..self.tally
        }
    }

    /// Whether the line knows whom the worker knows, and nobody waits for longer than it may.
    fn check(&self, now: Instant) -> Result<(), String> {
        let turns = self.line.as_ref().map(WaitQueue::turns);
        let (len, cost) = turns.map_or((0, Tokens::ZERO), |turns| (turns.len(), turns.cost()));
        let waiting = self.waiting.len();
        if len != waiting || cost != Tokens::from_whole(waiting as u64) {
            return Err(format!("{waiting} wait, {len} are in line for {cost:?}"));
        }
        let late = |waiting: &&Waiting| now > waiting.deadline.saturating_add(LATE);
        match self.waiting.values().find(late) {
            Some(waiting) => Err(format!("one waits at {now:?} until {:?}", waiting.deadline)),
            None => Ok(()),
        }
    }
}

// === free functions ===

/// What the bucket said; none while the first answer is awaited.
fn shortage(desk: &mut Desk<'_>, said: DrawResult) -> Option<Shortage> {
    let retry_at = match said {
        DrawResult::Denied { retry_at } => retry_at,
        DrawResult::ExceedsBurst { .. } => None,
        DrawResult::Tokens(_) | DrawResult::Pending { .. } => return None,
    };
    let (now, policy) = (desk.now, desk.policy);
    let (rate, _) = desk.rate().flow(now, policy);
    Some(Shortage {
        need: Tokens::ONE,
        retry_at,
        rate,
    })
}
