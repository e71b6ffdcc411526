//! Wait queues of one worker: requests that wait for their turn at a bucket, and requests that are held
//! for a first lease.
//!
//! A request is charged when it goes on, not before: one that gives up costs nothing, and one that
//! needs several buckets takes from all or none. It waits in the queue of the bucket that is short; if
//! another one is at its turn, it waits there, at the place that its arrival gives it. A request that
//! comes overtakes none that waits for one of its buckets, and one whose turn has come none of its own
//! member.

use core::time::Duration;
use std::collections::BTreeMap;

use tollgate_core::client::{Shortage, WaitQueue, Waiter};
use tollgate_core::deadlines::Deadlines;
use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Tokens};

use crate::admission::{Request, Stage};
use crate::config::Shape;
use crate::decision::{BucketId, Shortfall, Target};
use crate::effect::Waited;
use crate::refusal::Denial;

mod pending;

pub(crate) use pending::{PendingRequest, PendingRequests};

/// A bucket is asked no sooner again: timers are no finer.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Longest time between the turn of a request and its release: that until its bucket is asked again,
/// and that until the host's timer ends, with a whole millisecond. A request whose turn comes no later
/// than this before its deadline goes on, however late a callback is.
const RELEASE_LAG: Duration = Duration::from_millis(2);

/// Requests of one worker that wait.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues {
    /// Requests that are held for a first lease.
    pub(crate) pending: PendingRequests,
    queues: BTreeMap<BucketId, BucketQueue>,
    /// When each bucket should be asked again.
    due: Deadlines<BucketId>,
    /// Requests that wait for their turn, by stream.
    queued: BTreeMap<u32, QueuedRequest>,
    deadlines: Deadlines<u32>,
    /// Requests that have begun to wait so far.
    arrivals: u64,
    /// True if there was more to do than one callback may.
    pub(crate) has_backlog: bool,
}

/// Queue at a bucket, and what the bucket denied last.
#[derive(Debug)]
struct BucketQueue {
    queue: WaitQueue,
    target: Target,
    denial: Denial,
    due: Option<Instant>,
}

/// Request that waits, with its arrival.
#[derive(Clone, Debug)]
pub(crate) struct WaitingRequest {
    pub(crate) request: Request,
    pub(crate) since: Instant,
    /// Time that its client would wait.
    pub(crate) max_wait: Duration,
}

/// Request that waits for its turn.
#[derive(Clone, Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) waiting: WaitingRequest,
    /// Time at which it is refused if it could not go on before.
    deadline: Instant,
    /// The bucket that is short.
    pub(crate) target: Target,
    member: u64,
    number: u64,
}

/// Reason that a request may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitError {
    /// Its rule lets none wait.
    NotAllowed,
    /// It would be longer than it may, or than its client likes.
    TooLong,
    /// Too many wait already.
    Full,
}

/// Bounds on waiting at a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// Those of the rule; none if it lets no request wait.
    pub(crate) shape: Option<Shape>,
    /// The most requests that wait for their turn in all queues.
    pub(crate) max_waiting: usize,
    /// The time after which a bucket is asked again in any case.
    pub(crate) tick: Duration,
}

// === impl WaitingRequest ===

impl WaitingRequest {
    fn stream(&self) -> u32 {
        self.request.stream
    }

    /// Returns the wait that ends now; `queued` if it was for a turn.
    pub(crate) fn waited(&self, now: Instant, queued: bool) -> Waited {
        let time = now.saturating_since(self.since);
        Waited { time, queued }
    }
}

// === impl WaitLimits ===

impl WaitLimits {
    fn deadline(&self, waiting: &WaitingRequest) -> Option<Instant> {
        let most = self.shape?.max_wait.min(waiting.max_wait);
        Some(waiting.since.saturating_add(most))
    }

    fn max_per_member(&self) -> usize {
        self.shape.map_or(0, |shape| shape.max_waiting)
    }
}

// === impl WaitQueues ===

impl WaitQueues {
    /// Returns whether no request waits for its turn.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Returns the number of requests that wait for their turn.
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Returns the number of requests that wait, for their turn or for a first lease.
    pub(crate) fn len_in_all(&self) -> usize {
        self.pending.len().saturating_add(self.queued.len())
    }

    /// Returns the requests that wait, for their turn or for a first lease.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        let queued = self.queued.values();
        let queued = queued.map(|queued| &queued.waiting.request);
        self.pending.requests().chain(queued)
    }

    /// Returns the number of requests that wait at a bucket.
    pub(crate) fn len_at(&self, bucket: BucketId) -> usize {
        let queue = self.queues.get(&bucket);
        queue.map_or(0, |queue| queue.queue.turns().len())
    }

    fn len_of(&self, bucket: BucketId, member: u64) -> usize {
        let queue = self.queues.get(&bucket);
        queue.map_or(0, |queue| queue.queue.turns().len_of(member))
    }

    /// Returns the denial of a request at one of its targets because others wait there. Where its turn
    /// has come, at another target, it goes before all but earlier requests of its own member.
    ///
    /// If it went behind all others there, two queues could wait for each other. The oldest request of
    /// a member goes behind none, so they do not.
    pub(crate) fn denial_before(&self, request: &Request, index: usize) -> Option<Denial> {
        let cost = request.cost_at(index);
        if self.is_empty() || cost == Tokens::ZERO {
            return None;
        }
        let target = *request.targets().get(index)?;
        let member = request.member_at(target);
        if request.stage == Stage::Turn && !self.yields_at(request, target, member) {
            return None;
        }
        self.denial(target, member, cost)
    }

    /// Returns whether a request whose turn has come at another bucket goes behind one at this bucket.
    fn yields_at(&self, request: &Request, target: Target, member: u64) -> bool {
        let queued = self.queued.get(&request.stream);
        let elsewhere = queued.filter(|queued| queued.target.bucket() != target.bucket());
        elsewhere.is_some_and(|queued| self.is_behind(target.bucket(), member, queued.number))
    }

    fn is_behind(&self, bucket: BucketId, member: u64, number: u64) -> bool {
        let queue = self.queues.get(&bucket);
        queue.is_some_and(|queue| queue.queue.turns().has_before(member, number))
    }

    fn denial(&self, target: Target, member: u64, cost: Tokens) -> Option<Denial> {
        let queue = self.queues.get(&target.bucket())?;
        Some(Denial {
            retry_at: queue.queue.estimate(member, cost),
            need: cost,
            ..queue.denial
        })
    }

    /// Lets a request wait at the bucket that is short.
    ///
    /// # Errors
    /// If it may not.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        waiting: &WaitingRequest,
        shortfall: Shortfall,
        limits: WaitLimits,
    ) -> Result<(), WaitError> {
        let deadline = limits.deadline(waiting).ok_or(WaitError::NotAllowed)?;
        let Shortfall { target, denial } = shortfall;
        let request = &waiting.request;
        let member = request.member_at(target);
        // The time at which a permit comes free is not known.
        let is_open = denial.unit == Unit::Concurrency && now < deadline;
        let latest = deadline.saturating_sub(RELEASE_LAG);
        let in_time = |at| now < deadline && at <= latest;
        let hoped_at = self.hoped_at(now, shortfall, member, request.cost_of(target));
        if !denial.retry_at.map_or(is_open, in_time) && !hoped_at.is_some_and(in_time) {
            return Err(WaitError::TooLong);
        }
        let is_full = self.len() >= limits.max_waiting;
        if is_full || self.len_of(target.bucket(), member) >= limits.max_per_member() {
            return Err(WaitError::Full);
        }
        let number = self.arrivals;
        self.arrivals = number.saturating_add(1);
        let queued = QueuedRequest {
            waiting: waiting.clone(),
            deadline,
            target,
            member,
            number,
        };
        self.put(now, queued, denial, limits.tick);
        Ok(())
    }

    /// Lets a request whose turn has come wait at another bucket instead, at the place that the order of
    /// arrival gives it.
    ///
    /// # Errors
    /// If it may not.
    pub(crate) fn transfer(
        &mut self,
        now: Instant,
        queued: QueuedRequest,
        shortfall: Shortfall,
        limits: WaitLimits,
    ) -> Result<(), WaitError> {
        let deadline = limits.deadline(&queued.waiting);
        let deadline = deadline.ok_or(WaitError::NotAllowed)?;
        let Shortfall { target, denial } = shortfall;
        let member = queued.waiting.request.member_at(target);
        if deadline <= now {
            return Err(WaitError::TooLong);
        }
        let bucket = target.bucket();
        let is_full = self.len_of(bucket, member) >= limits.max_per_member();
        // One that only keeps its place behind another is not refused for that.
        if is_full && !self.is_behind(bucket, member, queued.number) {
            return Err(WaitError::Full);
        }
        if let Some(queue) = self.queues.get_mut(&queued.target.bucket()) {
            queue.queue.give_up_turn();
        }
        let stream = queued.waiting.stream();
        self.deadlines.remove(queued.deadline, stream);
        let queued = QueuedRequest {
            target,
            member,
            deadline: queued.deadline.min(deadline),
            ..queued
        };
        self.put(now, queued, denial, limits.tick);
        Ok(())
    }

    /// Returns when a request would go if a lease that is about to grow became all that there is; none
    /// if none is.
    fn hoped_at(
        &self,
        now: Instant,
        shortfall: Shortfall,
        member: u64,
        cost: Tokens,
    ) -> Option<Instant> {
        let queue = self.queues.get(&shortfall.target.bucket());
        let ahead = queue.map_or(Tokens::ZERO, |queue| {
            queue.queue.turns().ahead_of(member, cost)
        });
        let rate = shortfall.denial.expected_rate?;
        let wait = rate.time_for(ahead.saturating_add(cost))?;
        Some(now.saturating_add(wait))
    }

    fn put(&mut self, now: Instant, queued: QueuedRequest, denial: Denial, tick: Duration) {
        let stream = queued.waiting.stream();
        let bucket = queued.target.bucket();
        let is_new = !self.queues.contains_key(&bucket);
        let queue = self.queues.entry(bucket).or_insert_with(|| BucketQueue {
            queue: WaitQueue::new(now, shortage(&denial)),
            target: queued.target,
            denial,
            due: None,
        });
        let waiter = Waiter {
            member: queued.member,
            arrival: queued.number,
            stream,
            cost: queued.waiting.request.cost_of(queued.target),
        };
        let overtakes = queue.queue.join(now, waiter);
        self.deadlines.insert(queued.deadline, stream);
        self.queued.insert(stream, queued);
        if is_new || overtakes {
            self.set_due(bucket, now);
            self.look_soon(now, bucket, tick);
        }
    }

    /// Returns the request whose turn it is at a bucket.
    pub(crate) fn first(&self, bucket: BucketId) -> Option<QueuedRequest> {
        let first = self.queues.get(&bucket)?.queue.turns().first()?;
        self.queued.get(&first.stream).cloned()
    }

    /// Takes out the requests that wait where `is_astray` says, the oldest first.
    pub(crate) fn take_strays(
        &mut self,
        now: Instant,
        mut is_astray: impl FnMut(&QueuedRequest) -> bool,
    ) -> Vec<QueuedRequest> {
        let queued = self.queued.values();
        let mut strays: Vec<QueuedRequest> =
            queued.filter(|queued| is_astray(queued)).cloned().collect();
        strays.sort_unstable_by_key(|queued| queued.number);
        for stray in &strays {
            self.take(now, stray.waiting.stream(), false);
        }
        strays
    }

    /// Takes out a request that `goes` on, or does not wait any more.
    pub(crate) fn take(&mut self, now: Instant, stream: u32, goes: bool) -> Option<QueuedRequest> {
        let queued = self.queued.remove(&stream)?;
        self.deadlines.remove(queued.deadline, stream);
        let bucket = queued.target.bucket();
        let queue = self.queues.get_mut(&bucket)?;
        if goes {
            queue.queue.let_go();
        } else {
            queue.queue.leave(now, queued.member, queued.number)
        }
        let look_at = queue.queue.look_at();
        let due = queue.due.map_or(look_at, |due| look_at.min(due));
        self.set_due(bucket, due);
        Some(queued)
    }

    /// Takes out a request whose time is over, and returns it with the bucket that it waited for.
    pub(crate) fn time_out(
        &mut self,
        now: Instant,
        stream: u32,
    ) -> Option<(QueuedRequest, Option<Shortfall>)> {
        let queued = self.take(now, stream, false)?;
        let target = queued.target;
        let cost = queued.waiting.request.cost_of(target);
        let denial = self.denial(target, queued.member, cost);
        let shortfall = denial.map(|denial| Shortfall { target, denial });
        Some((queued, shortfall))
    }

    /// Keeps the request whose turn it is as it was decided on: with other targets, perhaps.
    pub(crate) fn keep(&mut self, request: &Request) {
        if let Some(queued) = self.queued.get_mut(&request.stream) {
            queued.waiting.request.clone_from(request);
        }
    }

    /// Notes that a bucket has been asked: `gone` requests went, and the next one got `denial`.
    pub(crate) fn fall_short(
        &mut self,
        now: Instant,
        shortfall: Shortfall,
        gone: usize,
        workers: u32,
    ) {
        if let Some(queue) = self.queues.get_mut(&shortfall.target.bucket()) {
            let shortage = shortage(&shortfall.denial);
            queue.queue.fall_short(now, gone, workers, shortage);
            queue.denial = shortfall.denial;
        }
    }

    /// Has a bucket asked again when it has enough, and on each tick, for limits may be raised.
    pub(crate) fn look_soon(&mut self, now: Instant, bucket: BucketId, tick: Duration) {
        let earliest = now.saturating_add(LOOK_AGAIN);
        let latest = now.saturating_add(tick).max(earliest);
        if let Some(queue) = self.queues.get(&bucket) {
            let at = queue.queue.look_at().clamp(earliest, latest);
            self.set_due(bucket, at);
        }
    }

    /// Forgets the queue at a bucket if no request waits there, and returns the bucket then.
    pub(crate) fn close(&mut self, bucket: BucketId) -> Option<Target> {
        let queue = self.queues.get_mut(&bucket)?;
        if !queue.queue.turns().is_empty() {
            return None;
        }
        self.due.set(&mut queue.due, None, bucket);
        self.queues.remove(&bucket).map(|queue| queue.target)
    }

    /// Returns a bucket that should be asked by `now`.
    pub(crate) fn due(&self, now: Instant) -> Option<BucketId> {
        self.due.first_due(now).copied()
    }

    /// Returns the stream of a request whose time is over.
    pub(crate) fn overdue(&self, now: Instant) -> Option<u32> {
        self.deadlines.first_due(now).copied()
    }

    /// Returns when something is to be done next, if any request waits for its turn.
    #[inline]
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        if self.has_backlog {
            return Some(Instant::ZERO);
        }
        let due = self.due.earliest();
        due.into_iter().chain(self.deadlines.earliest()).min()
    }

    /// Has the buckets asked at once that `has_changed` says.
    pub(crate) fn hurry(&mut self, now: Instant, mut has_changed: impl FnMut(Target) -> bool) {
        let mut hurried = Vec::new();
        for (bucket, queue) in &mut self.queues {
            if has_changed(queue.target) {
                queue.queue.hurry(now);
                hurried.push(*bucket);
            }
        }
        for bucket in hurried {
            self.set_due(bucket, now);
        }
    }

    /// Returns attempts to count for the requests that wait, by bucket.
    pub(crate) fn attempts(&mut self, now: Instant, workers: u32) -> Vec<(Target, u32)> {
        let queues = self.queues.values_mut();
        let attempts = queues.map(|queue| {
            let attempts = queue.queue.attempts(now, workers);
            (queue.target, u32::try_from(attempts).unwrap_or(u32::MAX))
        });
        attempts.filter(|(_, attempts)| *attempts > 0).collect()
    }

    fn set_due(&mut self, bucket: BucketId, due: Instant) {
        if let Some(queue) = self.queues.get_mut(&bucket) {
            self.due.set(&mut queue.due, Some(due), bucket);
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
