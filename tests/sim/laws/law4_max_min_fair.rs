//! When demand is stable, the clients' capacity is the max-min fair allocation. A pool is divided
//! between its members, a member's capacity between priority bands from the highest down, and each
//! band between its clients.
//!
//! The law computes the allocation by filling: every client gets the same small amount again and
//! again until satisfied. Slow and obvious, and nothing like the tree in the core. Other
//! algorithms are not max-min, and left to the core's own tests.

use std::time::Duration;

use tollgate_core::limit::Algorithm;
use tollgate_core::units::Instant;

use super::lasting::{Lasting, is_to_note};
use super::{Fleet as _, Law};
use crate::process::{Process, Work};
use crate::world::World;

/// Interval between two checks for processes with less than their shares: filling is slow.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(crate) struct Law4 {
    /// Processes that have less than their shares.
    short: Lasting,
    looked_at: Instant,
}

impl Law for Law4 {
    fn name(&self) -> &'static str {
        "law 4, max-min fair"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let now = world.now();
        let due = now.saturating_since(self.looked_at) >= LOOK_EVERY;
        if due && is_to_note(world) {
            self.looked_at = now;
            let short = short(world).into_iter().map(|(p, _)| p.incarnation);
            self.short.note(now, &short.collect::<Vec<_>>());
        }
        Ok(())
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let is_wrong = |p: &Process| self.short.is_wrong(world, p.incarnation);
        match short(world).into_iter().find(|(p, _)| is_wrong(p)) {
            Some((p, share)) => Err(format!(
                "{} has {}, its share is {share}",
                p.id.as_str(),
                p.has(world.now())
            )),
            None => Ok(()),
        }
    }
}

/// Returns the processes that have less than their shares, with these.
fn short(world: &World) -> Vec<(&Process, f64)> {
    let mut short = Vec::new();
    let members = world.sources().members.iter();
    for ((i, member), capacity) in members.enumerate().zip(allotted(world)) {
        if member.own.limit.algorithm != Algorithm::FairShare {
            continue;
        }
        let processes: Vec<_> = world.processes_of(i).collect();
        let shares = shares(world, &processes, capacity);
        // One in a hundred, and one request per second, for the coarseness of demand; and as much
        // of the capacity of all other processes, which moves the shares. Waiting requests are
        // counted anew as long as they wait, which is coarser, and so are bytes.
        let less = |(p, share): &(&Process, f64)| {
            let part = match p.work() {
                Work::Waiting { .. } => 0.94,
                Work::Bytes { .. } => 0.96,
                _ => 0.99,
            };
            p.has(world.now()).as_f64() < share * part - 1.0 - slack(world)
        };
        short.extend(processes.into_iter().zip(shares).filter(less));
    }
    short
}

/// Returns the capacity that each member's clients may divide.
fn allotted(world: &World) -> Vec<f64> {
    let sources = world.sources();
    let members = sources.members.iter().enumerate();
    let own: Vec<_> = members
        .clone()
        .map(|(_, member)| member.own.divided())
        .collect();
    let Some(pool) = &sources.pool else {
        return own;
    };
    let wants = |i: usize| -> f64 {
        let wants = world.processes_of(i).map(|p| p.wants(world.now()));
        wants.sum::<f64>().min(own[i])
    };
    let wants = members.map(|(i, member)| if member.attached { wants(i) } else { 0.0 });
    let weights = sources
        .members
        .iter()
        .map(|member| f64::from(member.weight.get()));
    let clients: Vec<_> = wants.zip(weights).collect();
    let filled = fill(&clients, pool.divided());
    let members = sources.members.iter().zip(filled).zip(own);
    members
        .map(|((member, filled), own)| if member.attached { filled } else { own })
        .collect()
}

/// Returns the share of each process in `capacity`.
fn shares(world: &World, processes: &[&Process], capacity: f64) -> Vec<f64> {
    let mut shares = vec![0.0; processes.len()];
    let mut left = capacity;
    for level in (0..16).rev() {
        let of = |p: &&Process| p.policy.priority.level() == level;
        let wants = |p: &&Process| if of(p) { p.wants(world.now()) } else { 0.0 };
        let clients: Vec<_> = processes.iter().map(|p| (wants(p), 1.0)).collect();
        let filled = fill(&clients, left);
        left -= filled.iter().sum::<f64>();
        for (share, filled) in shares.iter_mut().zip(filled) {
            *share += filled;
        }
    }
    shares
}

/// Returns the tolerance in a pool, and above a lower band: one client's sway is another's share.
fn slack(world: &World) -> f64 {
    let first = world.processes().first().map(|p| p.policy.priority);
    let alike = world
        .processes()
        .iter()
        .all(|p| Some(p.policy.priority) == first);
    if alike && world.sources().pool.is_none() {
        return 0.0;
    }
    let wants = world.processes().iter().map(|p| p.wants(world.now()));
    wants.map(|wants| wants * 0.01 + 1.0).sum()
}

/// Returns the shares of clients with these wants and weights in `capacity`.
pub(crate) fn fill(clients: &[(f64, f64)], capacity: f64) -> Vec<f64> {
    const STEPS: u32 = 100_000;
    let step = capacity / f64::from(STEPS);
    let mut shares = vec![0.0; clients.len()];
    let mut left = capacity;
    while left > 0.0
        && shares
            .iter()
            .zip(clients)
            .any(|(share, (want, _))| share < want)
    {
        for (share, (want, weight)) in shares.iter_mut().zip(clients) {
            if *share < *want && left > 0.0 {
                let more = (step * weight).min(*want - *share).min(left);
                *share += more;
                left -= more;
            }
        }
    }
    shares
}
