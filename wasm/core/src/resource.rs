//! Resource: its leases, with their clients and expiries.
//!
//! The lease table counts, for each client, the most that it may be using. That is not simply its
//! last grant. When a refresh lowers a lease, the answer may get lost, and the client goes on with
//! the larger lease until that expires; counting only the smaller one would lend the difference
//! twice. So an entry keeps the larger capacity as `prior` until the client's next request reports
//! that it has no more than the smaller one. The client's half of the bargain is in
//! [`LeaseRequest::sequence`]: it applies only the answer to its latest request, so no earlier
//! grant that is still on its way can come into use later.
//!
//! That bargain is with one [run](Run) of a client. A request of a run that is dead may still be on
//! its way, and says nothing of the leases of the next one. So each incarnation has an entry of its
//! own, and the lease of a dead one is counted until it expires, besides the lease of the next. One
//! entry that only remembered the latest incarnation would not do: two late requests of the dead
//! run, with one of the living run between them, could take the entry over in turns until a request
//! of before the lowered lease acknowledged it. The terms of a coordinator that borrows are ordered
//! instead, and share an entry: the pair of term and sequence grows.
//!
//! Every number that a grant needs is kept as a running sum or comes out of the
//! [`FairShare`](crate::share::FairShare) tree, so a refresh costs O(log n) in the number of
//! clients.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use core::time::Duration;

mod allocation;
mod nudges;
mod silence;
mod snapshot;
mod throttled;

pub(crate) use self::allocation::Allocation;
use self::allocation::{ClientEntry, TieBreak};
use self::silence::watch;
pub use self::snapshot::{ClientDraws, ClientSnapshot, LeaseSnapshot, PresenceSnapshot};
pub use self::throttled::ThrottledSince;
use crate::deadlines::Deadlines;
use crate::fleet::{FleetBucket, QuotaUsage};
use crate::hash::{fnv1a, fnv1a_after};
use crate::lease::{Answer, ClientId, ClientRun, Epoch, LeaseRequest, Run, Unit};
use crate::limit::Limit;
use crate::pool::PoolLink;
use crate::round::Round;
use crate::traffic::Traffic;
use crate::units::{Capacity, Instant, Tokens};

/// Resource with its clients and sums; see the module.
///
/// A resource may be a member of a [`Pool`](crate::pool::Pool), which the lease server keeps
/// informed.
#[derive(Debug)]
pub struct Resource {
    pub(crate) allocation: Allocation,
    /// Boxed: most resources have few, and a node of the tree has room for eleven.
    clients: BTreeMap<ClientKey, Box<ClientEntry>>,
    /// For each entry one instant, not after the next one at which its lease falls.
    expiries: Deadlines<ClientKey>,
    /// For each client that is watched one instant, not after that from which its refresh is missed. A
    /// client alone is not watched.
    silences: Deadlines<ClientKey>,
    /// Clients that are looked at because of what another one did.
    round: Round<ClientKey>,
    /// Time at which clients are to be looked at again that were answered too lately to be named.
    look_at: Option<Instant>,
    /// Whether the client that asked last should ask again at once.
    repeats: bool,
}

/// Lease of one client, for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRecord<'a> {
    /// The client.
    pub id: &'a ClientId,
    /// Its run.
    pub run: Run,
    /// Wants of its last request.
    pub wants: Capacity,
    /// The most that it may be using.
    pub has: Capacity,
    /// Expiry of that, unless it refreshes.
    pub expiry: Instant,
    /// Number of clients for which it speaks, itself included.
    pub subclients: u64,
    /// Time since when it has got less than it wants at each refresh; none if it got as much at the
    /// last one.
    pub throttled_since: Option<ThrottledSince>,
}

/// Reason for which a refresh got no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefreshError {
    /// A later request of the same client has been answered; the client must drop this one.
    #[error("sequence {asked} came after sequence {seen}")]
    Stale {
        /// The sequence of this request.
        asked: u64,
        /// The highest sequence seen.
        seen: u64,
    },
    /// A later run of the same coordinator has asked.
    #[error("term {asked} came after term {seen}", asked = .asked.0, seen = .seen.0)]
    EarlierTerm {
        /// The term of this request.
        asked: Epoch,
        /// The highest term seen.
        seen: Epoch,
    },
    /// The resource has as many clients as the coordinator keeps.
    #[error("the resource has {max} clients, the most this coordinator keeps")]
    TooManyClients {
        /// The bound.
        max: usize,
    },
    /// The coordinator keeps as many resources as it may.
    #[error("this coordinator keeps {max} resources, the most it may")]
    TooManyResources {
        /// The bound.
        max: usize,
    },
    /// The coordinator keeps as many leases as it may.
    #[error("this coordinator keeps {max} leases, the most it may (bounds.max_leases)")]
    TooManyLeases {
        /// The bound.
        max: usize,
    },
}

/// Key of a client: its id behind a hash, so that most comparisons of a look-up touch one word, and
/// the runs that share an entry. The upper half of the hash is of the node, so that the clients of one
/// node follow each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClientKey {
    hash: u64,
    id: ClientId,
    runs: Runs,
}

/// Runs of a client that share an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Runs {
    /// All of a protocol that does not tell them apart.
    Only,
    /// One.
    Incarnation(NonZeroU64),
    /// All that have a term.
    Terms,
}

// === impl Resource ===

impl Resource {
    /// A resource of `unit` without clients; until `learning_until` it only confirms the claims of
    /// clients.
    pub fn new(unit: Unit, limit: Limit, learning_until: Instant) -> Self {
        Self {
            allocation: Allocation::new(unit, limit, learning_until),
            clients: BTreeMap::new(),
            expiries: Deadlines::default(),
            silences: Deadlines::default(),
            round: Round::default(),
            look_at: None,
            repeats: false,
        }
    }

    /// Answers `request` of `client`, and keeps the pool that the resource is a member of informed.
    ///
    /// # Errors
    /// [`RefreshError::Stale`], [`RefreshError::EarlierTerm`], or [`RefreshError::TooManyClients`] if
    /// the client is new and `clients_max` are known.
    pub(crate) fn handle_refresh(
        &mut self,
        now: Instant,
        client: &ClientRun,
        request: &LeaseRequest,
        clients_max: usize,
        pool: &mut PoolLink<'_>,
    ) -> Result<Answer, RefreshError> {
        self.note_silences(now);
        self.expire(now);
        self.allocation.balance(now, &mut self.clients, pool);
        self.allocation.fill(now);
        let had = self.allocation.sum_has;
        let answer = self.answer(now, client, request, clients_max, pool);
        self.allocation.fill(now);
        self.stir_if_freed(had);
        pool.update(now, || self.allocation.pool_totals());
        answer
    }

    fn answer(
        &mut self,
        now: Instant,
        client: &ClientRun,
        request: &LeaseRequest,
        clients_max: usize,
        pool: &mut PoolLink<'_>,
    ) -> Result<Answer, RefreshError> {
        let key = ClientKey::new(client);
        let by = (key.tie_break(), client.run.term());
        let known = self.clients.len();
        if let Some(entry) = self.clients.get_mut(&key) {
            let answer = self.allocation.refresh(now, by, entry, request, pool)?;
            self.repeats = self.allocation.names_again(now, entry);
            let next = entry.next_expiry();
            self.expiries.advance(&mut entry.queued_at, next, &key);
            if known > 1 || self.allocation.is_in_pool() {
                watch(&mut self.silences, &key, entry);
            }
            return Ok(answer);
        }
        if known >= clients_max {
            return Err(RefreshError::TooManyClients { max: clients_max });
        }
        self.note_new_run(now, &key);
        let (mut entry, answer) = self.allocation.admit(now, by, request, pool);
        self.expiries.insert(entry.queued_at, key.clone());
        if known > 1 || self.allocation.is_in_pool() {
            watch(&mut self.silences, &key, &mut entry);
        }
        self.clients.insert(key, Box::new(entry));
        if known == 1 {
            self.watch_all();
        }
        Ok(answer)
    }

    /// Forgets `client`, which no longer uses its lease; ignored if a later request came first.
    pub(crate) fn handle_release(&mut self, client: &ClientRun, sequence: u64) {
        let key = ClientKey::new(client);
        let last = (client.run.term(), sequence);
        if self
            .clients
            .get(&key)
            .is_some_and(|entry| (entry.term, entry.sequence) <= last)
            && let Some(entry) = self.clients.remove(&key)
        {
            let had = self.allocation.sum_has;
            self.unwatch(&key, &entry);
            self.expiries.remove(entry.queued_at, key);
            self.allocation.forget(*entry);
            self.stir_if_freed(had);
        }
    }

    /// Takes back leases that have expired.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.allocation.has_bucket() || self.allocation.has_standby_in_pool() {
            // It earns less from when a client is missed.
            self.note_silences(now);
        }
        let had = self.allocation.sum_has;
        while let Some(key) = self.expiries.pop_due(now) {
            let Some(entry) = self.clients.get_mut(&key) else {
                continue;
            };
            self.allocation.expire(now, entry);
            if entry.last_expiry() > now {
                entry.queued_at = entry.next_expiry();
                self.expiries.insert(entry.queued_at, key);
            } else if let Some(entry) = self.clients.remove(&key) {
                self.unwatch(&key, &entry);
                self.allocation.forget(*entry);
            }
        }
        self.stir_if_freed(had);
        self.stir_if_due(now);
        self.allocation.fill(now);
        if self.clients.is_empty() {
            self.allocation.forget_bucket_if_full(now);
        }
    }

    /// Time at which a lease next expires, or clients are to be looked at again. Without clients the time
    /// at which the fleet's bucket is full, and nothing is to be remembered any more; none if it is.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let Some(expiry) = self.expiries.earliest() else {
            return self.allocation.full_at();
        };
        // Other members draw of the pool's bucket meanwhile.
        let silence = self.silences.earliest();
        let silence = silence.filter(|_| self.allocation.has_standby_in_pool());
        let others = [self.look_at, silence].into_iter().flatten();
        Some(others.fold(expiry, Instant::min))
    }

    /// Whether clients draw of the fleet's bucket, instead of having leases.
    pub fn is_drawn(&self) -> bool {
        self.allocation.is_drawn
    }

    /// Tokens that no client has; none if clients cannot draw.
    pub fn fleet_bucket(&self) -> Option<&FleetBucket> {
        self.allocation.fleet.bucket.as_ref()
    }

    /// All tokens that clients have drawn of the fleet's bucket since the resource is known here.
    pub fn drawn(&self) -> Tokens {
        self.allocation.drawn
    }

    /// Its quotas, with what is used of them.
    pub fn quotas(&self, now: Instant) -> Vec<QuotaUsage> {
        self.allocation.quota_usage(now)
    }

    /// Attempts and refusals of its clients.
    pub fn traffic(&self) -> &Traffic {
        &self.allocation.traffic
    }

    /// Tokens that clients have drawn of the fleet's bucket and may not have spent.
    pub fn held_by_clients(&self) -> Tokens {
        self.allocation.held_by_clients()
    }

    /// The limit that the last refresh came with.
    pub fn limit(&self) -> &Limit {
        &self.allocation.limit
    }

    /// The capacity divided here: of a coordinator with a parent no more than it has borrowed.
    pub fn capacity(&self) -> Capacity {
        self.limit().capacity.min(self.allocation.lendable())
    }

    /// Capacity that each client falls back to without a lease, if the resource's own limit is to
    /// say it.
    pub fn safe(&self) -> Option<Capacity> {
        self.allocation.safe_alone()
    }

    /// Number of clients, with those for which they speak.
    pub fn subclients(&self) -> u64 {
        self.allocation.shares.subclients()
    }

    /// Equals the sum over clients of the most that each may be using, in micro-units.
    pub fn sum_has(&self) -> u128 {
        self.allocation.sum_has
    }

    /// Equals the sum of what clients want, in micro-units.
    pub fn sum_wants(&self) -> u128 {
        self.allocation.shares.sum_wants()
    }

    /// End of learning mode.
    pub fn learning_until(&self) -> Instant {
        self.allocation.learning_until
    }

    /// The shortest interval between two requests of a client.
    pub(crate) fn min_refresh(&self, now: Instant) -> Duration {
        self.allocation.times(now).min_refresh
    }

    /// Whether any lease was granted before `at` to a client that has not asked since.
    pub(crate) fn is_from_before(&self, at: Instant) -> bool {
        let mut entries = self.clients.values();
        entries.any(|entry| entry.is_from_before(at))
    }

    /// Number of clients that have a lease or wait for one.
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// The runs of clients, in an order that depends on these alone; those of one client follow each
    /// other.
    pub fn clients(&self) -> impl Iterator<Item = ClientRecord<'_>> {
        self.clients.iter().map(|(key, entry)| ClientRecord {
            id: &key.id,
            run: key.run(entry),
            wants: entry.wants(),
            has: entry.has(),
            expiry: entry.end(),
            subclients: entry.subclients(),
            throttled_since: entry.throttled_since,
        })
    }
}

// === impl ClientKey ===

impl ClientKey {
    fn new(client: &ClientRun) -> Self {
        let (node, rest) = client.id.parts();
        let node = fnv1a(node.as_bytes());
        Self {
            hash: (node << 32) | (fnv1a_after(node, rest.as_bytes()) >> 32),
            id: client.id.clone(),
            runs: match client.run {
                Run::Only => Runs::Only,
                Run::Incarnation(number) => Runs::Incarnation(number),
                Run::Term(_) => Runs::Terms,
            },
        }
    }

    /// The least key of a client of the same node.
    fn first_of_node(&self) -> Self {
        Self {
            hash: self.hash >> 32 << 32,
            id: self.id.clone(),
            runs: Runs::Only,
        }
    }

    /// Whether it is of one run, which has drawn the last part of its id.
    fn is_incarnation(&self) -> bool {
        matches!(self.runs, Runs::Incarnation(_))
    }

    /// Whether `other` is of the same node.
    fn is_of_node(&self, other: &Self) -> bool {
        self.hash >> 32 == other.hash >> 32 && self.id.parts().0 == other.id.parts().0
    }

    /// Order among clients that want the same.
    fn tie_break(&self) -> TieBreak {
        match self.runs {
            Runs::Incarnation(number) => self.hash ^ number.get(),
            Runs::Only | Runs::Terms => self.hash,
        }
    }

    /// The run that asked last, by `entry`.
    fn run(&self, entry: &ClientEntry) -> Run {
        match self.runs {
            Runs::Only => Run::Only,
            Runs::Incarnation(number) => Run::Incarnation(number),
            Runs::Terms => Run::Term(entry.term),
        }
    }
}

// === free functions ===

/// Order of `client` among those that want the same.
#[cfg(test)]
pub(crate) fn tie_break_of(client: &ClientRun) -> u64 {
    ClientKey::new(client).tie_break()
}

#[cfg(test)]
mod tests;
