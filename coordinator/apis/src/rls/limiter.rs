//! Decisions on descriptors, from the buckets of this node's leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tollgate_client::{AcquireError, Charge, Client, ScopeLevel};
use tollgate_cluster::election::Masters;
use tollgate_core::fleet::QuotaLevel;
use tollgate_core::units::Tokens;
use tollgate_net::clock::Clock;

use super::answer::is_refused;
use super::ask::{Ask, DescriptorAsk, Hits, OwnLimit};
use super::current_limit::CurrentLimit;
use super::own_limits::{Division, OwnLimits, Share};
use super::verdict::{Effect, Verdict};

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

/// Tokens that a request has taken, which go back unless it keeps them.
struct Taken<'a> {
    limiter: &'a Limiter,
    client: &'a Client,
    /// Scopes, or limits that their descriptors bring along, with what was taken of each.
    hits: Vec<(&'a str, Option<OwnLimit>, u64)>,
}

// === impl Taken ===

impl<'a> Taken<'a> {
    const fn new(limiter: &'a Limiter, client: &'a Client) -> Self {
        Self {
            limiter,
            client,
            hits: Vec::new(),
        }
    }

    /// Notes that `hits` were taken of `scope`, or of a limit that its descriptor brings along.
    fn add(&mut self, scope: &'a str, limit: Option<OwnLimit>, hits: u64) {
        self.hits.push((scope, limit, hits));
    }

    fn give_back_last(&mut self) {
        let Some((scope, limit, hits)) = self.hits.pop() else {
            return;
        };
        match limit {
            Some(limit) => {
                let now = self.limiter.clock.now();
                let mut limits = self.limiter.own_limits();
                limits.give_back(now, (scope, limit), hits);
            }
            // The scope was good when they were taken.
            None => drop(self.client.give_back(scope, hits)),
        }
    }

    /// Keeps everything that was taken.
    fn keep(mut self) {
        self.hits.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        while !self.hits.is_empty() {
            self.give_back_last();
        }
    }
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

    /// Decides on each descriptor of a request, in order. If the request is refused, or its caller leaves,
    /// what was taken for it goes back: such a request is charged to none.
    pub(super) async fn decide(&self, ask: &Ask<'_>) -> Vec<Option<Verdict>> {
        let mut verdicts = Vec::with_capacity(ask.descriptors.len());
        let Some(client) = &self.client else {
            verdicts.resize(ask.descriptors.len(), None);
            return verdicts;
        };
        bring_leases(client, ask);
        let mut taken = Taken::new(self, client);
        for descriptor in &ask.descriptors {
            verdicts.push(match descriptor {
                Some(descriptor) => self.decide_one(client, descriptor, &mut taken).await,
                None => None,
            });
        }
        let decided = ask.descriptors.iter().zip(&verdicts);
        let effects: Vec<Effect> = decided
            .map(|(ask, verdict)| Effect::new(ask.as_ref(), *verdict))
            .collect();
        if !is_refused(ask, &effects) {
            taken.keep();
        }
        verdicts
    }

    /// Decides on one descriptor; `None` if its scope is none, as while the configuration changes.
    async fn decide_one<'a>(
        &self,
        client: &Client,
        ask: &'a DescriptorAsk<'_>,
        taken: &mut Taken<'a>,
    ) -> Option<Verdict> {
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
            Hits::Take(hits) => self.take(client, ask, hits, taken).await,
        }
    }

    async fn take<'a>(
        &self,
        client: &Client,
        ask: &'a DescriptorAsk<'_>,
        hits: u64,
        taken: &mut Taken<'a>,
    ) -> Option<Verdict> {
        let scope = ask.scope.as_str();
        let acquired = client.acquire(scope, hits).await;
        let is_over = match acquired {
            // A limit of requests in flight counts until an end that nobody tells of.
            Ok(permit) => {
                drop(permit);
                None
            }
            Err(AcquireError::Refused(refused)) => Some(refused.retry_after()),
            Err(_) => return None,
        };
        if is_over.is_none() {
            taken.add(scope, None, hits);
        }
        let levels = client.levels(scope).ok()?;
        let verdict = verdict_of(&levels)?;
        if let Some(reset) = is_over {
            return Some(Verdict {
                is_over: true,
                reset,
                ..verdict
            });
        }
        let scope_passes = Verdict {
            is_over: false,
            ..verdict
        };
        let verdict = self.with_own_limit(ask, &levels, hits, scope_passes);
        match (verdict.is_over, ask.limit) {
            (true, _) => taken.give_back_last(),
            (false, Some(limit)) => taken.add(scope, Some(limit), hits),
            (false, None) => {}
        }
        Some(verdict)
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
        let nodes = self.masters.borrow().members.len() as u64;
        let division = Division {
            nodes,
            rate: share(levels, nodes),
        };
        let limit: (&str, OwnLimit) = (&ask.scope, limit);
        let now = self.clock.now();
        verdict.stricter(self.own_limits().take(now, limit, division, hits))
    }

    fn own_limits(&self) -> MutexGuard<'_, OwnLimits> {
        self.own_limits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// === free functions ===

/// Makes the client ask for the leases that a request needs and that it does not have, so that it waits
/// for all of them at the same time.
fn bring_leases(client: &Client, ask: &Ask<'_>) {
    if ask.descriptors.len() < 2 {
        return;
    }
    for descriptor in ask.descriptors.iter().flatten() {
        let scope = descriptor.scope.as_str();
        let levels = client.levels(scope);
        if levels.is_ok_and(|levels| levels.iter().any(|level| !level.is_leased)) {
            let charge = Charge::of(scope).cost(1);
            if client.try_admit(&charge).is_ok() {
                // The scope was good when it was taken.
                let _ = client.give_back(scope, 1);
            }
        }
    }
}

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
    let limit_micros = match level.capacity {
        Some(capacity) => (!capacity.is_unlimited()).then_some(capacity.as_micros()),
        None => (!level.rate.is_unlimited()).then_some(level.rate.as_micros()),
    };
    let Some(micros) = limit_micros else {
        return Verdict {
            is_over: false,
            limit: None,
            remaining: u64::MAX,
            reset: None,
        };
    };
    let is_over = level.left < Tokens::ONE;
    // The quota, where it refuses, or there is no rate.
    let is_shown = |quota: &QuotaLevel| quota.left < Tokens::ONE || quota.bounds_alone(micros);
    let quota = level.quota.filter(is_shown);
    let limit = match quota {
        Some(quota) => CurrentLimit::per_window(
            u32::try_from(quota.amount.whole()).unwrap_or(u32::MAX),
            quota.length,
        ),
        None => CurrentLimit::per_second(micros, level.period),
    };
    Verdict {
        is_over,
        limit: Some(limit),
        // No more than the limit that it stands beside, also of a larger burst.
        remaining: level.left.whole().min(limit.requests().into()),
        reset: match quota {
            Some(quota) => Some(quota.resets_in),
            None if is_over => level.next_in,
            None => level.full_in,
        },
    }
}

#[cfg(test)]
mod tests;
