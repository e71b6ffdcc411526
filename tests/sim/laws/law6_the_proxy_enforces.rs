//! A process admits at most `burst + rate * t` in any window `t`, and a token cache per worker; of
//! bytes, which are paid when they have passed, one body per worker more. Requests that were held for
//! the first lease go on together, before any of their bodies has passed: of these, all bodies.
//!
//! Checked with a leaky level: it rises by one with every token spent and falls at the rate in
//! force. The level is at most the burst exactly if no window admits more than the law says. The
//! requests in flight are checked where permits are drawn, by the workers.

use std::collections::BTreeMap;

use tollgate_core::units::{Instant, MICRO};

use super::{Fleet, Law};
use crate::process::Process;

#[derive(Default)]
pub(crate) struct Law6 {
    /// Levels by incarnation.
    levels: BTreeMap<u64, Level>,
}

struct Level {
    /// Tokens above what the rate has worn off.
    level: f64,
    at: Instant,
    rate: f64,
    /// The largest burst so far.
    burst: f64,
    /// The largest token cache so far.
    cache: f64,
    /// Bytes of requests that went on together, beyond one body, until they are paid.
    together: f64,
}

impl<W: Fleet> Law<W> for Law6 {
    fn name(&self) -> &'static str {
        "law 6, the proxy enforces what it was given"
    }

    fn check(&mut self, world: &W) -> Result<(), String> {
        self.look(world.now(), world.processes())
    }
}

impl Law6 {
    /// Checks every event, with the tokens spent since the one before.
    fn look(&mut self, now: Instant, processes: &[Process]) -> Result<(), String> {
        for p in processes {
            if let Some(broken) = &p.broken {
                return Err(format!("{}: {broken}", p.id.as_str()));
            }
            if !p.unit().is_concurrency() {
                self.rise(now, p)?;
            }
        }
        Ok(())
    }

    fn rise(&mut self, now: Instant, p: &Process) -> Result<(), String> {
        let (rate, burst) = p.flow(now);
        let (rate, burst) = (micros(rate), micros(burst));
        let usual = p.work().usual() as f64;
        let level = self.levels.entry(p.incarnation).or_insert(Level {
            level: 0.0,
            at: now,
            rate,
            burst,
            cache: 1.0,
            together: 0.0,
        });
        // A change of the rate may have come at any time since the last event.
        let fastest = level.rate.max(rate);
        level.level -= fastest * now.saturating_since(level.at).as_secs_f64();
        level.level = level.level.max(0.0) + p.admitted as f64 - p.forgiven;
        if p.debt_cut {
            // Only the debt of the bucket, and bytes not yet counted in it, are still to be paid.
            let owed = p.owed(now) + p.uncounted();
            level.level = level.level.min(level.burst.max(burst) + owed);
        }
        if rate == 0.0 {
            // At no rate nothing may be owed, for it would never be paid.
            level.level = level.level.min(level.burst);
        }
        level.at = now;
        level.rate = rate;
        level.burst = level.burst.max(burst);
        level.cache = level.cache.max(rate * 0.005);
        level.together = match level.level > level.burst {
            true => level.together + p.together as f64,
            false => 0.0,
        };
        // Tokens drawn for bytes, the debt allowed before it is paid, and the body in debt.
        let each = match usual > 1.0 {
            true => 2.0 * level.cache + p.work().largest() as f64,
            false => level.cache,
        };
        let most = level.burst + p.workers() as f64 * each + level.together;
        if level.level > most + 1e-3 {
            let id = p.id.as_str();
            return Err(format!(
                "{id} admitted {} above its rate, at most {most}",
                level.level
            ));
        }
        Ok(())
    }
}

fn micros(value: u64) -> f64 {
    value as f64 / MICRO as f64
}
