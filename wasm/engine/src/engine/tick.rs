//! Housekeeping: what a worker does on its ticks.

use core::time::Duration;
use std::sync::Arc;

use tollgate_core::units::{Instant, Tokens};

use super::draw::idle_since;
use super::{Engine, Target, entry, scope_id};
use crate::codec::{self, Heartbeat, Levels, Process, WORKERS_MAX};
use crate::effect::Effect;
use crate::host::Host;
use crate::shared_table::{SharedTable, TableError};

/// How often a complaint may be logged.
pub(super) const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);
/// How often a worker says that it lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How soon it says so again when its levels have changed.
const LEVELS_INTERVAL: Duration = Duration::from_millis(100);
/// A worker whose heartbeat is older is not counted.
const HEARTBEAT_LOST: Duration = Duration::from_secs(3);
/// Entries whose attempts are counted in one round. Each costs a change in shared data, and a
/// worker with very many busy scopes must have time for requests, too.
const FLUSHES_PER_ROUND: usize = 256;
/// Rounds that an entry waits for its attempts to be counted, and its token cache to go back, unless it
/// draws before: a fifth of a second at the default tick. Each count is a change in shared data, which
/// would be the dearest part of a tenant's requests if it came much more often than the demand is judged.
const FLUSH_AFTER_ROUNDS: u64 = 10;

impl<H: Host> Engine<H> {
    /// Does what is due: first answers for cold scopes on every tick, the rest once in a
    /// configured tick.
    pub fn handle_tick(&mut self) {
        let now = self.host.now();
        if let Err(error) = self.open() {
            self.complain(&error);
            return;
        }
        self.ask_for_cold(now);
        if now.saturating_since(self.last_round) >= self.config.tick.mul_f32(0.75) {
            self.last_round = now;
            self.rounds = self.rounds.saturating_add(1);
            self.searches_failed = 0;
            if let Err(error) = self.round(now) {
                self.complain(&error);
            }
            self.effects.push_back(Effect::Publish);
            self.look_at_streams();
        }
        self.let_go(now);
    }

    fn round(&mut self, now: Instant) -> Result<(), TableError> {
        or_later(self.heartbeat(now))?;
        self.count_waiting(now);
        or_later(self.count_attempts(now))?;
        self.expire_calls(now);
        or_later(self.take_turn(now))?;
        let idle_since = idle_since(now);
        for table in &mut self.tables {
            table.scopes.evict(idle_since);
        }
        Ok(())
    }

    /// Finds or makes the process's shared table; not before the first request or tick, because a
    /// configuration is also tried out in a VM that is thrown away.
    pub(super) fn open(&mut self) -> Result<(), TableError> {
        if self.shared_table.is_some() {
            return Ok(());
        }
        let fresh = Process {
            random: self.identity.process,
            slots: self.config.max_scopes,
        };
        let name = &self.config.coordinator;
        let shared_table = SharedTable::open(&self.host, name, &self.identity.node, fresh)?;
        if shared_table.slots() != self.config.max_scopes {
            let message = format!(
                "tollgate: max_scopes is {} until Envoy restarts, not {}",
                shared_table.slots(),
                self.config.max_scopes
            );
            self.host.log(crate::host::Level::Warn, &message);
        }
        self.shared_table = Some(shared_table);
        Ok(())
    }

    /// Says that this worker lives and serves requests, and counts those that do: token caches are smaller the more share.
    pub(super) fn heartbeat(&mut self, now: Instant) -> Result<(), TableError> {
        // Envoy's main thread has a VM as well, which may hold the leader lock but serves no requests.
        let serves = self.tables.iter().any(|table| table.scopes.len() > 0);
        let levels = self.levels();
        let interval = match self.last_heartbeat.map(|(_, told)| told == levels) {
            Some(false) => LEVELS_INTERVAL,
            _ => HEARTBEAT_INTERVAL,
        };
        let told = |(last, _)| now.saturating_since(last) < interval;
        if !serves || self.last_heartbeat.is_some_and(told) {
            return Ok(());
        }
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        let me = self.identity.worker;
        let count = shared_table.update_record(&self.host, "workers", |bytes| {
            let mut workers = codec::decode_workers(bytes);
            workers.retain(|other| other.worker != me && lives(other, now));
            workers.truncate(WORKERS_MAX.saturating_sub(1));
            workers.push(Heartbeat {
                worker: me,
                at: now,
                levels,
            });
            (workers.len(), Some(codec::encode_workers(&workers)))
        })?;
        self.workers = u32::try_from(count).unwrap_or(u32::MAX);
        self.last_heartbeat = Some((now, levels));
        Ok(())
    }

    fn levels(&self) -> Levels {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Levels {
            memory: self.host.memory_bytes(),
            waiting: count(self.waiting.len().saturating_add(self.lines.len())),
            in_flight: count(self.watched()),
        }
    }

    /// Reads who lives, for the permits of those who do not and for the levels of those who do.
    pub(super) fn see_who_lives(&mut self, now: Instant) -> Result<(), TableError> {
        let known = |at| now.saturating_since(at) < LEVELS_INTERVAL;
        if self.living_at.is_some_and(known) {
            return Ok(());
        }
        let shared_table = self.shared_table.as_ref().ok_or(TableError::Gone)?;
        let mut workers = shared_table.update_record(&self.host, "workers", |bytes| {
            (codec::decode_workers(bytes), None)
        })?;
        workers.retain(|worker| lives(worker, now));
        self.living = workers;
        self.living_at = Some(now);
        Ok(())
    }

    /// Tells the shared table of attempts since the last draw, so that the demand is known even of scopes
    /// that live on a token cache or are refused, and gives unspent token caches back.
    fn count_attempts(&mut self, now: Instant) -> Result<(), TableError> {
        let ripe = self.rounds.saturating_sub(FLUSH_AFTER_ROUNDS);
        for _ in 0..FLUSHES_PER_ROUND {
            match self.queue.front() {
                Some((_, queued)) if *queued <= ripe => {}
                _ => break,
            }
            let Some((target, _)) = self.queue.pop_front() else {
                break;
            };
            let settled = self.settle(target, now);
            // Also after a failure: what says that it is in the queue must be there.
            if entry(&mut self.tables, target).is_some_and(|entry| entry.queued) {
                self.queue.push_back((target, self.rounds));
            }
            settled?;
        }
        Ok(())
    }

    /// Counts an entry's attempts; gives its token cache back if there were none or its lease has ended.
    /// The entry then says whether it must be looked at again.
    pub(super) fn settle(&mut self, target: Target, now: Instant) -> Result<(), TableError> {
        let (tick, me) = (self.config.tick, self.identity.worker);
        let Some(known) = entry(&mut self.tables, target) else {
            return Ok(());
        };
        let attempts = known.attempts;
        let recent = now.saturating_since(known.seen) < tick.saturating_mul(2);
        let stale = attempts == 0 && !recent || known.expiry.is_some_and(|at| at <= now);
        let unspent = match stale {
            true => known.cache.left(),
            false => Tokens::ZERO,
        };
        let rest = known.meters.as_ref().map(|meters| meters.rest(me));
        known.queued = known.is_unsettled();
        if attempts == 0 && unspent == Tokens::ZERO && rest.is_none() {
            return Ok(());
        }
        let counted = match self.may_search(target) {
            true => self.with_scope_state(target, now, |scope_state, policy| {
                let due = scope_state.due();
                scope_state.requests.count(now, u64::from(attempts));
                if unspent > Tokens::ZERO {
                    scope_state.requests.give_back(now, policy, unspent);
                }
                if let Some(rest) = &rest {
                    rest.settle(scope_state, now, policy);
                }
                scope_state.due() != due
            }),
            false => Err(TableError::Full),
        };
        match counted {
            Ok((due_changed, slot)) => {
                if due_changed {
                    self.dirty.add(slot);
                }
                self.settled(target, now, attempts, unspent, rest.is_some());
            }
            // The slot was taken over, which none is whose bucket is not full: there is nothing to
            // give tokens back to. The attempts are those of whoever is without a slot.
            Err(TableError::Full) => {
                self.settled(target, now, attempts, unspent, rest.is_some());
                self.settle_without_slot(target, now, attempts);
            }
            // All stays as it is, for the next round.
            Err(error) => return or_later(Err(error)),
        }
        Ok(())
    }

    /// Forgets what the shared table knows now.
    fn settled(
        &mut self,
        target: Target,
        now: Instant,
        attempts: u32,
        unspent: Tokens,
        rest: bool,
    ) {
        let Some(entry) = entry(&mut self.tables, target) else {
            return;
        };
        if attempts > 0 {
            entry.seen = now;
        }
        entry.attempts = entry.attempts.saturating_sub(attempts);
        entry.cache.take(unspent);
        if let Some(meters) = entry.meters.as_mut().filter(|_| rest) {
            meters.settled();
        }
        entry.queued = attempts > 0 || entry.is_unsettled();
    }

    /// Counts attempts of a scope that has no slot as its rule's overflow, for which they were
    /// made as much as the next request will be.
    fn settle_without_slot(&mut self, target: Target, now: Instant, attempts: u32) {
        self.search_failed();
        if attempts > 0 && !self.is_overflow(target) {
            let overflow = self.overflow(target.table, now);
            self.count_attempts_of(overflow, attempts);
        }
    }

    pub(super) fn scope_of(&self, target: Target) -> Option<Arc<str>> {
        let table = self.tables.get(usize::from(target.table))?;
        let entry = table.scopes.get(target.index)?;
        Some(scope_id(&table.config.name, entry).into())
    }
}

// === free functions ===

/// What other workers were faster with is done in the next round.
pub(super) fn or_later(done: Result<(), TableError>) -> Result<(), TableError> {
    match done {
        Err(TableError::Contention(_)) => Ok(()),
        done => done,
    }
}

fn lives(worker: &Heartbeat, now: Instant) -> bool {
    now.saturating_since(worker.at) < HEARTBEAT_LOST
        && worker.at <= now.saturating_add(HEARTBEAT_LOST)
}
