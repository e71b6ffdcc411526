//! Looks at scopes and changes of their balances outside of any request, for protocols that give tokens
//! back or charge what has been spent already.
//!
//! The obvious way to look is to draw a token and to put it back. That counts an attempt, and another
//! request may miss the token in between.

use core::time::Duration;

use tollgate_core::client::LeaseState;
use tollgate_core::units::{Instant, Tokens};

use super::{Admission, Target, entry};
use crate::host::Host;
use crate::process::Process;
use crate::refusal::ScopeLevel;
use crate::shared_table::TableError;

// === impl Admission ===

impl Admission {
    /// Returns the canonical scope that a scope leads to, if that is another.
    pub(crate) fn canonical_of<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
    ) -> Result<Option<Target>, TableError> {
        let canonical = self
            .meters(target)
            .and_then(|meters| meters.canonical.clone());
        let Some(id) = canonical else {
            return Ok(None);
        };
        let canonical = Target {
            rule: target.rule,
            ..self.canonical_target(process, &id)?
        };
        let is_other = canonical.bucket() != target.bucket();
        Ok(is_other.then_some(canonical))
    }

    /// Returns how a scope's limit of requests stands, with the tokens that this worker holds.
    pub(crate) fn level<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        now: Instant,
    ) -> Result<ScopeLevel, TableError> {
        let cached =
            entry(&mut self.tables, target).map_or(Tokens::ZERO, |entry| entry.cache.left());
        let (level, _) = self.with_scope_state(process, target, now, |scope_state, policy| {
            let limiter = &scope_state.requests;
            let level = limiter.level(now);
            ScopeLevel {
                capacity: limiter.capacity(),
                period: limiter.period(),
                rate: limiter.flow(now, policy).0,
                is_leased: limiter.state(now) == LeaseState::Leased,
                left: level.left.saturating_add(cached),
                next_in: level.next_in,
                full_in: level.full_in,
                quota: limiter.quota(now),
            }
        })?;
        Ok(if cached >= Tokens::ONE {
            ScopeLevel {
                next_in: Some(Duration::ZERO),
                ..level
            }
        } else {
            level
        })
    }

    /// Gives tokens back to a scope's bucket, up to its burst.
    pub(crate) fn give_back<H: Host>(
        &mut self,
        process: &mut Process<H>,
        target: Target,
        now: Instant,
        tokens: Tokens,
    ) -> Result<(), TableError> {
        self.with_scope_state(process, target, now, |scope_state, policy| {
            scope_state.requests.give_back(now, policy, tokens);
        })?;
        if let Some(entry) = entry(&mut self.tables, target) {
            entry.denial = None;
        }
        Ok(())
    }
}
