//! Presence of a client: until when its wants count, and whether it is young.
//!
//! A client that does not come back when it was told to may be dead. Its lease counts until that
//! ends, for it may be using it; its wants do not count any longer, or one that crashes again and
//! again would take the shares of many (`docs/design-leases.md`, "A dead run").

use core::time::Duration;

use super::{Allocation, ClientEntry, TieBreak};
use crate::lease::{Band, Demand};
use crate::resource::PresenceSnapshot;
use crate::units::{Capacity, Instant};

/// Time by which a refresh may be late, beside half of its interval: for ticks, and the way across the
/// world.
const MISSED_SLACK: Duration = Duration::from_millis(500);

/// Presence of one client.
#[derive(Clone, Copy, Debug)]
pub(in crate::resource) struct Presence {
    /// Time of its latest request.
    asked_at: Instant,
    /// Time from which its refresh is missed. It only grows.
    pub(in crate::resource) missed_at: Instant,
    /// Whether it is silent: its wants do not count until it asks again.
    pub(in crate::resource) silent: bool,
    /// Whether it is known that its refresh is missed. One that is doubted is silent before.
    pub(in crate::resource) missed: bool,
    /// End of the time for which the client is young: of a lease since its first request.
    young_until: Instant,
    /// Its instant in the queue of silences, if it is in it.
    pub(in crate::resource) watched_at: Option<Instant>,
}

// === impl Presence ===

impl Presence {
    /// A client whose first request comes `now`, and that is young until `young_until`.
    pub(super) fn new(now: Instant, young_until: Instant) -> Self {
        Self {
            asked_at: now,
            missed_at: now,
            silent: false,
            missed: false,
            young_until,
            watched_at: None,
        }
    }

    pub(super) fn of(now: Instant, snapshot: &PresenceSnapshot) -> Self {
        let asked_at = now.saturating_sub(snapshot.asked_ago);
        Self {
            asked_at,
            missed_at: now.saturating_add(snapshot.missed_in),
            silent: snapshot.silent,
            missed: snapshot.missed,
            young_until: asked_at.saturating_add(snapshot.young_for),
            watched_at: None,
        }
    }

    pub(super) fn snapshot(&self, now: Instant) -> PresenceSnapshot {
        PresenceSnapshot {
            missed_in: self.missed_at.saturating_since(now),
            silent: self.silent,
            missed: self.missed,
            asked_ago: now.saturating_since(self.asked_at),
            young_for: self.young_until.saturating_since(self.asked_at),
        }
    }

    /// Whether it is young: it has been there for less than a lease.
    pub(in crate::resource) fn is_young(&self, now: Instant) -> bool {
        now < self.young_until
    }

    /// Notes that the client is there. One that was only doubted lives beside others of its node, which
    /// may come again and again: it is no longer taken for young, and so not doubted again.
    pub(super) fn note_request(&mut self) {
        if self.silent && !self.missed {
            self.young_until = self.asked_at;
        }
        self.silent = false;
        self.missed = false;
    }

    /// Notes an answer, after which the client waits for `interval`, but no shorter than it has
    /// waited before. It is not missed before `earliest`.
    pub(super) fn note_answer(&mut self, now: Instant, interval: Duration, earliest: Instant) {
        let rhythm = interval.max(now.saturating_since(self.asked_at));
        let half = rhythm.checked_div(2).unwrap_or(rhythm);
        let late = MISSED_SLACK.saturating_add(half);
        let missed_at = now.saturating_add(rhythm.saturating_add(late));
        self.asked_at = now;
        self.missed_at = self.missed_at.max(missed_at).max(earliest);
    }
}

// === impl Allocation ===

impl Allocation {
    /// Notes whether the client of `entry` has missed its refresh.
    pub(in crate::resource) fn note_if_missed(
        &mut self,
        now: Instant,
        tie_break: TieBreak,
        entry: &mut ClientEntry,
    ) {
        if entry.presence.missed || entry.presence.missed_at > now {
            return;
        }
        let before = entry.totals();
        entry.presence.missed = true;
        // The fleet's bucket has earned all until then, and less since.
        let missed_at = entry.presence.missed_at;
        self.fill(missed_at);
        self.replace_totals(before, entry.totals());
        self.fill(missed_at);
        let earned = entry.draws.standby.as_rate();
        let earned = earned.tokens_in(now.saturating_since(missed_at));
        self.unearned = self.unearned.saturating_add(earned);
        if !entry.presence.silent {
            let asked_at = entry.presence.asked_at;
            self.note_silence(asked_at, tie_break, entry);
        }
    }

    /// Takes the client of `entry` for dead until it asks again: it wants no more than it has. If it
    /// was young at `since` it wants nothing, so that the newcomer that may be its next run waits for its
    /// lease, and not all others.
    pub(in crate::resource) fn note_silence(
        &mut self,
        since: Instant,
        tie_break: TieBreak,
        entry: &mut ClientEntry,
    ) {
        let before = entry.totals();
        let most = if entry.presence.is_young(since) {
            Capacity::ZERO
        } else {
            entry.has()
        };
        let demand = capped(entry, most);
        self.shares
            .update(tie_break, &mut entry.handles, &demand, Capacity::UNLIMITED);
        entry.presence.silent = true;
        self.replace_totals(before, entry.totals());
    }
}

// === free functions ===

/// Demand of a client if it wants `most` at most: of its highest priorities first.
fn capped(entry: &ClientEntry, most: Capacity) -> Demand {
    let mut left = most;
    let bands = entry.handles.bands().map(|band| {
        let wants = band.wants.min(left);
        left = left.saturating_sub(wants);
        Band { wants, ..band }
    });
    let bands: alloc::vec::Vec<_> = bands.collect();
    // There is one handle at least, and each priority once.
    Demand::try_from_bands(&bands).unwrap_or(Demand::of(Capacity::ZERO))
}
