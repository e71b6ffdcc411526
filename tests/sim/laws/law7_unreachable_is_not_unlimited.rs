//! Without a coordinator a process is neither unlimited nor dead unless its operator chose so: it
//! has its lease until that expires, and then what the mode says.

use std::collections::BTreeMap;

use tollgate_core::client::{Mode, State};
use tollgate_core::units::{Instant, MICRO};

use super::Law;
use crate::process::Process;
use crate::world::World;

#[derive(Default)]
pub(crate) struct Law7 {
    /// By incarnation: since when a process has been without a lease.
    alone: BTreeMap<u64, Alone>,
}

struct Alone {
    since: Instant,
    admitted: u64,
    /// The least rate and demand in that time.
    rate: f64,
    demand: u64,
}

impl Law for Law7 {
    fn name(&self) -> &'static str {
        "law 7, an unreachable coordinator is neither unlimited nor dead"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for p in world.processes() {
            let now = p.clock(world.now());
            if p.holder.state(now) != State::NoLease {
                self.alone.remove(&p.incarnation);
                continue;
            }
            let (rate, _) = p.holder.flow(now, &p.policy);
            mode_rules(p, rate.as_micros())?;
            let rate = rate.as_micros() as f64 / MICRO as f64;
            let alone = self.alone.entry(p.incarnation).or_insert(Alone {
                since: now,
                admitted: p.admitted_total,
                rate,
                demand: p.demand,
            });
            alone.rate = alone.rate.min(rate);
            alone.demand = alone.demand.min(p.demand);
            alone.alive(p, now)?;
        }
        Ok(())
    }
}

impl Alone {
    /// Wanting more than it may, it admits what it may, less what a slow start costs.
    fn alive(&self, p: &Process, now: Instant) -> Result<(), String> {
        let seconds = now.saturating_since(self.since).as_secs_f64();
        let expected = self.rate.min(self.demand as f64) * (seconds - 1.0) * 0.9 - 2.0;
        let admitted = (p.admitted_total - self.admitted) as f64;
        if admitted < expected {
            let id = p.id.as_str();
            return Err(format!(
                "{id} admitted {admitted} in {seconds} s alone, not {expected}"
            ));
        }
        Ok(())
    }
}

fn mode_rules(p: &Process, rate: u64) -> Result<(), String> {
    let wants = p.holder.wants().as_micros();
    let safe = p.safe().as_micros();
    let right = match p.policy.mode {
        Mode::Safe => rate == safe,
        Mode::Optimistic => rate == safe.max(wants),
        Mode::Pessimistic => rate == 0,
    };
    if right {
        Ok(())
    } else {
        Err(format!("{} passes {rate} without a lease", p.id.as_str()))
    }
}
