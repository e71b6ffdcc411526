//! The last ten minutes of a node's lease tables, in bounded memory.
//!
//! Every five seconds a task samples the shards of this node: sums by unit, and of the busiest
//! resources the limit, what clients have and want, and the largest clients. A resource stays until
//! ten minutes after it was last among the busiest; where there are too many, the least recently
//! busy one goes. Nothing is stored: a node that starts has no past, and neither has a new master,
//! so the past of a shard is at the nodes that led it, and is merged from all.
//!
//! A step without a sample is a gap, not a zero: the node was not master, or its process stood
//! still.
//!
//! **Memory.** 120 values of 4 bytes for each of 4 figures and 8 clients of 200 resources, with the
//! longest ids: [`BYTES_MAX`], less than 2 000 000 bytes, whatever clients do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::units::Instant;

use self::recorder::{Recorder, start_of, step_of};
use self::sample::NodeSample;
use self::scan::HistoryScan;
pub use self::view::{
    ClientHistory, HistoryOverview, ResourceHistory, ScopeHistory, ScopeUnitHistory, UnitHistory,
    Values,
};
pub use self::window::{HistoryWindow, ResourceWindow, UnitWindow, WindowSelection};
use tollgate_leases::DriverError;
use tollgate_leases::shards::Shards;
use tollgate_net::clock::Clock;

mod recorder;
mod resource;
pub(crate) mod route;
mod sample;
mod scan;
mod series;
mod view;
mod window;

/// The time between two samples.
pub const STEP: Duration = Duration::from_secs(5);

/// Number of samples: those of ten minutes.
pub const STEPS: usize = 120;

/// The most resources that are recorded.
pub const RESOURCES_MAX: usize = 200;

/// The most clients of each that are recorded.
pub const CLIENTS_MAX: usize = 8;

/// The most memory of a history, in bytes.
pub const BYTES_MAX: usize = Recorder::BYTES_MAX;

const _: () = assert!(BYTES_MAX < 2_000_000);

/// History of this node; clones share it.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Recorder>>);

// === impl History ===

impl History {
    /// Samples `shards` every [`STEP`], for ever.
    pub async fn record(self, shards: Shards, clock: Clock) {
        let mut timer = clock.timer();
        loop {
            let next = step_of(clock.now()).saturating_add(1);
            timer.until(Some(start_of(next))).await;
            if let Err(error) = self.sample(&shards, clock).await {
                // As while a shard is handed over; the step stays a gap.
                tracing::debug!(%error, "history: no sample");
            }
        }
    }

    /// Takes one sample, beside the scans of the API, of which there is one at a time.
    async fn sample(&self, shards: &Shards, clock: Clock) -> Result<(), DriverError> {
        let now = clock.now();
        let tracked = self.with(|recorder| recorder.tracked());
        let scan = HistoryScan::new(Arc::new(tracked));
        let sample = shards.visit(scan).await?.end();
        self.add(now, &sample);
        Ok(())
    }

    fn add(&self, now: Instant, sample: &NodeSample) {
        self.with(|recorder| recorder.record(now, sample));
    }

    fn with<T>(&self, work: impl FnOnce(&mut Recorder) -> T) -> T {
        let mut recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut recorder)
    }

    /// Returns what this node knows at `now` of the resources in `selection`.
    pub fn window(&self, now: Instant, selection: &WindowSelection) -> HistoryWindow {
        // The next sample does not wait until the window is built.
        let part = self.with(|recorder| recorder.part(selection));
        part.window(now, selection)
    }
}

// === impl HistoryWindow ===

impl HistoryWindow {
    /// Returns the windows of several nodes of a cluster of `shards` shards as one.
    #[must_use]
    pub fn of_cluster(
        mut self,
        others: impl IntoIterator<Item = Self>,
        shards: usize,
        selection: &WindowSelection,
    ) -> Self {
        others.into_iter().for_each(|other| self.merge(other));
        self.drop_uneven(shards);
        self.cut(selection)
    }
}

#[cfg(test)]
mod tests;
