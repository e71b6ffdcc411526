//! Record of a node's samples. Time comes in, so nothing here waits.

use std::collections::BTreeMap;

use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::units::Instant;

use super::resource::ResourceRecord;
use super::sample::{NodeSample, Tracked};
use super::series::{GAP, Series, place};
use super::window::{HistoryWindow, ResourceWindow, UnitWindow, WindowSelection};
use super::{RESOURCES_MAX, STEP, STEPS};
use crate::stats::ResourceStats;

/// Samples of the last [`STEPS`] steps.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    /// The step of the sample in each place of the ring.
    steps: [Option<u64>; STEPS],
    /// The step of the latest sample.
    newest: Option<u64>,
    /// Number of shards at each sample.
    shards: Series,
    units: [(Unit, UnitRecord); 4],
    /// At most [`RESOURCES_MAX`].
    resources: BTreeMap<ResourceId, ResourceRecord>,
}

/// Sums of a unit by step.
#[derive(Clone, Debug)]
struct UnitRecord {
    capacity: Series,
    has: Series,
    wants: Series,
    waiting: Series,
}

// === impl Recorder ===

impl Default for Recorder {
    fn default() -> Self {
        Self {
            steps: [None; STEPS],
            newest: None,
            shards: Series::new(),
            units: Unit::ALL.map(|unit| (unit, UnitRecord::new())),
            resources: BTreeMap::new(),
        }
    }
}

impl Recorder {
    /// The most memory that it takes.
    pub(super) const BYTES_MAX: usize = size_of::<Self>()
        + (1 + 4 * Unit::ALL.len()) * Series::BYTES
        + RESOURCES_MAX * (size_of::<ResourceId>() + ResourceRecord::BYTES_MAX);

    /// Resources and clients that the next sample has to have.
    pub(super) fn tracked(&self) -> Tracked {
        let clients = |record: &ResourceRecord| {
            let clients = record.clients.iter();
            clients.map(|client| client.id.clone()).collect()
        };
        let resources = self.resources.iter();
        resources
            .map(|(id, record)| (id.clone(), clients(record)))
            .collect()
    }

    /// Records `sample`, which was taken at `now`. One of a node that leads no shard leaves a gap.
    pub(super) fn record(&mut self, now: Instant, sample: &NodeSample) {
        let step = step_of(now);
        if sample.shards.is_empty() || self.newest.is_some_and(|newest| newest > step) {
            return;
        }
        self.newest = Some(step);
        if let Some(slot) = self.steps.get_mut(place(step)) {
            *slot = Some(step);
        }
        self.shards.set(step, sample.shards.len() as f32);
        for (unit, record) in &mut self.units {
            let sums = sample.units.get(unit).copied().unwrap_or_default();
            record.write(step, &sums);
        }
        for (id, record) in &mut self.resources {
            match sample.resources.get(id) {
                Some(found) => record.write(step, found),
                None => record.write_absent(step, sample.shards.iter().copied()),
            }
        }
        self.admit(step, sample);
    }

    /// Records those of the busiest resources in `sample` that are not recorded yet. Others make
    /// room first, so that there are never more than [`RESOURCES_MAX`].
    fn admit(&mut self, step: u64, sample: &NodeSample) {
        let busy = sample.resources.iter().filter(|(_, found)| found.is_busy);
        let new = busy.filter(|(id, _)| !self.resources.contains_key(*id));
        let new: Vec<_> = new.take(RESOURCES_MAX).collect();
        self.evict(step, RESOURCES_MAX - new.len());
        for (id, found) in new {
            let mut record = ResourceRecord::new(found.shard);
            record.write(step, found);
            self.resources.insert(id.clone(), record);
            debug_assert!(self.resources.len() <= RESOURCES_MAX);
        }
    }

    /// Forgets resources that have not been among the busiest in all steps, and the least recently
    /// busy of more than `max`.
    fn evict(&mut self, step: u64, max: usize) {
        let oldest = step.saturating_sub(STEPS as u64 - 1);
        self.resources
            .retain(|_, record| record.last_busy >= oldest);
        let surplus = self.resources.len().saturating_sub(max);
        if surplus == 0 {
            return;
        }
        let records = self.resources.iter();
        let mut by_age: Vec<_> = records
            .map(|(id, record)| (record.last_busy, id.clone()))
            .collect();
        by_age.sort_unstable();
        for (_, id) in by_age.into_iter().take(surplus) {
            self.resources.remove(&id);
        }
    }

    /// Returns a copy with the resources in `selection` only, to be read without the lock.
    pub(super) fn part(&self, selection: &WindowSelection) -> Self {
        let resources = self.resources.iter();
        let resources = resources.filter(|(id, _)| selection.admits(id));
        let resources = resources.map(|(id, record)| {
            if selection.has_clients() {
                (id.clone(), record.clone())
            } else {
                (id.clone(), record.without_clients())
            }
        });
        Self {
            steps: self.steps,
            newest: self.newest,
            shards: self.shards.clone(),
            units: self.units.clone(),
            resources: resources.collect(),
        }
    }

    /// Returns the last [`STEPS`] steps at `now` of this [`Self::part`] of `selection`.
    pub(super) fn window(&self, now: Instant, selection: &WindowSelection) -> HistoryWindow {
        // The sample of the current step may not have been taken yet.
        let before = step_of(now).saturating_sub(1);
        let newest = self.newest.map_or(before, |newest| newest.max(before));
        let read = |series: &Series| self.read(newest, series);
        let units = self.units.iter().map(|(unit, record)| {
            let window = UnitWindow {
                capacity: read(&record.capacity),
                has: read(&record.has),
                wants: read(&record.wants),
                waiting: read(&record.waiting),
            };
            (*unit, window)
        });
        let resources = self.resources.iter().map(|(id, record)| {
            let clients = record.clients.iter();
            let clients = clients.map(|client| (client.id.as_str().to_owned(), read(&client.has)));
            let window = ResourceWindow {
                at_most: read(&record.at_most),
                has: read(&record.has),
                wants: read(&record.wants),
                waiting: read(&record.waiting),
                clients: clients.collect(),
            };
            (id.clone(), window)
        });
        let window = HistoryWindow {
            newest_age: now.saturating_since(start_of(newest)),
            shards: read(&self.shards),
            units: units.collect(),
            resources: resources.collect(),
        };
        window.cut(selection)
    }

    /// Values of `series` up to the step `newest`, the oldest first.
    fn read(&self, newest: u64, series: &Series) -> Vec<f32> {
        let ages = (0..STEPS as u64).rev();
        let value = |age| {
            let step = newest.checked_sub(age)?;
            let sampled = self.steps.get(place(step)).copied().flatten();
            (sampled == Some(step)).then(|| series.get(step))
        };
        ages.map(|age| value(age).unwrap_or(GAP)).collect()
    }

    /// Memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let resources = self.resources.iter();
        let resources =
            resources.map(|(id, record)| size_of_val(id) + id.scope.len() + record.bytes());
        let units = (1 + 4 * self.units.len()) * Series::BYTES;
        size_of::<Self>() + units + resources.sum::<usize>()
    }
}

// === impl UnitRecord ===

impl UnitRecord {
    fn new() -> Self {
        Self {
            capacity: Series::new(),
            has: Series::new(),
            wants: Series::new(),
            waiting: Series::new(),
        }
    }

    fn write(&mut self, step: u64, sums: &ResourceStats) {
        self.capacity.set(step, sums.capacity as f32);
        self.has.set(step, sums.has as f32);
        self.wants.set(step, sums.wants as f32);
        self.waiting.set(step, sums.waiting as f32);
    }
}

// === free functions ===

/// Step in which `now` is.
pub(super) fn step_of(now: Instant) -> u64 {
    let step = u64::try_from(STEP.as_nanos()).unwrap_or(u64::MAX);
    now.as_nanos() / step
}

/// Start of `step`.
pub(super) fn start_of(step: u64) -> Instant {
    let count = u32::try_from(step).unwrap_or(u32::MAX);
    Instant::ZERO.saturating_add(STEP.saturating_mul(count))
}

#[cfg(test)]
mod tests;
