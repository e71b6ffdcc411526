//! A process admits at most `burst + rate * t` in any window `t`, and a token cache per worker; of
//! bytes, which are paid when they have passed, one body per worker more. Requests that were held for
//! the first lease go on together, before any of their bodies has passed: of these, all bodies.
//!
//! Tokens granted of the fleet's bucket come on top, and those that it spends before they are granted. Where
//! a lease under which it draws ends without an answer it has another burst, of safe capacity.
//!
//! Checked with a leaky level: it rises by one with every token spent and falls at the rate in
//! force. The level is at most the burst exactly if no window admits more than the law says. The
//! requests in flight are checked where permits are drawn, by the workers.

use std::collections::BTreeMap;

use tollgate_core::client::LeaseState;
use tollgate_core::lease::Unit;
use tollgate_core::units::Instant;
use tollgate_sim::{ClientKey, ClientView, tokens};

use super::Law;
use crate::fleet::Fleet;

#[derive(Default)]
pub(crate) struct Law6 {
    levels: BTreeMap<ClientKey, Level>,
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
    /// Tokens that it was granted of the fleet's bucket, and those of them that it has not spent.
    granted: f64,
    credit: f64,
    /// The most that it has spent so far before it was granted.
    on_credit: f64,
    is_drawing: bool,
}

impl Law for Law6 {
    fn name(&self) -> &'static str {
        "law 6, the proxy enforces what it was given"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        for client in fleet.simulation.touched_clients() {
            if let Some(broken) = client.broken() {
                return Err(format!("{}: {broken}", client.name));
            }
            if !client.unit().is_concurrency() {
                self.rise(fleet.now(), &client)?;
            }
        }
        Ok(())
    }
}

impl Law6 {
    /// Adds the tokens that were spent since the last event.
    fn rise(&mut self, now: Instant, p: &ClientView<'_>) -> Result<(), String> {
        let (rate, burst) = p.flow();
        let level = self.levels.entry(p.key()).or_insert(Level {
            level: 0.0,
            at: now,
            rate,
            burst,
            cache: 1.0,
            together: 0.0,
            granted: 0.0,
            credit: 0.0,
            on_credit: 0.0,
            is_drawing: false,
        });
        let granted = tokens(p.granted());
        level.credit += (granted - level.granted).max(0.0);
        level.granted = granted;
        // A change of the rate may have come at any time since the last event.
        let fastest = level.rate.max(rate);
        level.level -= fastest * now.saturating_since(level.at).as_secs_f64();
        let lapsed = level.is_drawing && !p.is_drawing() && p.state() == LeaseState::NoLease;
        level.is_drawing = p.is_drawing();
        if lapsed {
            level.level = 0.0;
        }
        let paid = level.credit.min(p.spent().admitted as f64);
        level.credit -= paid;
        level.level = level.level.max(0.0) + p.spent().admitted as f64 - paid - p.spent().forgiven;
        if p.spent().debt_cut {
            // Only the debt of the bucket, and bytes not yet counted in it, are still to be paid.
            let owed = p.owed() + p.uncounted();
            level.level = level.level.min(level.burst.max(burst) + owed);
        }
        if rate == 0.0 {
            // At no rate nothing may be owed, for it would never be paid.
            level.level = level.level.min(level.burst);
        }
        level.at = now;
        level.rate = rate;
        level.burst = level.burst.max(burst);
        level.on_credit = level.on_credit.max(p.on_credit());
        level.cache = level.cache.max(rate * 0.005);
        level.together = if level.level > level.burst {
            level.together + p.spent().together as f64
        } else {
            0.0
        };
        // Tokens drawn for bytes, the debt allowed before it is paid, and the body in debt.
        let each = match p.unit() {
            Unit::Requests => level.cache,
            _ => 2.0 * level.cache + p.requests().largest as f64,
        };
        let most = level.burst + level.on_credit + p.workers() as f64 * each + level.together;
        if level.level > most + 1e-3 {
            let (name, resource) = (p.name, p.resource());
            return Err(format!(
                "{name} admitted {} of {resource:?} above its rate, at most {most}",
                level.level
            ));
        }
        Ok(())
    }
}
