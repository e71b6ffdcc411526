//! Heartbeats of the workers of one process.

use core::time::Duration;

use tollgate_core::units::Instant;

use super::codec::{self, Heartbeat, Levels, WORKERS_MAX};
use super::{SlotTable, TableError};
use crate::host::Host;

/// Time between two heartbeats of a worker.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two heartbeats of a worker whose levels have changed.
const LEVELS_INTERVAL: Duration = Duration::from_millis(100);
/// Age of a heartbeat from which its worker counts as lost.
const HEARTBEAT_LOST: Duration = Duration::from_secs(3);

/// Workers of one process that live, as one of them knows.
#[derive(Debug)]
pub(super) struct Workers {
    count: u32,
    /// All that live, as of `read_at`; only the sync leader reads them.
    living: Vec<Heartbeat>,
    read_at: Option<Instant>,
    /// This worker's last heartbeat.
    last: Option<(Instant, Levels)>,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            count: 1,
            living: Vec::new(),
            read_at: None,
            last: None,
        }
    }
}

// === impl Workers ===

impl Workers {
    /// Returns how many live, as of this worker's last heartbeat.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether this worker has written a heartbeat.
    pub(super) fn has_heartbeat(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the workers that live.
    pub(super) fn living(&self) -> &[Heartbeat] {
        &self.living
    }

    /// Writes this worker's heartbeat if it is due.
    pub(super) fn heartbeat<H: Host>(
        &mut self,
        slots: &SlotTable,
        host: &H,
        own: Heartbeat,
    ) -> Result<(), TableError> {
        let interval = match self.last.map(|(_, levels)| levels == own.levels) {
            Some(false) => LEVELS_INTERVAL,
            _ => HEARTBEAT_INTERVAL,
        };
        let now = own.at;
        let fresh = |(last, _)| now.saturating_since(last) < interval;
        if self.last.is_some_and(fresh) {
            return Ok(());
        }
        let count = slots.update_record(host, "workers", |bytes| {
            let mut workers = codec::decode_workers(bytes);
            workers.retain(|other| other.worker != own.worker && lives(other, now));
            workers.truncate(WORKERS_MAX.saturating_sub(1));
            workers.push(own);
            (workers.len(), Some(codec::encode_workers(&workers)))
        })?;
        self.count = u32::try_from(count).unwrap_or(u32::MAX);
        self.last = Some((now, own.levels));
        Ok(())
    }

    /// Reads the heartbeats of all workers, unless that was done lately.
    pub(super) fn read<H: Host>(
        &mut self,
        slots: &SlotTable,
        host: &H,
        now: Instant,
    ) -> Result<(), TableError> {
        let fresh = |at| now.saturating_since(at) < LEVELS_INTERVAL;
        if self.read_at.is_some_and(fresh) {
            return Ok(());
        }
        let mut workers = slots.update_record(host, "workers", |bytes| {
            (codec::decode_workers(bytes), None)
        })?;
        workers.retain(|worker| lives(worker, now));
        self.living = workers;
        self.read_at = Some(now);
        Ok(())
    }
}

// === free functions ===

fn lives(worker: &Heartbeat, now: Instant) -> bool {
    now.saturating_since(worker.at) < HEARTBEAT_LOST
        && worker.at <= now.saturating_add(HEARTBEAT_LOST)
}
