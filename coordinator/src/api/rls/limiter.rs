//! Decisions on descriptors, from the buckets of this node's leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tollgate_client::{AcquireError, Client, ScopeLevel};
use tollgate_core::units::Tokens;

use super::answer::{Effect, Verdict, is_refused};
use super::ask::{Ask, DescriptorAsk, Hits, OwnLimit};
use super::current_limit::CurrentLimit;
use super::own_limits::{OwnLimits, Share};
use crate::clock::Clock;
use crate::cluster::election::Masters;

/// Limiter of this node.
#[derive(Debug)]
pub(super) struct Limiter {
    /// Client of the leases; `None` if no descriptor stands for any scope.
    client: Option<Client>,
    own_limits: Mutex<OwnLimits>,
    /// All nodes, between which limits of descriptors are divided.
    masters: watch::Receiver<Arc<Masters>>,
    clock: Clock,
}

// === impl Limiter ===

impl Limiter {
    /// Returns a limiter with the leases of `client`, on one of the nodes of `masters`.
    pub(super) fn new(
        client: Option<Client>,
        masters: watch::Receiver<Arc<Masters>>,
        clock: Clock,
    ) -> Self {
        Self {
            client,
            own_limits: Mutex::default(),
            masters,
            clock,
        }
    }

    /// Decides on each descriptor of a request, in order. If the request is refused, what was taken for
    /// it goes back: a request that one limit refuses is charged to none.
    pub(super) async fn decide(&self, ask: &Ask<'_>) -> Vec<Option<Verdict>> {
        let mut verdicts = Vec::with_capacity(ask.descriptors.len());
        let Some(client) = &self.client else {
            verdicts.resize(ask.descriptors.len(), None);
            return verdicts;
        };
        for descriptor in &ask.descriptors {
            verdicts.push(match descriptor {
                Some(descriptor) => self.decide_one(client, descriptor).await,
                None => None,
            });
        }
        let decided = ask.descriptors.iter().zip(&verdicts);
        let effects: Vec<Effect> = decided
            .clone()
            .map(|(ask, verdict)| Effect::new(ask.as_ref(), *verdict))
            .collect();
        if is_refused(ask, &effects) {
            for (descriptor, verdict) in decided {
                if let (Some(descriptor), Some(verdict)) = (descriptor, verdict) {
                    self.undo(client, descriptor, *verdict);
                }
            }
        }
        verdicts
    }

    /// Decides on one descriptor; `None` if its scope is none, as while the configuration changes.
    async fn decide_one(&self, client: &Client, ask: &DescriptorAsk<'_>) -> Option<Verdict> {
        let scope = ask.scope.as_str();
        match ask.hits {
            Hits::GiveBack(hits) => {
                client.give_back(scope, hits).ok()?;
                if let Some(limit) = ask.limit {
                    let now = self.clock.now();
                    self.own_limits().give_back(now, (scope, limit), hits);
                }
                let verdict = verdict_of(&client.levels(scope).ok()?)?;
                Some(Verdict {
                    is_over: false,
                    ..verdict
                })
            }
            Hits::Look => {
                let levels = self.look(client, scope).await?;
                Some(self.with_own_limit(ask, &levels, 0, verdict_of(&levels)?))
            }
            Hits::Take(hits) if ask.rule.debt => {
                let levels = self.look(client, scope).await?;
                let verdict = verdict_of(&levels)?;
                client.charge(scope, hits).ok()?;
                Some(self.with_own_limit(ask, &levels, hits, verdict))
            }
            Hits::Take(hits) => self.take(client, ask, hits).await,
        }
    }

    async fn take(&self, client: &Client, ask: &DescriptorAsk<'_>, hits: u64) -> Option<Verdict> {
        let scope = ask.scope.as_str();
        let taken = client.acquire(scope, hits).await;
        let levels = client.levels(scope).ok()?;
        let verdict = match taken {
            // A limit of requests in flight counts until an end that nobody tells of.
            Ok(permit) => {
                drop(permit);
                Verdict {
                    is_over: false,
                    ..verdict_of(&levels)?
                }
            }
            Err(AcquireError::Refused(refused)) => Verdict {
                is_over: true,
                reset: refused.retry_after(),
                ..verdict_of(&levels)?
            },
            Err(_) => return None,
        };
        if verdict.is_over {
            return Some(verdict);
        }
        let verdict = self.with_own_limit(ask, &levels, hits, verdict);
        if verdict.is_over {
            client.give_back(scope, hits).ok()?;
        }
        Some(verdict)
    }

    /// Gives back what a descriptor has taken.
    fn undo(&self, client: &Client, ask: &DescriptorAsk<'_>, verdict: Verdict) {
        let Hits::Take(hits) = ask.hits else { return };
        if verdict.is_over || ask.rule.debt {
            return;
        }
        // The scope was good when they were taken.
        let _ = client.give_back(&ask.scope, hits);
        if let Some(limit) = ask.limit {
            let now = self.clock.now();
            self.own_limits().give_back(now, (&ask.scope, limit), hits);
        }
    }

    /// Returns the levels of a scope's limits, with a lease if one can be had.
    async fn look(&self, client: &Client, scope: &str) -> Option<Vec<ScopeLevel>> {
        let levels = client.levels(scope).ok()?;
        if levels.iter().all(|level| level.is_leased) {
            return Some(levels);
        }
        // Only a request that wants something brings a lease.
        if client.acquire(scope, 1).await.is_ok() {
            client.give_back(scope, 1).ok()?;
        }
        client.levels(scope).ok()
    }

    /// Returns the stricter of a descriptor's decision and that of the limit that it brings along, of
    /// which it takes `hits`.
    fn with_own_limit(
        &self,
        ask: &DescriptorAsk<'_>,
        levels: &[ScopeLevel],
        hits: u64,
        verdict: Verdict,
    ) -> Verdict {
        let Some(limit) = ask.limit else {
            return verdict;
        };
        let nodes = self.masters.borrow().members.len();
        let share = share(levels, nodes as u64);
        let limit: (&str, OwnLimit) = (&ask.scope, limit);
        let now = self.clock.now();
        verdict.stricter(self.own_limits().take(now, limit, share, hits))
    }

    fn own_limits(&self) -> MutexGuard<'_, OwnLimits> {
        self.own_limits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// === free functions ===

/// Returns the part of a descriptor's own limit that is this node's: what it leases of the scope's
/// capacity, or its part of all `nodes` where there is no limit to lease. All of it if it is alone.
fn share(levels: &[ScopeLevel], nodes: u64) -> Share {
    if nodes <= 1 {
        return Share::WHOLE;
    }
    let leased = levels.iter().filter(|level| level.is_leased);
    let capacity = leased.filter_map(|level| Some((level, level.capacity?)));
    let limited = capacity.filter(|(_, capacity)| !capacity.is_unlimited());
    let shares = limited.map(|(level, capacity)| (level.rate.as_micros(), capacity.as_micros()));
    let smallest =
        shares.min_by_key(|(part, whole)| (u128::from(*part) << 32) / u128::from((*whole).max(1)));
    let (part, whole) = smallest.unwrap_or((1, nodes));
    Share::of(part, whole)
}

/// Returns the decision of the strictest of a scope's limits; `None` if there is no level at all.
fn verdict_of(levels: &[ScopeLevel]) -> Option<Verdict> {
    let verdicts = levels.iter().map(verdict);
    verdicts.reduce(Verdict::stricter)
}

/// Returns the decision on a descriptor that takes nothing.
fn verdict(level: &ScopeLevel) -> Verdict {
    let told = match level.capacity {
        Some(capacity) => (!capacity.is_unlimited()).then_some(capacity.as_micros()),
        None => (!level.rate.is_unlimited()).then_some(level.rate.as_micros()),
    };
    let Some(micros) = told else {
        return Verdict {
            is_over: false,
            limit: None,
            remaining: u64::MAX,
            reset: None,
        };
    };
    let is_over = level.left < Tokens::ONE;
    Verdict {
        is_over,
        limit: Some(CurrentLimit::per_second(micros)),
        remaining: level.left.whole(),
        reset: match is_over {
            true => level.next_in,
            false => level.full_in,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::units::{Capacity, Rate};

    use super::*;

    fn level(capacity: Option<Capacity>, left: u64) -> ScopeLevel {
        ScopeLevel {
            capacity,
            rate: Rate::from_whole(25),
            is_leased: capacity.is_some(),
            left: Tokens::from_whole(left),
            next_in: Some(Duration::from_millis(40)),
            full_in: Some(Duration::from_secs(1)),
        }
    }

    #[test]
    fn the_strictest_of_a_scopes_limits_decides() {
        let hundred = Some(Capacity::from_whole(100));
        let unlimited = Some(Capacity::UNLIMITED);
        let of = |levels: &[ScopeLevel]| {
            let verdict = verdict_of(levels).unwrap();
            let limit = verdict.limit.map(CurrentLimit::requests);
            (verdict.is_over, limit, verdict.remaining)
        };
        assert_eq!(of(&[level(hundred, 7)]), (false, Some(100), 7));
        assert_eq!(of(&[level(hundred, 0)]), (true, Some(100), 0));
        assert_eq!(of(&[level(None, 7)]), (false, Some(25), 7), "a fallback");
        assert_eq!(of(&[level(unlimited, 0)]), (false, None, u64::MAX));
        let both = [level(unlimited, 0), level(hundred, 3)];
        assert_eq!(of(&both), (false, Some(100), 3));
        let both = [level(hundred, 9), level(hundred, 3)];
        assert_eq!(of(&both), (false, Some(100), 3));
        assert_eq!(verdict_of(&[]), None);
    }

    #[test]
    fn a_share_is_the_smallest_part_that_is_leased() {
        let [hundred, thousand] = [100, 1000].map(|n| level(Some(Capacity::from_whole(n)), 1));
        let unlimited = level(Some(Capacity::UNLIMITED), 1);
        let quarter = Share::of(25_000_000, 100_000_000);
        assert_eq!(share(&[hundred], 3), quarter);
        assert_eq!(share(&[hundred, unlimited], 3), quarter);
        let fortieth = Share::of(25_000_000, 1_000_000_000);
        assert_eq!(share(&[hundred, thousand], 3), fortieth);
        let third = Share::of(1, 3);
        assert_eq!(share(&[level(None, 1), unlimited], 3), third);
        for nodes in [0, 1] {
            assert_eq!(share(&[hundred], nodes), Share::WHOLE);
        }
    }
}
