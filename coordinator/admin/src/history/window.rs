//! Window of a node's record, and several of them merged.
//!
//! All values are by step, the oldest first: NaN where nothing is known, infinite without a limit.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::lease::{ResourceId, Unit};

use super::series::GAP;
use super::{STEP, STEPS};

/// The last steps of one node, or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryWindow {
    /// The time since the start of the newest step.
    pub newest_age: Duration,
    /// Number of shards that were sampled.
    pub shards: Vec<f32>,
    /// Sums over all resources by unit.
    pub units: BTreeMap<Unit, UnitWindow>,
    /// Resources that were selected.
    pub resources: BTreeMap<ResourceId, ResourceWindow>,
}

/// Sums over all resources of a unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitWindow {
    /// Capacity of the resources with a limit.
    pub capacity: Vec<f32>,
    /// The amount that the clients of those may be using.
    pub has: Vec<f32>,
    /// The amount that all clients want.
    pub wants: Vec<f32>,
    /// Number of clients that get less than they want.
    pub waiting: Vec<f32>,
}

/// Figures of a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceWindow {
    /// The most that the binding limit lets clients have.
    pub at_most: Vec<f32>,
    /// The amount that its clients may be using.
    pub has: Vec<f32>,
    /// The amount that its clients want.
    pub wants: Vec<f32>,
    /// Number of clients that get less than they want.
    pub waiting: Vec<f32>,
    /// The amount that its largest clients may be using.
    pub clients: BTreeMap<String, Vec<f32>>,
}

/// Resources of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowSelection {
    /// So many of the busiest, without their clients; of one unit, if there is one here.
    Busiest(usize, Option<Unit>),
    /// All of a scope, with their clients.
    Scope(String),
}

// === impl WindowSelection ===

impl WindowSelection {
    /// Whether the resource `id` may be in it.
    pub(super) fn admits(&self, id: &ResourceId) -> bool {
        match self {
            Self::Busiest(_, unit) => unit.is_none_or(|unit| unit == id.unit),
            Self::Scope(scope) => **scope == *id.scope,
        }
    }

    pub(super) fn has_clients(&self) -> bool {
        matches!(self, Self::Scope(_))
    }
}

// === impl HistoryWindow ===

impl HistoryWindow {
    /// Returns it without the resources for which `selection` has no place.
    #[must_use]
    pub(super) fn cut(mut self, selection: &WindowSelection) -> Self {
        if let WindowSelection::Busiest(max, _) = selection {
            let busiest = self.busiest(*max);
            self.resources = busiest.into_iter().collect();
        }
        self
    }

    /// Takes the resources out of it, the busiest first: by the wanted part of what their limits
    /// leave over all steps, then by what is wanted.
    fn busiest(&mut self, max: usize) -> Vec<(ResourceId, ResourceWindow)> {
        let resources = std::mem::take(&mut self.resources);
        let mut resources: Vec<_> = resources.into_iter().collect();
        resources.sort_by_cached_key(|(id, resource)| (Reverse(resource.pressure()), id.clone()));
        resources.truncate(max);
        resources
    }

    /// Returns its resources, the busiest first.
    pub(super) fn into_busiest(mut self) -> Vec<(ResourceId, ResourceWindow)> {
        self.busiest(usize::MAX)
    }

    /// Adds the window of another node. Its steps are aligned by their age.
    pub(super) fn merge(&mut self, other: Self) {
        let shift = Shift::between(self.newest_age, other.newest_age);
        shift.add(&mut self.shards, &other.shards, sum);
        for (unit, more) in other.units {
            let sums = self.units.entry(unit).or_default();
            shift.add(&mut sums.capacity, &more.capacity, sum);
            shift.add(&mut sums.has, &more.has, sum);
            shift.add(&mut sums.wants, &more.wants, sum);
            shift.add(&mut sums.waiting, &more.waiting, sum);
        }
        for (id, more) in other.resources {
            self.resources.entry(id).or_default().merge(&more, shift);
        }
    }

    /// Leaves gaps in the sums at steps that have more than `count` shards: while one moved from a
    /// node to another, both have sampled it. Also at the newest step, if it has fewer shards than
    /// the one before: some nodes sample it a little later than others.
    pub(super) fn drop_uneven(&mut self, count: usize) {
        let mut is_gap: Vec<bool> = self.shards.iter().map(|of| *of > count as f32).collect();
        if let ([.., before, newest], Some(last)) = (&self.shards[..], is_gap.last_mut()) {
            *last |= *newest < before.min(count as f32);
        }
        let drop = |values: &mut Vec<f32>| {
            for (value, gap) in values.iter_mut().zip(&is_gap) {
                if *gap {
                    *value = GAP;
                }
            }
        };
        for sums in self.units.values_mut() {
            drop(&mut sums.capacity);
            drop(&mut sums.has);
            drop(&mut sums.wants);
            drop(&mut sums.waiting);
        }
    }
}

// === impl ResourceWindow ===

impl ResourceWindow {
    /// Adds the values of another node. The larger one counts where both have one: a resource is in
    /// two lease tables only while it moves.
    fn merge(&mut self, other: &Self, shift: Shift) {
        shift.add(&mut self.at_most, &other.at_most, f32::max);
        shift.add(&mut self.has, &other.has, f32::max);
        shift.add(&mut self.wants, &other.wants, f32::max);
        shift.add(&mut self.waiting, &other.waiting, f32::max);
        for (client, more) in &other.clients {
            let has = self.clients.entry(client.clone()).or_default();
            shift.add(has, more, f32::max);
        }
    }

    /// Wanted part of what the limit leaves, and what is wanted, over all steps; in thousandths.
    fn pressure(&self) -> (u128, u128) {
        let known = |value: &f32| {
            if value.is_finite() {
                f64::from(*value)
            } else {
                0.0
            }
        };
        let steps = self.wants.iter().zip(&self.at_most);
        let part = |(wants, at_most): (&f32, &f32)| match known(wants) {
            0.0 => 0.0,
            // A blocked scope that is wanted is as busy as can be; NaN is no limit that is known.
            _ if *at_most == 0.0 => f64::INFINITY,
            wants if at_most.is_finite() => wants / f64::from(*at_most),
            _ => 0.0,
        };
        let parts: f64 = steps.map(part).sum();
        let wants: f64 = self.wants.iter().map(known).sum();
        // A float that is too large becomes the largest number.
        ((parts * 1000.0) as u128, (wants * 1000.0) as u128)
    }
}

/// Number of steps by which the newest of one window is older than that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shift(i64);

// === impl Shift ===

impl Shift {
    fn between(one: Duration, other: Duration) -> Self {
        let steps = (other.as_secs_f64() - one.as_secs_f64()) / STEP.as_secs_f64();
        Self(steps.round() as i64)
    }

    /// Adds `more`, which is shifted, to `values`; `both` makes one of two known values.
    fn add(self, values: &mut Vec<f32>, more: &[f32], both: fn(f32, f32) -> f32) {
        fit(values);
        let lack = (STEPS as i64).saturating_sub(more.len() as i64);
        for (at, value) in (0_i64..).zip(values.iter_mut()) {
            let from = at.saturating_add(self.0).saturating_sub(lack);
            let from = usize::try_from(from).ok();
            let other = from.and_then(|from| more.get(from)).copied();
            *value = match (value.is_nan(), other.unwrap_or(GAP)) {
                (_, other) if other.is_nan() => *value,
                (true, other) => other,
                (false, other) => both(*value, other),
            };
        }
    }
}

// === free functions ===

fn sum(one: f32, other: f32) -> f32 {
    one + other
}

/// Gives `values` the length of a window: by gaps before them, or without the oldest.
pub(super) fn fit(values: &mut Vec<f32>) {
    let surplus = values.len().saturating_sub(STEPS);
    values.drain(..surplus);
    let lack = STEPS.saturating_sub(values.len());
    values.splice(..0, std::iter::repeat_n(GAP, lack));
}

#[cfg(test)]
mod tests;
