//! Record of one resource with its largest clients.

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, ID_LEN_MAX};

use super::sample::ResourceSample;
use super::series::{GAP, Series};
use super::{CLIENTS_MAX, STEPS};

/// Factor by which the lease of a client has to exceed a recorded one to take its place, so that
/// clients with nearly equal leases do not take turns.
const TAKE_OVER: f32 = 1.25;

/// Figures of a resource by step.
#[derive(Clone, Debug)]
pub(super) struct ResourceRecord {
    /// The shard in which it was last found.
    shard: ShardId,
    /// The last step at which it was one of the busiest.
    pub(super) last_busy: u64,
    pub(super) at_most: Series,
    pub(super) has: Series,
    pub(super) wants: Series,
    pub(super) waiting: Series,
    /// At most [`CLIENTS_MAX`].
    pub(super) clients: Vec<ClientRecord>,
}

/// Leases of a client by step.
#[derive(Clone, Debug)]
pub(super) struct ClientRecord {
    pub(super) id: ClientId,
    pub(super) has: Series,
    /// The last step at which it had something.
    last_has: u64,
}

// === impl ResourceRecord ===

impl ResourceRecord {
    /// The most memory of one, with its id.
    pub(super) const BYTES_MAX: usize = size_of::<Self>()
        + ID_LEN_MAX
        + 4 * Series::BYTES
        + CLIENTS_MAX * (size_of::<ClientRecord>() + ID_LEN_MAX + Series::BYTES);

    pub(super) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            last_busy: 0,
            at_most: Series::new(),
            has: Series::new(),
            wants: Series::new(),
            waiting: Series::new(),
            clients: Vec::new(),
        }
    }

    /// Returns a copy without its clients.
    pub(super) fn without_clients(&self) -> Self {
        Self {
            shard: self.shard,
            last_busy: self.last_busy,
            at_most: self.at_most.clone(),
            has: self.has.clone(),
            wants: self.wants.clone(),
            waiting: self.waiting.clone(),
            clients: Vec::new(),
        }
    }

    /// Writes `sample` as that of `step`.
    pub(super) fn write(&mut self, step: u64, sample: &ResourceSample) {
        self.shard = sample.shard;
        if sample.is_busy {
            self.last_busy = step;
        }
        self.at_most.set(step, sample.at_most);
        self.has.set(step, sample.has);
        self.wants.set(step, sample.wants);
        self.waiting.set(step, sample.waiting);
        self.write_clients(step, &sample.clients);
    }

    /// Writes that the resource had no clients at `step`, or a gap if its shard is not among
    /// `shards`, which were looked at: another node may know.
    pub(super) fn write_absent(&mut self, step: u64, mut shards: impl Iterator<Item = ShardId>) {
        let has_looked = shards.any(|shard| shard == self.shard);
        let value = if has_looked { 0.0 } else { GAP };
        // Nothing tells the limit of a resource without clients.
        self.at_most.set(step, GAP);
        self.has.set(step, value);
        self.wants.set(step, value);
        self.waiting.set(step, value);
        for client in &mut self.clients {
            client.has.set(step, value);
        }
    }

    fn write_clients(&mut self, step: u64, sample: &[(ClientId, f32)]) {
        for client in &mut self.clients {
            let found = sample.iter().find(|(id, _)| *id == client.id);
            client.write(step, found.map_or(0.0, |(_, has)| *has));
        }
        let oldest = step.saturating_sub(STEPS as u64 - 1);
        self.clients.retain(|client| client.last_has >= oldest);
        for (id, has) in sample {
            let is_known = self.clients.iter().any(|client| client.id == *id);
            if *has > 0.0 && !is_known {
                self.admit(step, id, *has);
            }
        }
    }

    /// Records a client that is not recorded yet, if there is a place for it.
    fn admit(&mut self, step: u64, id: &ClientId, has: f32) {
        if self.clients.len() >= CLIENTS_MAX {
            let now = |client: &ClientRecord| client.has.get(step);
            let clients = self.clients.iter().enumerate();
            let smallest = clients.min_by(|(_, one), (_, other)| now(one).total_cmp(&now(other)));
            match smallest.map(|(at, client)| (at, now(client))) {
                Some((at, least)) if has > least * TAKE_OVER => drop(self.clients.swap_remove(at)),
                _ => return,
            }
        }
        let mut client = ClientRecord {
            id: id.clone(),
            has: Series::new(),
            last_has: step,
        };
        client.write(step, has);
        self.clients.push(client);
    }

    /// Memory that it takes, without its id.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let client = |client: &ClientRecord| client.id.as_str().len() + Series::BYTES;
        let clients: usize = self.clients.iter().map(client).sum();
        let places = self.clients.capacity() * size_of::<ClientRecord>();
        size_of::<Self>() + 4 * Series::BYTES + clients + places
    }
}

// === impl ClientRecord ===

impl ClientRecord {
    fn write(&mut self, step: u64, has: f32) {
        self.has.set(step, has);
        if has > 0.0 {
            self.last_has = step;
        }
    }
}
