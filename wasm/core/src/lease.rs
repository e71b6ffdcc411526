//! Messages of the lease protocol: requests of clients, and the answers to them.
//!
//! All times are durations, never absolute: the two ends do not share a clock. The client counts a
//! lease from the moment it sent its request and the coordinator from the moment it answered, so
//! the client's copy always ends first.

use core::time::Duration;

use crate::fleet::QuotaLevel;
use crate::traffic::Tally;
use crate::units::{Capacity, RatePeriod, Tokens};

mod demand;
mod epoch;
mod id;

pub use self::demand::{Band, Demand, DemandError, Priority};
pub use self::epoch::{Epoch, EpochError, Origin};
pub use self::id::{ClientId, ClientRun, ID_LEN_MAX, IdError, ResourceId, Run};

/// The [`LeaseTerms::fingerprint`] of a lease that proves nothing of the limits under which it was
/// granted.
pub(crate) const NO_FINGERPRINT: u64 = 1;

/// Unit in which a capacity is counted.
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

/// Request of a client for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Grows with every request of this run of the client for this resource. The client applies
    /// only the answer to its latest one, so a higher sequence tells that no earlier answer will be
    /// used.
    pub sequence: u64,
    /// Capacity of the client's unexpired lease, else zero.
    pub has: Capacity,
    /// Time for which that still lasts; none if the client does not say.
    pub remaining: Option<Duration>,
    /// [`LeaseTerms::fingerprint`] of that lease; 0 if the client does not say.
    pub fingerprint: u64,
    /// Evidence behind `has`.
    pub claim: Claim,
    /// Capacity that the client would use if nothing held it back.
    pub demand: Demand,
    /// Tokens of the fleet's bucket that it draws; none if the client cannot draw.
    pub draw: Option<DrawRequest>,
    /// Attempts and refusals since its last request that was answered.
    pub tally: Tally,
}

/// Draw of a client from the bucket of the whole fleet. Cumulative numbers are of this run of the
/// client, so that a message that is lost, late or repeated changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrawRequest {
    /// Tells accounts apart: with another one the numbers begin anew, as of a client that has given its
    /// state up in between.
    pub account: u64,
    /// [`DrawAnswer::granted`] of the last answer that was applied.
    pub drawn: Tokens,
    /// Tokens of these that are not spent.
    pub holds: Tokens,
    /// Tokens for which requests wait now.
    pub needs: Tokens,
    /// Tokens that the first of these needs, or if there is none the last one did; of bytes as many as a request usually
    /// has.
    pub first: Tokens,
    /// Time since it has spent a token of those that it was granted: for so long there has been room for others.
    pub spent_for: Duration,
    /// Tokens that were left and are given back with this request; they are no part of `holds`. If it is lost
    /// they are lost.
    pub returns: Tokens,
    /// Tokens that were spent and came back since, for a request turned out to cost less. If it is lost they are lost.
    pub refunds: Tokens,
    /// Time since the first of these were taken, or more.
    pub refunded_for: Duration,
    /// Tokens that were spent and have not been granted: costs that became known afterwards, or requests that could
    /// not wait. The fleet's bucket pays them at once, if need be by going into debt.
    pub owed: Tokens,
    /// The most that the fleet's bucket may lack then. What is owed beyond is forgiven.
    pub debt_max: Tokens,
}

/// Evidence behind [`LeaseRequest::has`]. Only a coordinator that lends on has more than one lease
/// in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// One lease: the one that was applied last.
    #[default]
    Lease,
    /// The part in use of several leases: of the last one, and of earlier ones that were larger and
    /// have not been given back by the clients to which they were lent.
    Several,
    /// At least so much, by the word of others: a coordinator that has started without a lease
    /// table asks its parent before it knows all that it has lent, or has a snapshot that did not
    /// age on its way to it. Capacity that is counted for it stays counted, and its claim is
    /// counted, but not lent to it again.
    AtLeast,
}

/// Answer of a coordinator for one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The lease; none in learning mode for a client that claims none: it stays in its mode.
    pub lease: Option<LeaseTerms>,
    /// Time after which to ask again.
    pub refresh_interval: Duration,
    /// Capacity to fall back to when the lease has expired; none leaves the client's own setting.
    pub safe: Option<Capacity>,
    /// Capacity of the whole resource, which a refusal names.
    pub capacity: Capacity,
    /// Period for which that was written, if it is known.
    pub period: Option<RatePeriod>,
    /// Burst of the whole resource; none if it is not known.
    pub burst: Option<Tokens>,
    /// Tokens of the fleet's bucket; none if there is none that this client may draw of.
    pub draw: Option<DrawAnswer>,
}

/// Tokens that a client gets of the bucket of the whole fleet. They end with its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrawAnswer {
    /// All that were ever granted to this account of this run of the client. Of requests in flight the number up
    /// to which new ones may begin; more may be leased, because they have not ended yet.
    pub granted: Tokens,
    /// Tokens that are left. Of requests in flight more than none while it is not known what others have.
    pub left: Tokens,
    /// Time after which the client should draw again, if it got fewer than it needs.
    pub next: Option<Duration>,
    /// Capacity that the client may use while calls fail, until its lease ends.
    pub standby: Capacity,
    /// The quota that is nearest to its end, if there is any: then nothing passes that was not drawn.
    pub quota: Option<QuotaLevel>,
}

/// Capacity lent for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Capacity that the client gets; may be [`Capacity::UNLIMITED`].
    pub capacity: Capacity,
    /// The client's part of the resource's burst.
    pub burst: Tokens,
    /// Length of the lease, counted by the client from when it sent its request.
    pub duration: Duration,
    /// Grant fingerprint: tells a coordinator under which limits it lent this; to the client it
    /// means nothing. The client returns it in [`LeaseRequest::fingerprint`], so that a coordinator
    /// without a lease table knows whether a claim was lent under the limits of today. Never 0.
    pub fingerprint: u64,
}

/// Answer for one unit of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitAnswer {
    /// Unit that was asked for.
    pub unit: Unit,
    /// Sequence of the request.
    pub sequence: u64,
    /// The lease, and when to ask again.
    pub answer: Answer,
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

    /// Whether it counts what is in use at a time, rather than what passes in a second. Concurrency
    /// has no burst, and is lent in whole units: two fifths of a permit serve no request.
    pub const fn is_concurrency(self) -> bool {
        matches!(self, Self::Concurrency)
    }

    /// Whether it counts bytes, of which nobody knows how many a request will bring: one that is left lets
    /// it go on.
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::RequestBytes | Self::ResponseBytes)
    }
}

// === impl LeaseRequest ===

impl LeaseRequest {
    /// A request of a client that speaks for itself alone and claims nothing: one band of the
    /// lowest priority.
    pub fn new(sequence: u64, has: Capacity, wants: Capacity) -> Self {
        Self {
            sequence,
            has,
            remaining: None,
            fingerprint: 0,
            claim: Claim::Lease,
            demand: Demand::of(wants),
            draw: None,
            tally: Tally::default(),
        }
    }
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
}
