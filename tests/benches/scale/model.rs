//! The model of a million Envoys and ten million scopes.

use crate::fleet::{Load, Traffic, coordinator_refreshes, envoy_refreshes, level_name};
use crate::units::Units;

/// The minimum interval of the limits, in seconds.
const MIN_REFRESH: f64 = 1.0;
/// Calls per second of an Envoy at most: one in each tick of 20 ms.
const ENVOY_CALLS: f64 = 50.0;
/// Calls per second of a coordinator to its parent at most: it has one under way at a time, which
/// takes 1 ms at least.
const COORDINATOR_CALLS: f64 = 1000.0;
/// Memory of a connection, in bytes.
const CONNECTION: f64 = 30.0 * 1024.0;

/// Fleet whose levels are all alike.
struct Fleet {
    name: &'static str,
    envoys: f64,
    scopes: f64,
    /// Scopes that each Envoy serves at a time.
    scopes_per_envoy: f64,
    /// Sites at which a scope is served.
    sites_per_scope: f64,
    /// Coordinators from the roots' clients down to the sites; none if Envoys ask the root.
    fan_out: &'static [f64],
    /// Seconds between two refreshes of an Envoy.
    interval: f64,
}

// === free functions ===

pub(crate) fn print(units: &Units) {
    let regions_and_sites: &[f64] = &[20.0, 50.0];
    let fleets = [
        Fleet {
            name: "each scope at one site",
            envoys: 1e6,
            scopes: 1e7,
            scopes_per_envoy: 100.0,
            sites_per_scope: 1.0,
            fan_out: regions_and_sites,
            interval: 2.0,
        },
        Fleet {
            name: "each scope at ten sites",
            envoys: 1e6,
            scopes: 1e7,
            scopes_per_envoy: 100.0,
            sites_per_scope: 10.0,
            fan_out: regions_and_sites,
            interval: 2.0,
        },
        Fleet {
            name: "no tree",
            envoys: 1e6,
            scopes: 1e7,
            scopes_per_envoy: 100.0,
            sites_per_scope: 1.0,
            fan_out: &[],
            interval: 8.0,
        },
    ];
    for fleet in &fleets {
        fleet.print(units);
    }
}

// === impl Fleet ===

impl Fleet {
    /// Returns the load of each level, from the roots down.
    fn loads(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        let levels = self.fan_out.len();
        let mut coordinators = 1.0;
        for level in 0..=levels {
            let children = self.fan_out.get(level).map(|n| coordinators * n);
            // Each scope is known to at most as many coordinators of a level as there are sites of it.
            let known = self.scopes * self.sites_per_scope.min(coordinators);
            let below = children.map(|children| self.scopes * self.sites_per_scope.min(children));
            let clients = children.unwrap_or(self.envoys);
            let leases = below.unwrap_or(self.envoys * self.scopes_per_envoy);
            let (calls, refreshes) = match below {
                Some(_) => (
                    COORDINATOR_CALLS,
                    coordinator_refreshes(MIN_REFRESH, f64::INFINITY),
                ),
                None => (ENVOY_CALLS, envoy_refreshes()),
            };
            loads.push(Load {
                coordinators,
                clients,
                resources: known,
                leases,
                bound: Traffic {
                    calls: clients * calls,
                    refreshes: leases * refreshes,
                },
                interval: self.interval * f64::from(1_u32 << (levels - level)),
                borrows: level > 0,
            });
            coordinators = children.unwrap_or(coordinators);
        }
        loads
    }

    fn print(&self, units: &Units) {
        println!("\n{}; steady / at most", self.name);
        println!(
            "| level | coordinators | resources | leases | refreshes/s | calls/s | Mbit/s up | Mbit/s down | memory, GB | cores | each: leases | memory, GB | cores |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
        let loads = self.loads();
        for (level, load) in loads.iter().enumerate() {
            let n = load.coordinators;
            let memory = (load.memory(units) + load.clients * CONNECTION) / 1e9;
            let both = |figure: &dyn Fn(&Traffic) -> f64| {
                let (steady, at_most) = (load.steady(), load.at_most());
                format!("{} / {}", short(figure(&steady)), short(figure(&at_most)))
            };
            println!(
                "| {} | {n} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                level_name(level, loads.len()),
                short(load.resources),
                short(load.leases),
                both(&|traffic| traffic.refreshes),
                both(&|traffic| traffic.calls),
                both(&|traffic| traffic.bytes_up(units) * 8e-6),
                both(&|traffic| traffic.bytes_down(units) * 8e-6),
                short(memory),
                both(&Traffic::cores),
                short(load.leases / n),
                short(memory / n),
                both(&|traffic| traffic.cores() / n),
            );
        }
    }
}

/// Returns a number with two or three digits.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.1} G", n / 1e9),
        n if n >= 1e7 => format!("{:.0} M", n / 1e6),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n if n >= 10.0 => format!("{n:.0}"),
        n if n >= 1.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}
