//! Requests and expiries, as the entry of their client takes them.

use super::{
    Algorithm, Allocation, Answer, Capacity, ClientEntry, CountedLease, Epoch, Instant,
    LeaseRequest, Limit, NO_FINGERPRINT, RefreshError, TieBreak,
};

/// Next step of a refresh, after its request was taken.
#[derive(Debug)]
pub(in crate::resource) enum Received {
    /// The latest answer holds.
    Repeat(Answer),
    /// A new one is to be decided.
    Settle,
}

// === impl Allocation ===

impl Allocation {
    /// Returns the entry of a new client. The lease that it claims counts in learning mode only:
    /// outside of it every lease is in the lease table, so the claim is void.
    pub(in crate::resource) fn admit(
        &mut self,
        now: Instant,
        (tie_break, term): (TieBreak, Epoch),
        request: &LeaseRequest,
    ) -> ClientEntry {
        let mut granted = CountedLease {
            capacity: Capacity::ZERO,
            expiry: now.saturating_add(self.times_alone().lease),
        };
        if now < self.learning_until && request.has > Capacity::ZERO {
            // Also beyond what is borrowed now, for it was lent out of what was borrowed then; but
            // never beyond what there is in all.
            let whole = self
                .lendable
                .map_or(Capacity::UNLIMITED, |lendable| lendable.whole);
            let free = self.free_of(whole, Capacity::ZERO).keep;
            granted.capacity = self.shares.quantum().floor(request.has.min(free));
            granted.expiry = self.claim_counts_until(now, request);
        }
        self.replace_sum(Capacity::ZERO, granted.capacity);
        let each = each(&self.limit);
        ClientEntry {
            handles: self.shares.insert(tie_break, &request.demand, each),
            term,
            sequence: request.sequence,
            granted,
            granted_at: now,
            told: None,
            fingerprint: NO_FINGERPRINT,
            prior: None,
            queued_at: granted.expiry,
        }
    }

    /// Takes the request of a client that has an entry.
    pub(in crate::resource) fn receive(
        &mut self,
        now: Instant,
        (tie_break, term): (TieBreak, Epoch),
        entry: &mut ClientEntry,
        request: &LeaseRequest,
    ) -> Result<Received, RefreshError> {
        entry.check_is_later(term, request.sequence)?;
        if (term, request.sequence) == (entry.term, entry.sequence) {
            // A transport sent it twice. The first answer may be in use already, so `has` of the
            // request is no longer news.
            return Ok(Received::Repeat(self.repeat(now, entry)));
        }
        entry.term = term;
        self.acknowledge(tie_break, entry, request);
        // While learning, the counted lease may rest on a request that was sent to the master before
        // and arrived late; others may have the capacity that it claimed. Only the client's present
        // word may be confirmed, however early it asks. Of what is lent on, such a lease may last
        // longer than the time to learn, and nothing says that it is borrowed.
        let min_refresh = self.times(now).min_refresh;
        let early = now < entry.granted_at.saturating_add(min_refresh);
        let learned = now >= self.learning_until && !self.is_pending();
        if early && learned {
            return Ok(Received::Repeat(self.repeat(now, entry)));
        }
        Ok(Received::Settle)
    }

    /// Decides what the client gets now. The pool must have been told the sums with this request,
    /// because it divides by them. Also returns the end of the time in which claims do not fit, if
    /// this one did not.
    pub(in crate::resource) fn settle(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        request: &LeaseRequest,
    ) -> (Answer, Option<Instant>) {
        let before = entry.has();
        let used = entry.used_by(request);
        let grant = self.grant(now, entry, used, request);
        if let Some(until) = grant.crowded_until {
            self.crowded_until = until;
        }
        entry.told = grant.told;
        entry.granted = grant.counted;
        entry.granted_at = now;
        entry.fingerprint = grant.fingerprint;
        entry.prior = used.beyond(entry.granted);
        self.replace_sum(before, entry.has());
        let answer = self.answer(now, entry, grant.refresh_interval);
        (answer, grant.crowded_until)
    }

    /// Drops the leases of `entry` that have expired.
    pub(in crate::resource) fn expire(&mut self, now: Instant, entry: &mut ClientEntry) {
        let before = entry.has();
        entry.prior = entry.prior.filter(|prior| prior.expiry > now);
        if entry.granted.expiry <= now {
            // After the lease was shortened the larger one may outlive the smaller one. The rest
            // must expire later than now, or the queue would look at it for ever.
            entry.granted = CountedLease {
                capacity: Capacity::ZERO,
                expiry: entry.last_expiry(),
            };
        }
        self.replace_sum(before, entry.has());
    }

    pub(in crate::resource) fn forget(&mut self, entry: ClientEntry) {
        self.replace_sum(entry.has(), Capacity::ZERO);
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
        let each = each(&self.limit);
        self.shares
            .update(tie_break, &mut entry.handles, &request.demand, each);
        let before = entry.has();
        let used = entry.used_by(request);
        entry.prior = used.beyond(entry.granted);
        self.replace_sum(before, entry.has());
    }
}

// === free functions ===

/// The most that each client may have, whatever others do.
fn each(limit: &Limit) -> Capacity {
    match limit.algorithm {
        Algorithm::Static => limit.capacity,
        Algorithm::None | Algorithm::ProportionalShare | Algorithm::FairShare => {
            Capacity::UNLIMITED
        }
    }
}
