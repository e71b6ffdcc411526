//! State of one stream of a proxy: its buckets, the leases of their scopes, and what is to be sent.
//!
//! Reports, answers and nudges come in, each with the time. Requests for leases and actions for the
//! proxy come out, when they are asked for; nothing here waits or sends. A stream is a lease client
//! like any other, with two peculiarities:
//!
//! - The proxy acknowledges nothing. So a lowered lease is acknowledged, with the next request, only
//!   when its assignments have been sent and had [`TRANSIT`](super::assignment::TRANSIT) to arrive.
//! - A proxy goes on with its assignments when a stream is cut. So a stream releases nothing at its
//!   end, and the next one of the same proxy begins with requests of which the coordinator takes no
//!   word about earlier leases: it counts them until they expire.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use tollgate_config::RlqsDomain;
use tollgate_core::deadlines::Deadlines;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::units::{Capacity, Instant};
use tollgate_proto::request::{SCOPES_MAX, ScopeRefresh};

use super::action::{Action, ActionKind};
use super::assignment::{Assignment, SentAssignment};
use super::bucket::{Bucket, Usage};
use super::bucket_name::{BucketName, name_len};
use super::memory::BucketMemory;
use super::metrics::IgnoredBucket;
use super::scope_lease::ScopeLease;

mod answers;
mod look;

/// The most buckets of a stream.
pub(super) const BUCKETS_MAX: usize = 10_000;

/// Bytes of a message's actions from which on it gets no more of them. An unsent message counts as
/// memory of calls, and each stream may have one.
pub(super) const ACTIONS_LEN: usize = 32 << 10;

/// The longest name of a bucket, in bytes: all its keys and values.
pub(super) const NAME_LEN_MAX: usize = 512;

/// The most unused buckets beyond the bounds that are remembered until their proxy is told to forget
/// them; it names the others again.
pub(super) const UNWANTED_MAX: usize = 100;

/// The most keys of a bucket.
pub(super) const KEYS_MAX: usize = 32;

/// State of one stream.
#[derive(Debug)]
pub(super) struct StreamState {
    domain: RlqsDomain,
    memory: BucketMemory,
    /// Whether the leases of the proxy's stream before this one are this client's.
    pub(super) is_known: bool,
    sequence: u64,
    last_bucket: u64,
    names: BTreeMap<Arc<BucketName>, u64>,
    buckets: BTreeMap<u64, Bucket>,
    scopes: BTreeMap<Arc<str>, ScopeLease>,
    /// Buckets of which something may have to be sent.
    looks: BTreeSet<u64>,
    /// Scopes whose lease is to be divided anew.
    dirty: BTreeSet<Arc<str>>,
    /// Scopes with assignments that are not sent yet.
    unsent: BTreeSet<Arc<str>>,
    /// Buckets beyond the bound that the proxy does not use.
    unwanted: VecDeque<BucketName>,
    bucket_timers: Deadlines<u64>,
    scope_timers: Deadlines<Arc<str>>,
}

/// Messages to the coordinator that are due.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LeaseBatch {
    /// At most [`SCOPES_MAX`].
    pub(super) scopes: Vec<ScopeRefresh>,
    /// At most [`SCOPES_MAX`].
    pub(super) releases: Vec<(ResourceId, u64)>,
}

// === impl StreamState ===

impl StreamState {
    /// A stream of a new client without buckets, which take of `memory`.
    pub(super) fn new(domain: RlqsDomain, memory: BucketMemory) -> Self {
        Self {
            domain,
            memory,
            is_known: false,
            sequence: 0,
            last_bucket: 0,
            names: BTreeMap::new(),
            buckets: BTreeMap::new(),
            scopes: BTreeMap::new(),
            looks: BTreeSet::new(),
            dirty: BTreeSet::new(),
            unsent: BTreeSet::new(),
            unwanted: VecDeque::new(),
            bucket_timers: Deadlines::default(),
            scope_timers: Deadlines::default(),
        }
    }

    /// Number of buckets.
    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Whether its proxy had one of the buckets before this stream.
    pub(super) fn resumes(&self) -> bool {
        self.buckets.values().any(|bucket| bucket.is_resumed)
    }

    /// Number that stands for the names of the buckets: the same for the same ones in this process.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for name in self.names.keys() {
            name.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Takes a report, and returns why buckets of it were ignored.
    pub(super) fn handle_report(&mut self, now: Instant, usages: Vec<Usage>) -> Vec<IgnoredBucket> {
        let mut ignored = Vec::new();
        let mut touched = BTreeSet::new();
        for usage in usages {
            let known = self.names.get(&usage.name).copied();
            let id = match known {
                Some(id) => {
                    if let Some(bucket) = self.buckets.get_mut(&id) {
                        bucket.report(now, &usage);
                    }
                    id
                }
                None => match self.add(now, usage) {
                    Ok(id) => id,
                    Err(reason) => {
                        ignored.push(reason);
                        continue;
                    }
                },
            };
            self.looks.insert(id);
            touched.extend(self.scopes_of(id));
        }
        for scope in touched {
            let wants = self.sum_wants(&scope);
            if let Some(lease) = self.scopes.get_mut(&scope) {
                lease.note_wants(now, wants);
            }
            self.dirty.insert(scope.clone());
            self.queue_scope(scope);
        }
        ignored
    }

    /// Makes requests due for the scopes that were named, because their shares have changed.
    pub(super) fn handle_nudge(&mut self, now: Instant, resources: &[ResourceId]) {
        for resource in resources {
            if let Some(lease) = self.scopes.get_mut(&resource.scope) {
                lease.hurry(now);
                self.queue_scope(resource.scope.clone());
            }
        }
    }

    /// Returns what is to be told to the coordinator now; none if nothing is.
    pub(super) fn poll_batch(&mut self, now: Instant) -> Option<LeaseBatch> {
        let mut batch = LeaseBatch::default();
        while batch.scopes.len().max(batch.releases.len()) < SCOPES_MAX {
            let Some(scope) = self.scope_timers.pop_due(now) else {
                break;
            };
            if let Some(lease) = self.scopes.get_mut(&scope) {
                lease.queued_at = None;
                self.tell(now, scope, &mut batch);
            }
        }
        (batch != LeaseBatch::default()).then_some(batch)
    }

    /// Whether there may be actions to send.
    pub(super) fn has_actions(&self, now: Instant) -> bool {
        let due = self.bucket_timers.earliest().is_some_and(|at| at <= now);
        due || !(self.looks.is_empty() && self.dirty.is_empty() && self.unwanted.is_empty())
    }

    /// Returns the next actions, which must be sent at once; as many as [`ACTIONS_LEN`] allows.
    pub(super) fn poll_actions(&mut self, now: Instant) -> Vec<Action> {
        self.divide(now);
        while let Some(id) = self.bucket_timers.pop_due(now) {
            if let Some(bucket) = self.buckets.get_mut(&id) {
                bucket.queued_at = None;
            }
            self.looks.insert(id);
        }
        let (mut actions, mut len) = (Vec::new(), 0);
        while len < ACTIONS_LEN {
            let action = match self.looks.pop_first() {
                Some(id) => self.look(now, id),
                None => match self.unwanted.pop_front() {
                    Some(name) => Some(Action {
                        bucket: Arc::new(name),
                        kind: ActionKind::Abandon,
                    }),
                    None => break,
                },
            };
            len += action.as_ref().map_or(0, Action::len_max);
            actions.extend(action);
        }
        if self.looks.is_empty() {
            self.note_sent(now);
        }
        actions
    }

    /// When something is to be done without an event.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let timers = [self.bucket_timers.earliest(), self.scope_timers.earliest()];
        timers.into_iter().flatten().min()
    }

    /// End of the last assignment that was sent.
    pub(super) fn assigned_until(&self) -> Option<Instant> {
        let sent = self.buckets.values().filter_map(|bucket| bucket.sent);
        sent.map(|sent| sent.until).max()
    }

    /// Adds the bucket of `usage`; the error tells why it is ignored.
    fn add(&mut self, now: Instant, usage: Usage) -> Result<u64, IgnoredBucket> {
        let name = &usage.name;
        if name.len() > KEYS_MAX || name_len(name) > NAME_LEN_MAX {
            return Err(IgnoredBucket::TooLong);
        }
        // Further keys do no harm: Envoy counts a request in one bucket alone.
        let value = |key: &str, _| name.get(key).map(String::as_str);
        let scope = self.domain.scope.scope(value);
        // A proxy cannot be answered about a bucket without keys.
        let scope = scope.filter(|_| !name.is_empty());
        let scope: Arc<str> = scope.ok_or(IgnoredBucket::Unmatched)?.into();
        let charge = match self.memory.charge(name) {
            Some(charge) if self.buckets.len() < BUCKETS_MAX => charge,
            charge => {
                // Else the proxy would keep it, and name it in each report. One in use would come
                // back with the next request.
                if usage.requests == 0 && self.unwanted.len() < UNWANTED_MAX {
                    self.unwanted.push_back(usage.name);
                }
                return Err(match charge {
                    Some(_) => IgnoredBucket::TooMany,
                    None => IgnoredBucket::NoMemory,
                });
            }
        };
        self.last_bucket += 1;
        let id = self.last_bucket;
        let bucket = Bucket::new(now, usage, scope.clone(), charge);
        self.names.insert(Arc::clone(&bucket.name), id);
        self.buckets.insert(id, bucket);
        self.join(now, scope.clone(), id);
        let canonical = self
            .scopes
            .get(&scope)
            .and_then(|own| own.canonical.clone());
        if let Some(canonical) = canonical {
            self.join(now, canonical, id);
        }
        Ok(id)
    }

    fn join(&mut self, now: Instant, scope: Arc<str>, bucket: u64) {
        let lease = self.scopes.entry(scope.clone());
        lease
            .or_insert_with(|| ScopeLease::new(now))
            .join(now, bucket);
        self.dirty.insert(scope.clone());
        self.queue_scope(scope);
    }

    fn leave(&mut self, now: Instant, scope: &Arc<str>, bucket: u64) {
        if let Some(lease) = self.scopes.get_mut(scope) {
            lease.leave(now, bucket);
            self.dirty.insert(scope.clone());
            self.queue_scope(scope.clone());
        }
    }

    /// Forgets the bucket `id`, which the proxy is told to forget at `now`.
    fn abandon(&mut self, now: Instant, id: u64) -> Option<Action> {
        for scope in self.scopes_of(id) {
            self.leave(now, &scope, id);
        }
        let bucket = self.buckets.remove(&id)?;
        self.names.remove(&bucket.name);
        if let Some(at) = bucket.queued_at {
            self.bucket_timers.remove(at, id);
        }
        Some(Action {
            bucket: bucket.name,
            kind: ActionKind::Abandon,
        })
    }

    /// Adds to `batch` what is to be told of `scope`, which is due.
    fn tell(&mut self, now: Instant, scope: Arc<str>, batch: &mut LeaseBatch) {
        let wants = self.sum_wants(&scope);
        let Some(lease) = self.scopes.get_mut(&scope) else {
            return;
        };
        self.sequence += 1;
        let unit = Unit::Requests;
        if lease.is_over(now) {
            if lease.release(self.sequence) {
                let resource = ResourceId {
                    scope: scope.clone(),
                    unit,
                };
                batch.releases.push((resource, self.sequence));
            }
            self.scopes.remove(&scope);
            return;
        }
        let ask = lease.request(now, self.sequence, wants);
        batch.scopes.push(ScopeRefresh {
            scope: scope.clone(),
            asks: vec![(unit, ask)],
        });
        self.queue_scope(scope);
    }

    /// Divides the leases that have changed, or whose buckets have.
    fn divide(&mut self, now: Instant) {
        while let Some(scope) = self.dirty.pop_first() {
            let wants = self.wants(&scope);
            let Some(lease) = self.scopes.get_mut(&scope) else {
                continue;
            };
            lease.divide(now, &wants);
            self.looks.extend(wants.iter().map(|(bucket, _)| bucket));
            self.unsent.insert(scope);
        }
    }

    /// Notes that everything has been sent.
    fn note_sent(&mut self, now: Instant) {
        while let Some(scope) = self.unsent.pop_first() {
            if let Some(lease) = self.scopes.get_mut(&scope) {
                lease.handle_sent(now);
                self.queue_scope(scope);
            }
        }
    }

    /// The scopes that the requests of a bucket are charged to: its own, and the canonical one.
    fn scopes_of(&self, bucket: u64) -> Vec<Arc<str>> {
        let own = self.buckets.get(&bucket).map(|bucket| &bucket.scope);
        let lease = own.and_then(|scope| self.scopes.get(scope));
        let canonical = lease.and_then(|lease| lease.canonical.as_ref());
        own.into_iter().chain(canonical).cloned().collect()
    }

    fn wants(&self, scope: &str) -> Vec<(u64, Capacity)> {
        let buckets = self.scopes.get(scope).into_iter();
        let buckets = buckets.flat_map(|lease| &lease.buckets);
        let wants = |id: &u64| Some((*id, self.buckets.get(id)?.wants()));
        buckets.filter_map(wants).collect()
    }

    fn sum_wants(&self, scope: &str) -> Capacity {
        let wants = self.wants(scope).into_iter().map(|(_, wants)| wants);
        wants.fold(Capacity::ZERO, Capacity::saturating_add)
    }

    fn queue_scope(&mut self, scope: Arc<str>) {
        if let Some(lease) = self.scopes.get_mut(&scope) {
            let due = lease.due();
            self.scope_timers.set(&mut lease.queued_at, due, scope);
        }
    }

    fn queue_bucket(&mut self, id: u64, at: Instant) {
        if let Some(bucket) = self.buckets.get_mut(&id) {
            self.bucket_timers.set(&mut bucket.queued_at, Some(at), id);
        }
    }

    /// Notes that `assignment` is sent for the bucket `id`; `is_leased` unless it is no part of a
    /// lease.
    fn assign(
        &mut self,
        now: Instant,
        id: u64,
        assignment: Assignment,
        is_leased: bool,
    ) -> Option<Action> {
        for scope in self.scopes_of(id).iter().filter(|_| is_leased) {
            if let Some(lease) = self.scopes.get_mut(scope) {
                lease.handle_assigned();
            }
        }
        let bucket = self.buckets.get_mut(&id)?;
        bucket.sent = Some(SentAssignment::new(assignment, now));
        bucket.is_owed = false;
        Some(Action {
            bucket: Arc::clone(&bucket.name),
            kind: ActionKind::Assign(assignment),
        })
    }

    /// The time for which a bucket that the proxy had before this stream may have an assignment that
    /// this one does not know of.
    fn resumed_for(&self, bucket: &Bucket) -> Duration {
        let lengths = self.scopes.get(&bucket.scope).map(|lease| lease.length);
        lengths
            .filter(|length| !length.is_zero())
            .unwrap_or(RESUMED)
    }
}

/// Time of an earlier lease if there is no lease to tell it by.
const RESUMED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
