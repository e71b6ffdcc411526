//! Drains: clients that are to give back their leases.
//!
//! A drained client is answered as if it wanted nothing, so that its leases shrink to nothing as it
//! acknowledges that, or expire. That lasts until a deadline and not for ever: a client that is
//! forgotten here serves again, one that never came back needs no cleaning up, and a coordinator
//! that restarts has at worst to be told again.

use alloc::collections::BTreeMap;

use crate::lease::ClientId;
use crate::units::Instant;

/// The most clients that are drained at a time: each refresh looks whether its client is.
pub const DRAINS_MAX: usize = 1000;

/// The drained clients, each until its deadline.
#[derive(Clone, Debug, Default)]
pub struct Drains(BTreeMap<ClientId, Instant>);

/// Reason for which a client cannot be drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// So many are being drained already.
    #[error("{max} clients are being drained, the most this coordinator keeps")]
    TooMany {
        /// The bound.
        max: usize,
    },
}

// === impl Drains ===

impl Drains {
    /// Drains `client` until `until`; ends its drain if that has passed.
    ///
    /// # Errors
    /// If [`DRAINS_MAX`] others are being drained.
    pub fn set(
        &mut self,
        now: Instant,
        client: &ClientId,
        until: Instant,
    ) -> Result<(), DrainError> {
        self.0.retain(|_, until| *until > now);
        if until <= now {
            self.0.remove(client);
            return Ok(());
        }
        if self.0.len() >= DRAINS_MAX && !self.0.contains_key(client) {
            return Err(DrainError::TooMany { max: DRAINS_MAX });
        }
        self.0.insert(client.clone(), until);
        Ok(())
    }

    /// End of the drain of `client`, if it is drained.
    pub(super) fn until(&self, now: Instant, client: &ClientId) -> Option<Instant> {
        // Nearly always no client is, and this is asked at each refresh.
        let until = if self.0.is_empty() {
            None
        } else {
            self.0.get(client).copied()
        };
        until.filter(|until| *until > now)
    }

    /// The drained clients, with the ends of their drains.
    pub fn iter(&self, now: Instant) -> impl Iterator<Item = (&ClientId, Instant)> {
        let drains = self.0.iter().map(|(client, until)| (client, *until));
        drains.filter(move |(_, until)| *until > now)
    }
}
