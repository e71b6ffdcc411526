//! Requests that are decided on.

use tollgate_core::units::Tokens;

use super::charge::Prepaid;
use super::reservation::Reservation;
use super::shadow::Shadowed;
use crate::config::RULES_MAX;
use crate::decision::{Decision, Shortfall, Target};
use crate::refusal::Refusal;
use crate::roots::RootSettings;
use crate::rules::Rules;

/// Each rule's scope may use the capacity of another as well.
const TARGETS_MAX: usize = RULES_MAX * 2;

/// Stage of a request, which says what may still be decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It may be held for first leases.
    #[default]
    New,
    /// It is not held any more.
    Unheld,
    /// It has waited and its turn has come: it goes before those who wait, but for earlier requests of
    /// its own member, and has been counted.
    Turn,
}

/// Results of the buckets that a request has been decided on with so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Findings {
    /// True if a first lease is awaited.
    pub(crate) pending: bool,
    /// Refusal by rules that refuse.
    pub(crate) denied: Option<Refusal>,
    /// Shortest bucket of rules that let requests wait.
    pub(crate) shortfall: Option<Shortfall>,
    /// True if a rule would have refused that is in shadow mode.
    pub(crate) shadowed: bool,
}

/// Request that is decided on: the buckets that it needs, and what has been found out.
#[derive(Clone, Debug)]
pub struct Request {
    targets: [Target; TARGETS_MAX],
    len: usize,
    /// Number of targets that are the rules' own; canonical scopes follow these.
    own: usize,
    pub(crate) root: RootSettings,
    pub(crate) stream: u32,
    /// Tokens of requests that it needs of each bucket.
    pub(crate) cost: Tokens,
    /// The charge of earlier passes, if it has come before.
    pub(crate) prepaid: Option<Box<Prepaid>>,
    pub(crate) stage: Stage,
    pub(crate) findings: Findings,
    /// Refusals without effect from before any bucket was looked at.
    pub(crate) shadowed_early: Shadowed,
    /// Refusals without effect, as of the last decision.
    pub(crate) shadowed: Shadowed,
    /// True if refusals without effect have been counted.
    pub(crate) shadow_counted: bool,
    /// True if some targets limit requests in flight.
    pub(crate) needs_permits: bool,
    /// The targets, as bits of their indices, of which it has taken permits.
    pub(crate) permits_taken: u32,
    /// The targets, as bits of their indices, of which it has taken its tokens, if it has a final cost.
    pub(crate) tokens_taken: u32,
    /// True if the stream counts in some targets until it ends.
    pub(crate) counts_until_end: bool,
    /// True if the cost at some targets is known only at the end.
    pub(crate) has_final_cost: bool,
    /// Tokens that it needs at rules where these are not its cost.
    pub(crate) reservations: Vec<Reservation>,
    /// True if some targets lead to canonical scopes.
    pub(crate) has_canonical: bool,
    /// True if it has been counted at these.
    pub(crate) counted_at_canonical: bool,
}

// === impl Findings ===

impl Findings {
    /// Returns whether no bucket stands in the way.
    pub(crate) fn admits(&self) -> bool {
        !self.pending && !self.is_denied()
    }

    /// Returns whether a bucket has too little.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied.is_some() || self.shortfall.is_some()
    }

    /// Adds a bucket that has too little, where requests wait; that with the later end counts.
    pub(crate) fn add_shortfall(&mut self, shortfall: Shortfall) {
        let refusal = shortfall.refusal();
        let is_later = |other: &Shortfall| other.refusal().stricter(refusal) == refusal;
        if self.shortfall.as_ref().is_none_or(is_later) {
            self.shortfall = Some(shortfall);
        }
    }

    /// Adds a refusal; that with the later end counts.
    pub(crate) fn add_refusal(&mut self, refusal: Refusal) {
        let stricter = self.denied.map(|other| other.stricter(refusal));
        self.denied = Some(stricter.unwrap_or(refusal));
    }

    /// Returns the decision that the findings come to, and counts a shortfall that refuses.
    pub(crate) fn decision(&self, rules: &mut Rules) -> Decision {
        match (self.denied, self.shortfall) {
            (Some(refusal), None) => Decision::Deny(refusal),
            (Some(refusal), Some(shortfall)) => {
                rules.count_refused(shortfall.refusal());
                Decision::Deny(refusal.stricter(shortfall.refusal()))
            }
            (None, _) if self.pending => Decision::Hold,
            (None, Some(shortfall)) => Decision::Queue(shortfall),
            (None, None) => Decision::Admit,
        }
    }
}

// === impl Request ===

impl Request {
    /// Returns a request without targets.
    #[inline]
    pub(crate) const fn new(root: RootSettings, stream: u32, cost: Tokens) -> Self {
        Self {
            targets: [Target::of(0, 0); TARGETS_MAX],
            len: 0,
            own: 0,
            root,
            stream,
            cost,
            prepaid: None,
            stage: Stage::New,
            findings: Findings {
                pending: false,
                denied: None,
                shortfall: None,
                shadowed: false,
            },
            shadowed_early: Shadowed::NONE,
            shadowed: Shadowed::NONE,
            shadow_counted: false,
            needs_permits: false,
            permits_taken: 0,
            tokens_taken: 0,
            counts_until_end: false,
            has_final_cost: false,
            reservations: Vec::new(),
            has_canonical: false,
            counted_at_canonical: false,
        }
    }

    /// Returns its stream.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// Returns the settings of its configuration.
    pub fn root(&self) -> RootSettings {
        self.root
    }

    /// Forgets the findings of the last decision, and the canonical scopes, which may be others by now.
    pub(crate) fn restart(&mut self, stage: Stage) {
        self.stage = stage;
        self.counted_at_canonical |= self.len > self.own;
        self.len = self.own;
        self.has_canonical = false;
        self.shadow_counted |= self.findings.shadowed;
        self.findings = Findings::default();
        self.shadowed = self.shadowed_early;
        self.permits_taken = 0;
        self.tokens_taken = 0;
    }

    /// Notes a refusal by a rule in shadow mode. Requests that wait are decided on again and again,
    /// and count once.
    pub(crate) fn shadow(&mut self, rules: &mut Rules, refusal: Refusal) {
        if !self.shadow_counted {
            rules.count_shadowed(refusal);
        }
        self.findings.shadowed = true;
        self.shadowed.add(rules, refusal);
    }

    /// Adds a target of a rule.
    #[inline]
    pub(crate) fn push(&mut self, target: Target) {
        if let Some(place) = self.targets.get_mut(self.len) {
            *place = target;
            self.len = self.len.saturating_add(1);
            self.own = self.len;
        }
    }

    /// Adds the target of a canonical scope. False if the request needs its bucket already.
    pub(crate) fn push_canonical(&mut self, target: Target) -> bool {
        let own = self.own;
        let is_new = !self.needs(target);
        if is_new {
            self.push(target);
            self.own = own;
        }
        is_new
    }

    /// Puts `target` in the place of another one.
    pub(crate) fn replace(&mut self, index: usize, target: Target) {
        if let Some(place) = self.targets.get_mut(index) {
            *place = target;
        }
    }

    fn needs(&self, target: Target) -> bool {
        let mut targets = self.targets().iter();
        targets.any(|other| other.bucket() == target.bucket())
    }

    /// Returns whether it needs a bucket.
    #[inline]
    pub fn has_targets(&self) -> bool {
        self.len > 0
    }

    /// Returns all targets so far.
    #[inline]
    pub(crate) fn targets(&self) -> &[Target] {
        self.targets.get(..self.len).unwrap_or_default()
    }

    /// Returns the targets of the rules' own scopes.
    pub(crate) fn own_targets(&self) -> &[Target] {
        self.targets.get(..self.own).unwrap_or_default()
    }

    /// Returns the tokens that the request still needs of the target at `index`.
    #[inline]
    pub(crate) fn cost_at(&self, index: usize) -> Tokens {
        if self.has_own_costs()
            && let Some(target) = self.targets().get(index)
        {
            return self.cost_of(*target);
        }
        self.cost
    }

    /// Returns the tokens that the request still needs of one of its targets.
    pub(crate) fn cost_of(&self, target: Target) -> Tokens {
        let prepaid = self.prepaid_at(target).unwrap_or(Tokens::ZERO);
        self.whole_cost(target.rule).saturating_sub(prepaid)
    }

    /// Returns the attempts that the request counts for in the demand of the target at `index`.
    #[inline]
    pub(crate) fn attempts_at(&self, index: usize) -> u32 {
        attempts(self.cost_at(index))
    }

    /// Returns whether it needs other tokens of some targets than its cost.
    #[inline]
    pub(crate) fn has_own_costs(&self) -> bool {
        self.is_prepaid() || !self.reservations.is_empty()
    }

    /// Notes that the request has taken a permit of its target at `index`.
    pub(crate) fn note_permit(&mut self, index: usize) {
        self.permits_taken |= bit(index);
    }

    /// Returns whether the request has taken a permit of its target at `index`.
    pub(crate) fn has_taken_permit(&self, index: usize) -> bool {
        is_set(self.permits_taken, index)
    }

    /// Returns whether the request has taken its tokens of its target at `index`.
    pub(crate) fn has_taken_tokens(&self, index: usize) -> bool {
        is_set(self.tokens_taken, index)
    }

    /// Lets the request count nowhere: it goes on without a decision and took nothing to put back.
    pub(crate) fn count_nowhere(&mut self) {
        (self.counts_until_end, self.needs_permits) = (false, false);
        self.has_final_cost = false;
    }

    /// Returns the member that the request belongs to where it waits for `target`: its own scope,
    /// if that leads there.
    pub(crate) fn member_at(&self, target: Target) -> u64 {
        let own = self.own_targets();
        let is_own = own.iter().any(|other| other.bucket() == target.bucket());
        let leads = own.iter().find(|other| other.table == target.rule);
        leads
            .filter(|_| !is_own)
            .map_or_else(|| target.member(), |leads| leads.member())
    }
}

// === free functions ===

/// The bit for the target at `index`.
pub(super) fn bit(index: usize) -> u32 {
    let index = u32::try_from(index).ok();
    index
        .and_then(|index| 1_u32.checked_shl(index))
        .unwrap_or(0)
}

fn is_set(bits: u32, index: usize) -> bool {
    bits & bit(index) != 0
}

/// Attempts that count for `cost` tokens.
#[inline]
pub(super) fn attempts(cost: Tokens) -> u32 {
    u32::try_from(cost.whole()).unwrap_or(u32::MAX)
}
