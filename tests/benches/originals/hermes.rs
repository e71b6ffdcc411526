//! Hermes' max-rates: members report how busy they are, and a leader moves max-rates between them.

use tollgate_core::share::max_rate::{MaxRateMember, MaxRateRule};
use tollgate_core::units::{Capacity, Instant};

use crate::original::{Original, capacity};

/// Members of one limit, and their leader.
pub(crate) struct Hermes {
    members: Vec<MaxRateMember>,
    limit: Capacity,
    messages: u64,
}

// === impl Hermes ===

impl Hermes {
    /// Members with equal parts, as the leader's first round makes them.
    pub(crate) fn new(clients: usize, limit: f64) -> Self {
        let mut members = vec![MaxRateMember::default(); clients];
        let limit = capacity(limit);
        MaxRateRule::HERMES.balance(limit, &mut members);
        Self {
            messages: clients as u64,
            members,
            limit,
        }
    }
}

impl Original for Hermes {
    fn play_round(&mut self, _: Instant, _: &[f64], wanted: &[f64]) {
        let rule = MaxRateRule::HERMES;
        for (member, wanted) in self.members.iter_mut().zip(wanted) {
            self.messages += u64::from(member.report(&rule, capacity(*wanted)));
        }
        let before: Vec<_> = self.members.iter().map(|member| member.max).collect();
        rule.balance(self.limit, &mut self.members);
        let after = self.members.iter().map(|member| member.max);
        let messages = before
            .into_iter()
            .zip(after)
            .filter(|(old, new)| old != new);
        self.messages += messages.count() as u64;
    }

    fn rates(&self) -> Vec<f64> {
        let max = |member: &MaxRateMember| member.max.unwrap_or_default().as_f64();
        self.members.iter().map(max).collect()
    }

    fn messages(&self) -> u64 {
        self.messages
    }
}
