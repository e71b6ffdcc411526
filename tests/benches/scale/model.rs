//! The model of a million Envoys and ten million scopes.

use crate::fleet::Load;
use crate::units::Units;

/// CPU of a whole coordinator for one resource in a bulk call, in µs (`just bench-coordinator`).
const CPU_PER_RESOURCE: f64 = 1.84;
/// CPU of a whole coordinator for one call, beside its resources, in µs: a call of one resource less
/// that resource.
const CPU_PER_CALL: f64 = 18.0;
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
            loads.push(Load {
                coordinators,
                clients: children.unwrap_or(self.envoys),
                resources: known,
                leases: below.unwrap_or(self.envoys * self.scopes_per_envoy),
                interval: self.interval * f64::from(1_u32 << (levels - level)),
                borrows: level > 0,
            });
            coordinators = children.unwrap_or(coordinators);
        }
        loads
    }

    fn print(&self, units: &Units) {
        println!("\n{}", self.name);
        println!(
            "| level | coordinators | resources | leases | calls/s | refreshes/s | Mbit/s up | Mbit/s down | memory, GB | cores | of each: leases | refreshes/s | memory, GB | cores |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
        for (level, load) in self.loads().iter().enumerate() {
            let (calls, resources) = (load.calls_per_second(), load.resources_per_second());
            let memory = (load.memory(units) + load.clients * CONNECTION) / 1e9;
            let cores = (calls * CPU_PER_CALL + resources * CPU_PER_RESOURCE) / 1e6;
            let n = load.coordinators;
            println!(
                "| {level} | {n} | {} | {} | {} | {} | {} | {} | {memory:.1} | {cores:.1} | {} | {} | {:.2} | {:.2} |",
                short(load.resources),
                short(load.leases),
                short(calls),
                short(resources),
                short(load.bytes_up_per_second(units) * 8e-6),
                short(load.bytes_down_per_second(units) * 8e-6),
                short(load.leases / n),
                short(resources / n),
                memory / n,
                cores / n,
            );
        }
    }
}

/// Returns a number with two or three digits.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n if n >= 10.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}
