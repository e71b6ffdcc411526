//! Requests and expiries, as the entry of their client takes them.

use super::{
    Algorithm, Allocation, Answer, Capacity, ClientEntry, CountedLease, EntryTotals, Epoch,
    Instant, LeaseRequest, Limit, NO_FINGERPRINT, Presence, RefreshError, Tally, TieBreak, Tokens,
};
use crate::pool::PoolLink;
use crate::resource::ClientDraws;

/// Minimum intervals for which it is remembered that a client has to wait: it asks each time.
const LACK_ASKS: u32 = 2;

// === impl Allocation ===

impl Allocation {
    /// Returns the entry of a new client, and its first answer. The lease that it claims counts in
    /// learning mode only: outside of it every lease is in the lease table, so the claim is void.
    pub(in crate::resource) fn admit(
        &mut self,
        now: Instant,
        (tie_break, term): (TieBreak, Epoch),
        request: &LeaseRequest,
        pool: &mut PoolLink<'_>,
    ) -> (ClientEntry, Answer) {
        self.report(now, pool);
        let expiry = now.saturating_add(self.times_alone().lease);
        let mut granted = CountedLease::new(Capacity::ZERO, expiry);
        let mut young_until = expiry;
        if now < self.learning_until && request.has > Capacity::ZERO {
            // Also beyond what is borrowed now, for it was lent out of what was borrowed then; but
            // never beyond what there is in all.
            let whole = self.lendable.map(|lendable| lendable.whole);
            let whole = whole.unwrap_or(Capacity::UNLIMITED);
            let free = self.free_of(whole, Capacity::ZERO).keep;
            granted.capacity = self.shares.quantum().floor(request.has.min(free));
            granted.expiry = self.claim_counts_until(now, request);
            // It was there before.
            young_until = now;
        }
        let each = each(&self.limit);
        let mut entry = ClientEntry {
            handles: self.shares.insert(tie_break, &request.demand, each),
            term,
            sequence: request.sequence,
            draws: ClientDraws::default(),
            gives_back: false,
            excess: (Tokens::ZERO, now),
            served_at: Instant::ZERO,
            tally: Tally::default(),
            granted,
            granted_at: now,
            granted_pending: false,
            max_rate: None,
            told: None,
            fingerprint: NO_FINGERPRINT,
            prior: None,
            presence: Presence::new(now, young_until),
            throttled_since: None,
            nudged_at: None,
            queued_at: granted.expiry,
        };
        self.replace_totals(EntryTotals::default(), entry.totals());
        self.report(now, pool);
        // It was forgotten what it held.
        let draw = request
            .draw
            .map(|draw| draw.within(Tokens::ZERO, Tokens::ZERO));
        self.note_draw(now, &mut entry, draw.as_ref(), pool);
        self.note_tally(now, &mut entry, request.tally);
        let leased = entry.granted.capacity.min(request.has);
        let answer = self.settle(now, &mut entry, request, pool);
        let tokens = (draw.as_ref(), leased);
        let draw = self.draw(now, tie_break, &mut entry, tokens, pool);
        let answer = Answer {
            draw,
            refresh_interval: self.interval(
                now,
                &entry,
                request.draw.as_ref(),
                (draw.and_then(|draw| draw.next), answer.refresh_interval),
                pool,
            ),
            ..answer
        };
        self.note_answer(now, &mut entry, &answer);
        entry.queued_at = entry.next_expiry();
        (entry, answer)
    }

    /// Answers a client that has an entry.
    pub(in crate::resource) fn refresh(
        &mut self,
        now: Instant,
        (tie_break, term): (TieBreak, Epoch),
        entry: &mut ClientEntry,
        request: &LeaseRequest,
        pool: &mut PoolLink<'_>,
    ) -> Result<Answer, RefreshError> {
        entry.check_is_later(term, request.sequence)?;
        // A transport sent it twice: the first answer may be in use already, so `has` of the request
        // is no longer news.
        let (held, spent) = (self.returnable(entry), self.refundable(entry));
        let twice = (term, request.sequence) == (entry.term, entry.sequence);
        let wanted = entry.wants();
        if !twice {
            entry.term = term;
            self.acknowledge(tie_break, entry, request);
        } else if entry.presence.silent {
            self.count_again(tie_break, entry, request);
        }
        self.report(now, pool);
        let needs = request.draw.filter(|_| !twice);
        let needs = needs.map(|draw| draw.within(held, spent));
        if !twice {
            self.note_draw(now, entry, needs.as_ref(), pool);
            self.note_tally(now, entry, request.tally);
        }
        // While learning, the counted lease may rest on a request that was sent to the master before
        // and arrived late; others may have the capacity that it claimed. Only the client's present
        // word may be confirmed, however early it asks. Of what is lent on, such a lease may last
        // longer than the time to learn, and nothing says that it is borrowed.
        let min_refresh = self.times(now).min_refresh;
        let early = now < entry.granted_at.saturating_add(min_refresh);
        // Others have given back what it waits for. That it wants still more may not hurry it.
        let grows = self.would_grow(entry, wanted);
        let learned = now >= self.learning_until && !self.is_pending() && !entry.granted_pending;
        let waits = early && learned && !grows && !self.draws_permits(entry);
        // A lease that has ended for its client begins anew.
        let leased = entry.granted.capacity.min(request.has);
        let answer = if twice || waits {
            // With the wants of this request and the lease of the answer before.
            entry.note_throttled(now);
            self.repeat(now, entry)
        } else {
            self.settle(now, entry, request, pool)
        };
        let tokens = (needs.as_ref(), leased);
        let draw = self.draw(now, tie_break, entry, tokens, pool);
        let answer = Answer {
            draw,
            refresh_interval: self.interval(
                now,
                entry,
                request.draw.as_ref(),
                (draw.and_then(|draw| draw.next), answer.refresh_interval),
                pool,
            ),
            ..answer
        };
        self.note_answer(now, entry, &answer);
        Ok(answer)
    }

    fn note_tally(&mut self, now: Instant, entry: &mut ClientEntry, tally: Tally) {
        let counts = tally.beyond(&entry.tally);
        self.traffic.add(now, counts);
        self.note_attempts(now, entry, counts.attempts);
        entry.tally = tally;
    }

    fn note_answer(&self, now: Instant, entry: &mut ClientEntry, answer: &Answer) {
        let interval = answer.refresh_interval;
        entry
            .presence
            .note_answer(now, interval, self.learning_until);
    }

    /// Tells the pool the sums with this request, by which it divides, and looks at it.
    pub(crate) fn report(&mut self, now: Instant, pool: &mut PoolLink<'_>) {
        self.pool = pool.view_after(now, || self.pool_totals());
    }

    /// Decides what the client gets now.
    fn settle(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        request: &LeaseRequest,
        pool: &mut PoolLink<'_>,
    ) -> Answer {
        let before = entry.totals();
        let used = entry.used_by(request);
        let grant = self.grant(now, entry, used, request);
        if let Some(until) = grant.crowded_until {
            self.crowded_until = until;
            pool.set_crowded_until(until);
        }
        if grant.lacks > Capacity::ZERO {
            self.note_lack(now, grant.lacks, pool);
        }
        entry.told = grant.told;
        entry.granted = grant.counted;
        entry.granted_at = now;
        entry.granted_pending = self.is_pending();
        entry.fingerprint = grant.fingerprint;
        entry.prior = used.beyond(entry.granted);
        entry.note_throttled(now);
        self.replace_totals(before, entry.totals());
        self.answer(now, entry, grant.refresh_interval)
    }

    /// Notes that a client has to wait for so much, until it has asked twice again.
    pub(super) fn note_lack(&mut self, now: Instant, lacks: Capacity, pool: &mut PoolLink<'_>) {
        let lasts = self.times(now).min_refresh.saturating_mul(LACK_ASKS);
        self.lack.note(now, lacks, lasts);
        self.stirred = true;
        pool.note_lack(now, lacks, lasts);
    }

    /// Drops the leases of `entry` that have expired.
    pub(in crate::resource) fn expire(&mut self, now: Instant, entry: &mut ClientEntry) {
        let before = entry.totals();
        entry.prior = entry.prior.filter(|prior| prior.expiry > now);
        if entry.granted.expiry <= now {
            // After the lease was shortened the larger one may outlive the smaller one. The rest
            // must expire later than now, or the queue would look at it for ever.
            entry.granted = CountedLease::new(Capacity::ZERO, entry.last_expiry());
        }
        self.replace_totals(before, entry.totals());
    }

    pub(in crate::resource) fn forget(&mut self, entry: ClientEntry) {
        self.replace_totals(entry.totals(), EntryTotals::default());
        self.shares.remove(entry.handles);
    }

    /// Takes the news of a request: what the client wants, and that it uses no more than it has.
    /// The last grant stays reserved until a new one replaces it.
    fn acknowledge(
        &mut self,
        tie_break: TieBreak,
        entry: &mut ClientEntry,
        request: &LeaseRequest,
    ) {
        entry.sequence = request.sequence;
        self.count_again(tie_break, entry, request);
        let before = entry.totals();
        let used = entry.used_by(request);
        entry.prior = used.beyond(entry.granted);
        self.replace_totals(before, entry.totals());
    }

    /// Takes what the client wants, which is there.
    fn count_again(
        &mut self,
        tie_break: TieBreak,
        entry: &mut ClientEntry,
        request: &LeaseRequest,
    ) {
        let before = entry.totals();
        let each = each(&self.limit);
        self.shares
            .update(tie_break, &mut entry.handles, &request.demand, each);
        entry.presence.note_request();
        self.replace_totals(before, entry.totals());
    }
}

// === free functions ===

/// The most that each client may have, whatever others do.
fn each(limit: &Limit) -> Capacity {
    match limit.algorithm {
        Algorithm::Static => limit.capacity,
        Algorithm::None
        | Algorithm::ProportionalShare
        | Algorithm::FairShare
        | Algorithm::UsageShare
        | Algorithm::MaxRate => Capacity::UNLIMITED,
    }
}
