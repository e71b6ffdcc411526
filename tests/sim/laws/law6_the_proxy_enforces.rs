//! A process admits at most `burst + rate * t` in any window `t`, and a slab per worker.
//!
//! Checked with a leaky level: it rises by one with every request admitted and falls at the rate in
//! force. The level is at most the burst exactly if no window admits more than the law says.

use std::collections::BTreeMap;

use tollgate_core::units::{Instant, MICRO};

use super::Law;
use crate::world::World;

#[derive(Default)]
pub(crate) struct Law6 {
    /// By incarnation.
    levels: BTreeMap<u64, Level>,
}

struct Level {
    /// Requests above what the rate has worn off.
    level: f64,
    at: Instant,
    rate: f64,
    /// The largest burst so far.
    burst: f64,
    /// The largest slab so far.
    slab: f64,
}

impl Law for Law6 {
    fn name(&self) -> &'static str {
        "law 6, the proxy enforces what it was given"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for p in world.processes() {
            let now = p.clock(world.now());
            let (rate, burst) = p.holder.flow(now, &p.policy);
            let (rate, burst) = (micros(rate.as_micros()), micros(burst.as_micros()));
            let level = self.levels.entry(p.incarnation).or_insert(Level {
                level: 0.0,
                at: now,
                rate,
                burst,
                slab: 1.0,
            });
            // A change of the rate may have come at any time since the last event.
            let fastest = level.rate.max(rate);
            level.level -= fastest * now.saturating_since(level.at).as_secs_f64();
            level.level = level.level.max(0.0) + p.admitted as f64;
            level.at = now;
            level.rate = rate;
            level.burst = level.burst.max(burst);
            level.slab = level.slab.max(rate * 0.005);
            let most = level.burst + p.workers() as f64 * level.slab;
            if level.level > most + 1e-3 {
                let id = p.id.as_str();
                return Err(format!(
                    "{id} admitted {} above its rate, at most {most}",
                    level.level
                ));
            }
        }
        Ok(())
    }
}

fn micros(value: u64) -> f64 {
    value as f64 / MICRO as f64
}
