//! Connections with a place, and the choice of those that are most in the way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::connections::activity::{Activity, ConnectionRank, Stage};
use crate::connections::metrics::DropReason;
use crate::connections::source::ConnectionSource;

/// The time that a connection waits counts so many times before its first answer. So those that
/// never ask go before idle Envoys, and a newcomer has the time to ask.
const UNANSWERED_WEIGHT: u32 = 16;

/// A source that has more than this part of the places crowds the table: a quarter. An Envoy has one
/// connection for each of its threads.
const CROWD: usize = 4;

/// A client that owes something for less than this is not to blame for memory that ran out.
const BLAMELESS_TIME: Duration = Duration::from_secs(1);

/// By how many connections its source has, whether its client keeps it waiting, and for how long.
type Rank = (Option<u32>, bool, Duration);

/// Connections that have a place, or had one until a moment ago.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    /// The number of the newest.
    pub(super) last: u64,
    /// By number.
    pub(super) connections: BTreeMap<u64, Arc<Activity>>,
    /// Number of those for probes only.
    pub(super) probes: usize,
    /// Number of connections of each source.
    pub(super) sources: HashMap<ConnectionSource, usize>,
    /// Clients that were asked to leave, and when; they have no place any more.
    pub(super) closing: Vec<(Instant, Arc<Activity>)>,
}

// === impl OpenConnections ===

impl OpenConnections {
    /// Takes the place of a connection away, if it has one.
    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<Activity>> {
        let activity = self.connections.remove(&number)?;
        self.probes -= usize::from(activity.is_for_probes());
        if let Some(count) = self.sources.get_mut(&activity.source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&activity.source);
            }
        }
        Some(activity)
    }

    /// Whether its client may be about to make its first call.
    pub(super) fn is_before_its_first_call(&self, number: u64) -> bool {
        let client_rank = self.connections.get(&number).map(|open| open.rank());
        client_rank.is_some_and(|client_rank| {
            !client_rank.turn.is_ours() && client_rank.stage < Stage::Answered
        })
    }

    /// Moves a connection to the places for probes.
    pub(super) fn keep_for_probes(&mut self, number: u64) {
        if let Some(activity) = self.connections.get(&number) {
            activity.keep_for_probes();
            self.probes += 1;
        }
    }

    /// The connections that are not for probes only.
    pub(super) fn regular(&self) -> usize {
        self.connections.len() - self.probes
    }

    /// The numbers of up to `count` connections that are most in the way, for a newcomer from
    /// `source`, if it is for one: of the sources that crowd a table of `max` places first, then of
    /// those with the most connections, by powers of two; of these the ones whose clients keep them
    /// waiting longest.
    ///
    /// A connection with a call that is being worked on is among them only if its source crowds the
    /// table, and the newcomer is of another. A newcomer whose own source does that gets no place of
    /// a source that does not.
    pub(super) fn in_the_way(
        &self,
        count: usize,
        max: usize,
        source: Option<ConnectionSource>,
        now: Instant,
    ) -> Vec<u64> {
        let crowding = source.is_some_and(|source| self.crowds(source, max));
        let may_go = |activity: &Activity, client_rank: ConnectionRank| {
            let crowds = self.crowds(activity.source, max);
            let working_may_go = crowds && source != Some(activity.source);
            (crowds || !crowding) && (!client_rank.turn.is_ours() || working_may_go)
        };
        let rank = |(number, activity): (&u64, &Arc<Activity>)| {
            let client_rank = activity.rank();
            let crowds = self.crowds(activity.source, max);
            let rank = (crowds, self.rank(activity, client_rank, now));
            (!activity.is_for_probes() && may_go(activity, client_rank))
                .then_some((Reverse(rank), *number))
        };
        first(count, self.connections.iter().filter_map(rank).collect())
    }

    /// The numbers of up to `count` connections for probes that are most in the way there.
    pub(super) fn probes_in_the_way(&self, count: usize, now: Instant) -> Vec<u64> {
        let rank = |(number, activity): (&u64, &Arc<Activity>)| {
            let client_rank = activity.rank();
            let rank = self.rank(activity, client_rank, now);
            (activity.is_for_probes() && !client_rank.turn.is_ours())
                .then_some((Reverse(rank), *number))
        };
        first(count, self.connections.iter().filter_map(rank).collect())
    }

    /// How much a connection is in the way: by how many its source has, whether its client keeps it
    /// waiting, and for how long that has been so.
    fn rank(&self, activity: &Activity, client_rank: ConnectionRank, now: Instant) -> Rank {
        let crowd = self.count_of(activity.source).checked_ilog2();
        let lasted = now.saturating_duration_since(client_rank.turn.since());
        let weight = match client_rank.stage {
            Stage::Handshake | Stage::Unanswered => UNANSWERED_WEIGHT,
            Stage::Answered => 1,
        };
        (crowd, !client_rank.turn.is_ours(), lasted * weight)
    }

    fn count_of(&self, source: ConnectionSource) -> usize {
        self.sources.get(&source).copied().unwrap_or_default()
    }

    /// Whether `source` has more than a quarter of `max` places.
    fn crowds(&self, source: ConnectionSource, max: usize) -> bool {
        self.count_of(source) > max / CROWD
    }

    /// The connections that hold the most bytes times the time for which their clients owe
    /// something, until `excess` bytes are found.
    pub(super) fn largest(&self, excess: usize, now: Instant) -> Vec<(u64, DropReason)> {
        if excess == 0 {
            return Vec::new();
        }
        let blamed = self.connections.iter().filter_map(|(number, activity)| {
            let (bytes, since) = activity.delayed_bytes()?;
            let age = now.saturating_duration_since(since);
            let score = age.as_millis().saturating_mul(bytes as u128);
            (age >= BLAMELESS_TIME).then_some((score, bytes, *number))
        });
        let mut blamed: Vec<_> = blamed.collect();
        blamed.sort_unstable_by(|a, b| b.cmp(a));
        let mut found = 0_usize;
        blamed
            .into_iter()
            .take_while(|(_, bytes, _)| {
                let short = found < excess;
                found = found.saturating_add(*bytes);
                short
            })
            .map(|(_, _, number)| (number, DropReason::Memory))
            .collect()
    }
}

// === free functions ===

/// The numbers of the first `count` of `ranked`, in any order.
fn first<R: Ord>(count: usize, mut ranked: Vec<(Reverse<R>, u64)>) -> Vec<u64> {
    if ranked.len() > count {
        ranked.select_nth_unstable(count);
        ranked.truncate(count);
    }
    ranked.into_iter().map(|(_, number)| number).collect()
}
