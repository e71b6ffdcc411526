//! When demand is stable and no coordinator is away, each divides its capacity by max-min between
//! its processes and the coordinators below, from the highest priority down. A coordinator below
//! counts for as many clients as want something there. The root divides its own capacity, each
//! other coordinator the capacity that it is lent.

use crate::laws::law4_max_min_fair::fill;
use crate::laws::{Fleet as _, Law};
use crate::process::{Process, Work};
use crate::tree::World;

pub(crate) struct Law4;

/// Wants at one priority, and the number of clients that have them.
#[derive(Clone, Copy, Default)]
struct Want {
    wants: f64,
    count: f64,
}

/// Wants by priority.
type Wants = [Want; 16];

impl Law<World> for Law4 {
    fn name(&self) -> &'static str {
        "laws 3 and 4, max-min fair down the tree"
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let root = &world.coordinators()[0].spec.limit;
        if root.algorithm.goes_by_usage() {
            return Ok(());
        }
        let capacity = root.capacity.saturating_sub(root.reserve.of(root.capacity));
        let mut shares = Vec::new();
        divide(world, 0, capacity.as_f64(), &mut shares);
        let slack: f64 = shares
            .iter()
            .map(|(p, _)| sway(p, p.wants(world.now())))
            .sum();
        for (p, share) in shares {
            let has = p.has(world.now()).as_f64();
            if has < share - sway(p, share) - slack {
                let id = p.id.as_str();
                return Err(format!("{id} has {has}, its share is {share}"));
            }
        }
        Ok(())
    }
}

/// Returns the tolerance for errors of measurement.
fn sway(p: &Process, wants: f64) -> f64 {
    let part = match p.work() {
        Work::Requests => 0.01,
        Work::Bytes { .. } | Work::Waiting { .. } => 0.05,
        Work::InFlight { .. } => 0.15,
    };
    wants * part + p.work().usual() as f64
}

/// Returns the wants at a coordinator and below it.
fn wants_below(world: &World, coordinator: usize) -> Wants {
    let mut all = Wants::default();
    for (p, _) in world.processes_at(coordinator) {
        add(&mut all, &wants_of(world, p));
    }
    for child in world.below(coordinator) {
        add(&mut all, &wants_below(world, child));
    }
    let own = world.coordinators()[coordinator].spec.limit.capacity;
    if !own.is_unlimited() {
        // A limit of its own is in trees without priorities only.
        all[0].wants = all[0].wants.min(own.as_f64());
    }
    all
}

fn wants_of(world: &World, p: &Process) -> Wants {
    let wants = p.wants(world.now());
    let mut all = Wants::default();
    if wants > 0.0 {
        let level = usize::from(p.policy.priority.level());
        all[level] = Want { wants, count: 1.0 };
    }
    all
}

fn add(all: &mut Wants, more: &Wants) {
    for (sum, more) in all.iter_mut().zip(more) {
        sum.wants += more.wants;
        sum.count += more.count;
    }
}

/// Adds the share of each process in `capacity` at a coordinator to `shares`.
fn divide<'a>(
    world: &'a World,
    coordinator: usize,
    capacity: f64,
    shares: &mut Vec<(&'a Process, f64)>,
) {
    let own = world.coordinators()[coordinator].spec.limit.capacity;
    let mut left = match own.is_unlimited() {
        true => capacity,
        false => capacity.min(own.as_f64()),
    };
    let processes: Vec<_> = world.processes_at(coordinator).map(|(p, _)| p).collect();
    let below: Vec<_> = world.below(coordinator).collect();
    let own = processes.iter().map(|p| wants_of(world, p));
    let wants: Vec<Wants> = own
        .chain(below.iter().map(|i| wants_below(world, *i)))
        .collect();
    let mut parts = vec![0.0; wants.len()];
    for level in (0..16).rev() {
        let band = wants
            .iter()
            .map(|wants| (wants[level].wants, wants[level].count));
        let filled = fill(&band.collect::<Vec<_>>(), left);
        for (part, filled) in parts.iter_mut().zip(filled) {
            *part += filled;
            left -= filled;
        }
    }
    let (of_processes, of_coordinators) = parts.split_at(processes.len());
    shares.extend(processes.into_iter().zip(of_processes.iter().copied()));
    for (i, part) in below.into_iter().zip(of_coordinators) {
        divide(world, i, *part, shares);
    }
}
