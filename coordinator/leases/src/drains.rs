//! Drained clients, as one node remembers them.
//!
//! Every node hears of every drain and keeps it, master or not. So the next master of a shard knows
//! it, even if the previous one died without handing its lease table over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::lease::ClientId;
use tollgate_core::lease_server::{DrainError, Drains};
use tollgate_core::units::Instant;
use tollgate_net::clock::Clock;

/// Drained clients with the end of each drain; clones share it.
#[derive(Clone, Debug)]
pub struct NodeDrains {
    clock: Clock,
    /// Locked for one look-up at a time.
    drains: Arc<Mutex<Drains>>,
}

// === impl NodeDrains ===

impl NodeDrains {
    /// No drains yet. `clock` is the clock of the lease tables.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            drains: Arc::default(),
        }
    }

    /// Drains `client` for `time` from now; ends its drain if `time` is zero.
    ///
    /// # Errors
    /// If a lease table's bound of drained clients is reached.
    pub fn set(&self, client: &ClientId, time: Duration) -> Result<(), DrainError> {
        let now = self.clock.now();
        let mut drains = self.drains.lock().unwrap_or_else(PoisonError::into_inner);
        drains.set(now, client, now.saturating_add(time))
    }

    /// All drained clients, each with the end of its drain.
    pub fn all(&self) -> Vec<(ClientId, Instant)> {
        let drains = self.drains.lock().unwrap_or_else(PoisonError::into_inner);
        let drained = drains.iter(self.clock.now());
        drained
            .map(|(client, until)| (client.clone(), until))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::lease_server::DRAINS_MAX;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_is_remembered_until_its_end_and_there_is_a_bound() {
        let drains = NodeDrains::new(Clock::start());
        let client = |i: usize| ClientId::new(&format!("envoy-{i}/x")).unwrap();
        drains.set(&client(0), Duration::from_secs(10)).unwrap();
        drains.set(&client(1), Duration::from_secs(20)).unwrap();
        let known = || {
            drains
                .all()
                .into_iter()
                .map(|(client, _)| client)
                .collect::<Vec<_>>()
        };
        assert_eq!(known(), [client(0), client(1)]);
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(known(), [client(1)]);
        drains.set(&client(1), Duration::ZERO).unwrap();
        assert_eq!(known(), []);
        for i in 0..DRAINS_MAX {
            drains.set(&client(i), Duration::from_secs(1)).unwrap();
        }
        let one_more = client(DRAINS_MAX);
        let second = Duration::from_secs(1);
        let max = DRAINS_MAX;
        assert_eq!(
            drains.set(&one_more, second),
            Err(DrainError::TooMany { max })
        );
        drains.set(&client(0), second).unwrap();
        tokio::time::advance(second).await;
        drains.set(&one_more, second).unwrap();
    }
}
