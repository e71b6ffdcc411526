//! The words of the lease protocol: who asks, for what, and what is answered.
//!
//! All times are durations, never absolute: the two ends do not share a clock. The client counts a
//! lease from the moment it sent its request and the coordinator from the moment it answered, so
//! the client's copy always ends first.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use crate::cluster::ShardId;
use crate::units::{Capacity, Tokens};

/// The longest scope or client id, in bytes.
pub const ID_LEN_MAX: usize = 256;

/// The [`LeaseTerms::fingerprint`] of a lease that says nothing certain of the limits it was lent under.
pub(crate) const NO_FINGERPRINT: u64 = 1;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Requests; a capacity is a number of them per second.
    Requests,
    /// Bytes of request bodies; a capacity is a number of them per second.
    RequestBytes,
    /// Bytes of response bodies; a capacity is a number of them per second.
    ResponseBytes,
    /// Requests in flight at the same time; a capacity is a number of them, and whole.
    Concurrency,
}

/// A scope and a unit: what a capacity belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// Whom the limit is for, such as `tenant/acme`.
    pub scope: Arc<str>,
    /// What is counted.
    pub unit: Unit,
}

/// One Envoy process, `<node id>/<random>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(Arc<str>);

/// One run of a client, from its start to its end. Its runs are told apart, because a request of
/// the one before may still be on its way when the next one asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientRun {
    /// The client.
    pub id: ClientId,
    /// Its run.
    pub run: Run,
}

/// The run of a client that a request is of; [`LeaseRequest::sequence`] counts within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Run {
    /// All runs are one: the protocol of the client does not tell them apart, such as Doorman's.
    Only,
    /// A number that the client chose at random when it started. A run of another number is another
    /// client: what one of them says acknowledges, lowers and releases nothing of the other.
    Incarnation(NonZeroU64),
    /// The term of a coordinator that borrows of its parent. A run of a higher term takes over what
    /// is counted for the one before, of which nothing counts any more that comes later.
    Term(Epoch),
}

/// The term of a master; a later master has a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Which master an answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// What it is master of; none of a coordinator that is alone.
    pub shard: Option<ShardId>,
    /// Its term.
    pub epoch: Epoch,
}

/// Why an answer is not applied, by the epochs of its master and of the one that answered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochError {
    /// An earlier master of the same shard has answered late.
    #[error("epoch {} is lower than {}, that of a master that has answered before", .answered.0, .known.0)]
    Lower {
        /// The epoch of the answer.
        answered: Epoch,
        /// The epoch of the last answer that was applied.
        known: Epoch,
    },
    /// No real master has this epoch after the other; see [`Origin::check_after`].
    #[error(
        "epoch {} cannot follow {}: no epoch is above {}, and one that counts from a clock advances \
         by at most {}", .answered.0, .known.0, Epoch::MAX.0, Epoch::ADVANCE_MAX
    )]
    Jump {
        /// The epoch of the answer.
        answered: Epoch,
        /// The epoch of the last answer that was applied; 0 before the first one.
        known: Epoch,
    },
}

/// How important demand is: 0, the lowest, to 15. Of what is scarce, higher bands are filled first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

/// What a client says of one resource when it refreshes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Grows with every request of this run of the client for this resource. The client applies only
    /// the answer to its latest one, so a higher sequence tells that no earlier answer will be used.
    pub sequence: u64,
    /// What the client holds now: the capacity of its unexpired lease, else zero.
    pub has: Capacity,
    /// How long what it has still lasts; none if it does not say.
    pub remaining: Option<Duration>,
    /// [`LeaseTerms::fingerprint`] of what it has; 0 if it does not say.
    pub fingerprint: u64,
    /// What stands behind `has`.
    pub claim: Claim,
    /// What the client would use if nothing held it back.
    pub demand: Demand,
}

/// What stands behind [`LeaseRequest::has`]. Only a coordinator that lends on has more than one lease in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// One lease: the one that was applied last.
    #[default]
    Lease,
    /// What is in use of several leases: of the last one, and of earlier ones that were larger and
    /// have not been given back by those to whom they were lent.
    Several,
    /// At least so much, by hearsay: a coordinator that has started without books asks its parent
    /// before it knows all that it has lent, or has books that did not age on their way to it. What is
    /// counted for it stays counted, and what it claims is counted, but not lent to it again.
    AtLeast,
}

/// What a client wants, by priority: one band, or several for one that speaks for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand(DemandBands);

#[derive(Clone, Debug, PartialEq, Eq)]
enum DemandBands {
    One(Band),
    /// At least two, the highest priority first, each once.
    Several(Box<[Band]>),
}

/// What is wanted at one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// How important it is.
    pub priority: Priority,
    /// How much is wanted.
    pub wants: Capacity,
    /// For how many clients this one speaks. A band is divided between them all as if each had
    /// asked by itself.
    pub subclients: NonZeroU32,
}

/// Why bands are not a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DemandError {
    /// No band at all.
    #[error("has no entries")]
    Empty,
    /// Two bands of one priority.
    #[error("names priority {} twice", .0.level())]
    Twice(Priority),
}

/// What a coordinator says of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The lease; none in learning mode for a client that claims none: it stays in its mode.
    pub lease: Option<LeaseTerms>,
    /// When to ask again.
    pub refresh_interval: Duration,
    /// What to fall back to when the lease has expired; none leaves the client's own setting.
    pub safe: Option<Capacity>,
    /// The capacity of the whole resource, for what a refusal says of the limit.
    pub capacity: Capacity,
}

/// Capacity lent for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// What the client gets; may be [`Capacity::UNLIMITED`].
    pub capacity: Capacity,
    /// The client's part of the resource's burst.
    pub burst: Tokens,
    /// How long the lease lasts, counted by the client from when it sent its request.
    pub duration: Duration,
    /// Tells a coordinator under which limits it lent this; to the client it means nothing. The
    /// client says it again in [`LeaseRequest::fingerprint`], so that a coordinator without books knows whether a
    /// claim was lent under the limits of today. Never 0.
    pub fingerprint: u64,
}

/// Why a string is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// No bytes at all.
    #[error("is empty")]
    Empty,
    /// More than [`ID_LEN_MAX`] bytes.
    #[error("has {0} bytes, more than 256")]
    TooLong(usize),
    /// A control character, which could forge lines in logs and tables.
    #[error("has a control character")]
    Control,
}

// === impl Unit ===

impl Unit {
    /// Every unit, in the order of a scope's resources.
    pub const ALL: [Self; 4] = [
        Self::Requests,
        Self::RequestBytes,
        Self::ResponseBytes,
        Self::Concurrency,
    ];

    /// The name in configurations, refusals and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::RequestBytes => "request_bytes",
            Self::ResponseBytes => "response_bytes",
            Self::Concurrency => "concurrency",
        }
    }

    /// The unit called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// Whether it counts what is in use at a time, rather than what passes in a second. A gauge has
    /// no burst, and is lent in whole units: two fifths of a place serve nobody.
    pub const fn is_concurrency(self) -> bool {
        matches!(self, Self::Concurrency)
    }
}

// === impl Priority ===

impl Priority {
    /// How many there are.
    pub const COUNT: usize = 16;
    /// The lowest, and the one of whoever says nothing.
    pub const LOWEST: Self = Self(0);
    /// The highest.
    pub const HIGHEST: Self = Self(15);

    /// The priority `level`; none if it is above 15.
    pub const fn new(level: u8) -> Option<Self> {
        if level <= Self::HIGHEST.0 {
            Some(Self(level))
        } else {
            None
        }
    }

    /// The priority nearest to `level`, for protocols that do not bound it, such as Doorman's.
    pub fn nearest(level: i64) -> Self {
        let level = level.clamp(0, i64::from(Self::HIGHEST.0));
        Self(u8::try_from(level).unwrap_or_default())
    }

    /// The priority as a number, 0 to 15.
    pub const fn level(self) -> u8 {
        self.0
    }
}

// === impl Epoch ===

impl Epoch {
    /// The highest epoch that a master can have: the milliseconds since 1970 in May 2109. Epochs
    /// count from a wall clock or from a number that an operator chose, so that a higher one is a
    /// mistake or a lie; and whoever believed it would ignore every real master afterwards.
    pub const MAX: Self = Self((1 << 42) - 1);

    /// The most by which an epoch that counts from a clock advances at once: 795 days in
    /// milliseconds, for a coordinator that ran so long before its restart, or as many revisions of
    /// the etcd that a cluster's epochs are counted by.
    const ADVANCE_MAX: u64 = 1 << 36;

    /// The least epoch that counts from a clock: November 2004. A lower one was given by an operator
    /// (`--epoch 5`), or by a machine whose clock was not set; a clock may follow it.
    const CLOCK_MIN: u64 = 1 << 40;

    /// Whether a master can have this epoch.
    pub fn is_possible(self) -> bool {
        self <= Self::MAX
    }
}

// === impl Origin ===

impl Origin {
    /// A coordinator without a cluster, in its term `epoch`.
    pub const fn alone(epoch: Epoch) -> Self {
        Self { shard: None, epoch }
    }

    /// Checks whether an answer from here may be applied after one from `last`: it may not if the
    /// same shard has had a later master, nor if its epoch is none that can follow. Epochs of
    /// different shards say nothing of each other, and an impossible epoch that was believed by an
    /// earlier version says nothing either.
    ///
    /// # Errors
    /// If the answer must not be applied.
    pub fn check_after(self, last: Self) -> Result<(), EpochError> {
        let answered = self.epoch;
        let comparable = self.shard == last.shard && last.epoch.is_possible();
        let known = if comparable {
            last.epoch
        } else {
            Epoch::default()
        };
        if answered < known {
            return Err(EpochError::Lower { answered, known });
        }
        let advance = answered.0.saturating_sub(known.0);
        let leaps = known.0 >= Epoch::CLOCK_MIN && advance > Epoch::ADVANCE_MAX;
        if leaps || !answered.is_possible() {
            return Err(EpochError::Jump { answered, known });
        }
        Ok(())
    }
}

// === impl LeaseRequest ===

impl LeaseRequest {
    /// What a client says that speaks for itself alone and claims nothing: one band of the lowest
    /// priority.
    pub fn new(sequence: u64, has: Capacity, wants: Capacity) -> Self {
        Self {
            sequence,
            has,
            remaining: None,
            fingerprint: 0,
            claim: Claim::Lease,
            demand: Demand::of(wants),
        }
    }
}

// === impl Demand ===

impl Demand {
    /// The demand of a client that speaks for itself alone, in the lowest band.
    pub const fn of(wants: Capacity) -> Self {
        Self::one(Band {
            priority: Priority::LOWEST,
            wants,
            subclients: NonZeroU32::MIN,
        })
    }

    /// The demand of one band.
    pub const fn one(band: Band) -> Self {
        Self(DemandBands::One(band))
    }

    /// The demand of several bands, as of a coordinator that asks its parent.
    ///
    /// # Errors
    /// If there is none, or a priority comes twice.
    pub fn try_from_bands(bands: &[Band]) -> Result<Self, DemandError> {
        let mut sorted: Box<[Band]> = bands.into();
        sorted.sort_unstable_by_key(|band| core::cmp::Reverse(band.priority));
        let twice = |pair: &[Band]| match pair {
            [a, b] if a.priority == b.priority => Some(a.priority),
            _ => None,
        };
        if let Some(priority) = sorted.windows(2).find_map(twice) {
            return Err(DemandError::Twice(priority));
        }
        match *sorted {
            [] => Err(DemandError::Empty),
            [band] => Ok(Self::one(band)),
            _ => Ok(Self(DemandBands::Several(sorted))),
        }
    }

    /// The bands, the highest priority first; at least one, each priority once.
    pub fn bands(&self) -> &[Band] {
        match &self.0 {
            DemandBands::One(band) => core::slice::from_ref(band),
            DemandBands::Several(bands) => bands,
        }
    }

    /// What all bands want together.
    pub fn wants(&self) -> Capacity {
        let wants = self.bands().iter().map(|band| band.wants);
        wants.fold(Capacity::ZERO, Capacity::saturating_add)
    }
}

// === impl ResourceId ===

impl ResourceId {
    /// The resource that `scope` and `unit` make.
    ///
    /// # Errors
    /// If `scope` is empty, longer than [`ID_LEN_MAX`] or has control characters.
    pub fn new(scope: &str, unit: Unit) -> Result<Self, IdError> {
        Ok(Self {
            scope: checked(scope)?,
            unit,
        })
    }
}

// === impl ClientId ===

impl ClientId {
    /// The client called `id`.
    ///
    /// # Errors
    /// If `id` is empty, longer than [`ID_LEN_MAX`] or has control characters.
    pub fn new(id: &str) -> Result<Self, IdError> {
        Ok(Self(checked(id)?))
    }

    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl ClientRun ===

impl ClientRun {
    /// The client called `id`, whose protocol does not tell its runs apart.
    pub const fn only(id: ClientId) -> Self {
        Self { id, run: Run::Only }
    }
}

// === impl Run ===

impl Run {
    /// Orders the runs of one entry: the term, where there is one.
    pub(crate) const fn term(self) -> Epoch {
        match self {
            Self::Term(term) => term,
            Self::Only | Self::Incarnation(_) => Epoch(0),
        }
    }
}

// === free functions ===

fn checked(id: &str) -> Result<Arc<str>, IdError> {
    if id.is_empty() {
        return Err(IdError::Empty);
    }
    if id.len() > ID_LEN_MAX {
        return Err(IdError::TooLong(id.len()));
    }
    if id.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    Ok(id.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_names() {
        for unit in Unit::ALL {
            assert_eq!(Unit::from_name(unit.name()), Some(unit));
        }
        assert_eq!(Unit::from_name("request"), None);
    }

    #[test]
    fn an_epoch_follows_if_a_real_master_can_have_it() {
        let clock = 1_790_000_000_000;
        let rows = [
            // The first answer, a second one, the next start.
            (0, clock, "ok"),
            (clock, clock, "ok"),
            (clock, clock + 86_400_000, "ok"),
            (clock, clock + (1 << 36), "ok"),
            (clock, clock - 1, "lower"),
            // From `--epoch 5` to the clock.
            (5, clock, "ok"),
            (clock, clock + (1 << 36) + 1, "jump"),
            (clock, (1 << 42) - 1, "jump"),
            (0, (1 << 42) - 1, "ok"),
            (0, 1 << 42, "jump"),
            (clock, u64::MAX, "jump"),
            // An earlier version may have applied an epoch that is refused now.
            (u64::MAX, clock, "ok"),
            (u64::MAX, u64::MAX, "jump"),
        ];
        for (known, answered, want) in rows {
            let of = |epoch| Origin::alone(Epoch(epoch));
            let found = match of(answered).check_after(of(known)) {
                Ok(()) => "ok",
                Err(EpochError::Lower { .. }) => "lower",
                Err(EpochError::Jump { .. }) => "jump",
            };
            assert_eq!(found, want, "{answered} after {known}");
        }
        let of_shard = |shard, epoch| Origin {
            shard: Some(ShardId(shard)),
            epoch: Epoch(epoch),
        };
        let (one, two) = (of_shard(1, clock + 9), of_shard(2, clock));
        assert_eq!(two.check_after(one), Ok(()));
        let lie = of_shard(2, u64::MAX).check_after(one);
        assert!(matches!(lie, Err(EpochError::Jump { .. })), "{lie:?}");
    }

    #[test]
    fn priorities_are_clamped() {
        let rows = [(i64::MIN, 0), (-1, 0), (0, 0), (7, 7), (15, 15), (16, 15)];
        for (level, want) in rows {
            assert_eq!(Priority::nearest(level).level(), want, "{level}");
        }
        assert_eq!(Priority::new(15), Some(Priority::HIGHEST));
        assert_eq!(Priority::new(16), None);
    }

    #[test]
    fn bands_come_once_and_the_highest_first() {
        let band = |level, wants| Band {
            priority: Priority(level),
            wants: Capacity::from_whole(wants),
            subclients: NonZeroU32::MIN,
        };
        let demand = Demand::try_from_bands(&[band(2, 10), band(9, 20)]).unwrap();
        assert_eq!(demand.bands(), [band(9, 20), band(2, 10)]);
        assert_eq!(demand.wants(), Capacity::from_whole(30));
        let one = Demand::try_from_bands(&[band(3, 5)]).unwrap();
        assert_eq!(one, Demand::one(band(3, 5)));
        let twice = Demand::try_from_bands(&[band(3, 5), band(4, 1), band(3, 6)]);
        assert_eq!(twice, Err(DemandError::Twice(Priority(3))));
        assert_eq!(Demand::try_from_bands(&[]), Err(DemandError::Empty));
    }

    #[test]
    fn ids_are_bounded_and_printable() {
        let long = "x".repeat(ID_LEN_MAX + 1);
        let rows = [
            ("", Some(IdError::Empty)),
            (long.as_str(), Some(IdError::TooLong(257))),
            ("tenant/a\nb", Some(IdError::Control)),
            ("tenant/bücher", None),
            (&long[1..], None),
        ];
        for (id, want) in rows {
            assert_eq!(ClientId::new(id).err(), want, "{id}");
            assert_eq!(ResourceId::new(id, Unit::Requests).err(), want, "{id}");
        }
    }
}
