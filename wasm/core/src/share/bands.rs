//! Division by priority: of a scarce capacity, higher bands are filled first.
//!
//! Each band has its own [`FairShare`]. First every band gets its guaranteed minimum, as far as it
//! is wanted; then the bands are filled from the highest down; within a band clients share by
//! weight. Doorman carries priorities and ignores them; the minimum keeps the lowest band from
//! being starved by the highest.
//!
//! The share of a band depends on the sums of the bands only, at most 16 of them, so a share costs
//! O(bands + log n). With a single band, as nearly always, it costs nothing beyond the share.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::fair::{FairShare, Handle, Quantum};
use crate::lease::{Band, Demand, Priority};
use crate::limit::{Algorithm, Guarantees};
use crate::units::Capacity;

/// Clients of a resource, by the priorities of their wants.
#[derive(Debug)]
pub struct PriorityBands<K> {
    /// The highest priority first; none is empty.
    bands: Vec<BandShares<K>>,
    quantum: Quantum,
}

/// Handles of one client, one for each band in which it wants something.
#[derive(Debug)]
pub struct BandHandles<K> {
    first: BandHandle<K>,
    /// Further handles of a client that speaks for others and has more than one band.
    more: Box<[BandHandle<K>]>,
}

#[derive(Debug)]
struct BandShares<K> {
    priority: Priority,
    fair: FairShare<K>,
}

#[derive(Debug)]
struct BandHandle<K> {
    priority: Priority,
    handle: Handle<K>,
}

// === impl BandHandles ===

impl<K> BandHandles<K> {
    /// Wants of the client in all bands, as they count here: rounded up to the quantum.
    pub fn wants(&self) -> Capacity {
        let wants = self.spots().map(|spot| spot.handle.wants());
        wants.fold(Capacity::ZERO, Capacity::saturating_add)
    }

    /// Number of clients for which this one speaks.
    pub fn subclients(&self) -> u64 {
        let weights = self.spots().map(|spot| spot.handle.weight().get().into());
        weights.fold(0, u64::saturating_add)
    }

    /// Number of those for which it wants something.
    pub fn active(&self) -> u64 {
        let active = self
            .spots()
            .filter(|spot| spot.handle.wants() > Capacity::ZERO);
        let weights = active.map(|spot| spot.handle.weight().get().into());
        weights.fold(0, u64::saturating_add)
    }

    /// Wants of the client as they count here, the highest priority first: at least one band.
    pub fn bands(&self) -> impl Iterator<Item = Band> {
        self.spots().map(|spot| Band {
            priority: spot.priority,
            wants: spot.handle.wants(),
            subclients: spot.handle.weight(),
        })
    }

    fn spots(&self) -> impl Iterator<Item = &BandHandle<K>> {
        core::iter::once(&self.first).chain(self.more.iter())
    }

    /// Whether the handles are in the bands of `demand`, so that only amounts change.
    fn fits(&self, demand: &[Band]) -> bool {
        let places = self.spots().map(|spot| spot.priority);
        places.eq(demand.iter().map(|band| band.priority))
    }
}

// === impl PriorityBands ===

impl<K: Copy + Ord> PriorityBands<K> {
    /// No clients; shares are multiples of `quantum`.
    pub const fn new(quantum: Quantum) -> Self {
        Self {
            bands: Vec::new(),
            quantum,
        }
    }

    /// The smallest part that can be given.
    pub fn quantum(&self) -> Quantum {
        self.quantum
    }

    /// Adds a client that wants `demand`, but at most `each` for itself and each subclient.
    pub fn insert(&mut self, key: K, demand: &Demand, each: Capacity) -> BandHandles<K> {
        let mut spots = demand.bands().iter();
        // A demand has at least one band.
        let first = spots.next().copied().unwrap_or(NOTHING);
        BandHandles {
            first: self.occupy(key, &first, each),
            more: spots.map(|band| self.occupy(key, band, each)).collect(),
        }
    }

    /// Changes the wants of a client.
    pub fn update(&mut self, key: K, place: &mut BandHandles<K>, demand: &Demand, each: Capacity) {
        if !place.fits(demand.bands()) {
            let old = core::mem::replace(place, self.insert(key, demand, each));
            self.remove(old);
            return;
        }
        let spots = core::iter::once(&mut place.first).chain(place.more.iter_mut());
        for (spot, band) in spots.zip(demand.bands()) {
            if let Some(shares) = self.bands.iter_mut().find(|b| b.priority == spot.priority) {
                let wants = wants(band, each);
                shares.fair.update(&mut spot.handle, wants, band.subclients);
            }
        }
    }

    /// Removes a client.
    pub fn remove(&mut self, place: BandHandles<K>) {
        self.vacate(place.first);
        place.more.into_iter().for_each(|spot| self.vacate(spot));
    }

    /// Capacity that the client is entitled to of `capacity`: at most its wants.
    ///
    /// Over all clients the shares sum to the lesser of `capacity` and [`Self::sum_wants`],
    /// exactly.
    pub fn share(
        &self,
        place: &BandHandles<K>,
        capacity: Capacity,
        algorithm: Algorithm,
        guaranteed: &Guarantees,
    ) -> Capacity {
        let share = |spot: &BandHandle<K>| {
            let Some(band) = self.band(spot.priority) else {
                return Capacity::ZERO;
            };
            let capacity = self.band_share(spot.priority, capacity, guaranteed);
            match algorithm {
                Algorithm::ProportionalShare => band.fair.proportional(&spot.handle, capacity),
                // Those that go by usage have fair shares only while that is not known.
                Algorithm::None
                | Algorithm::Static
                | Algorithm::FairShare
                | Algorithm::UsageShare
                | Algorithm::MaxRate => band.fair.share(&spot.handle, capacity),
            }
        };
        let shares = place.spots().map(share);
        shares.fold(Capacity::ZERO, Capacity::saturating_add)
    }

    /// The client's part of `spare` capacity that no client wants, by weight over all bands:
    /// nothing for a client that wants nothing.
    pub fn spare(&self, place: &BandHandles<K>, spare: Capacity) -> Capacity {
        let active = self.active();
        let part = |spot: &BandHandle<K>| {
            let above = self.bands.iter();
            let above = above.take_while(|band| band.priority > spot.priority);
            let above = above.map(|band| band.fair.active_weight());
            let before = above.fold(0, u64::saturating_add);
            let band = self.band(spot.priority);
            band.map_or(Capacity::ZERO, |band| {
                band.fair.spare_among(&spot.handle, spare, before, active)
            })
        };
        let parts = place.spots().map(part);
        parts.fold(Capacity::ZERO, Capacity::saturating_add)
    }

    /// Sum of all wants, in millionths.
    pub fn sum_wants(&self) -> u128 {
        let wants = self.bands.iter().map(|band| band.fair.sum_wants());
        wants.fold(0, u128::saturating_add)
    }

    /// Number of clients, with those for which they speak.
    pub fn subclients(&self) -> u64 {
        let weights = self.bands.iter().map(|band| band.fair.sum_weights());
        weights.fold(0, u64::saturating_add)
    }

    /// Number of those that want something.
    pub fn active(&self) -> u64 {
        let weights = self.bands.iter().map(|band| band.fair.active_weight());
        weights.fold(0, u64::saturating_add)
    }

    /// Wants of all clients together, of `capacity` and by priority: the demand of one that speaks
    /// for them. Clients that want nothing do not count, or their neighbours would get their part.
    pub fn demand(&self, capacity: Capacity, guaranteed: &Guarantees) -> Demand {
        let band = |band: &BandShares<K>| {
            let weight = u32::try_from(band.fair.active_weight()).unwrap_or(u32::MAX);
            Band {
                priority: band.priority,
                wants: self
                    .band_share(band.priority, capacity, guaranteed)
                    .min(band.wants()),
                subclients: NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN),
            }
        };
        let bands: Vec<Band> = self.bands.iter().map(band).collect();
        // Each priority is there once, so what can be wrong is that there is none.
        Demand::try_from_bands(&bands).unwrap_or(Demand::of(Capacity::ZERO))
    }

    /// Minimums by which each client, and each for which it speaks, is sure of `each`. Where there is
    /// one band, it is sure without any.
    pub(crate) fn guarantee_each(&self, each: Capacity) -> Guarantees {
        let bands = self.bands.iter().filter(|_| self.bands.len() > 1);
        bands.fold(Guarantees::default(), |guarantees, band| {
            let sum = each.as_micros().saturating_mul(band.fair.sum_weights());
            guarantees.with(band.priority, Capacity::from_micros(sum))
        })
    }

    /// The band of a client's highest priority, with its part of `capacity` as wants; none if all clients are in one.
    pub(crate) fn band_of(
        &self,
        place: &BandHandles<K>,
        capacity: Capacity,
        guaranteed: &Guarantees,
    ) -> Option<Band> {
        let band = self.band(place.first.priority)?;
        let weight = u32::try_from(band.fair.sum_weights()).unwrap_or(u32::MAX);
        (self.bands.len() > 1).then(|| Band {
            priority: band.priority,
            wants: self.band_share(band.priority, capacity, guaranteed),
            subclients: NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN),
        })
    }

    /// Part of `capacity` that is for the band `priority`.
    fn band_share(
        &self,
        priority: Priority,
        capacity: Capacity,
        guaranteed: &Guarantees,
    ) -> Capacity {
        if capacity.is_unlimited() || self.bands.len() <= 1 {
            return capacity;
        }
        let capacity = self.quantum.floor(capacity);
        // Minimums of the bands. If there is less than all are guaranteed, as in a pool, the
        // highest get theirs.
        let mut rest = capacity;
        let mut firsts = [Capacity::ZERO; Priority::COUNT];
        for (band, first) in self.bands.iter().zip(&mut firsts) {
            let sure = self.quantum.floor(guaranteed.of(band.priority));
            *first = sure.min(band.wants()).min(rest);
            rest = rest.saturating_sub(*first);
        }
        for (band, first) in self.bands.iter().zip(firsts) {
            let more = band.wants().saturating_sub(first).min(rest);
            if band.priority == priority {
                return first.saturating_add(more);
            }
            rest = rest.saturating_sub(more);
        }
        Capacity::ZERO
    }

    fn band(&self, priority: Priority) -> Option<&BandShares<K>> {
        self.bands.iter().find(|band| band.priority == priority)
    }

    fn occupy(&mut self, key: K, band: &Band, each: Capacity) -> BandHandle<K> {
        let Band { priority, .. } = *band;
        let at = self
            .bands
            .partition_point(|other| other.priority > priority);
        if self.bands.get(at).is_none_or(|b| b.priority != priority) {
            let fair = FairShare::of(self.quantum);
            self.bands.insert(at, BandShares { priority, fair });
        }
        let (wants, weight) = (wants(band, each), band.subclients);
        let handle = match self.bands.get_mut(at) {
            Some(band) => band.fair.insert(key, wants, weight),
            // Out of reach: it was put there just now.
            None => FairShare::of(self.quantum).insert(key, wants, weight),
        };
        BandHandle { priority, handle }
    }

    fn vacate(&mut self, spot: BandHandle<K>) {
        let BandHandle { priority, handle } = spot;
        let Some(at) = self.bands.iter().position(|band| band.priority == priority) else {
            return;
        };
        if let Some(band) = self.bands.get_mut(at) {
            band.fair.remove(handle);
            if band.fair.is_empty() {
                self.bands.remove(at);
            }
        }
    }
}

// === impl BandShares ===

impl<K: Copy + Ord> BandShares<K> {
    /// Wants of the band; a number, as is all that it can get.
    fn wants(&self) -> Capacity {
        Capacity::from_sum(self.fair.sum_wants())
    }
}

// === free functions ===

/// Band that counts for a client without one.
const NOTHING: Band = Band {
    priority: Priority::LOWEST,
    wants: Capacity::ZERO,
    subclients: NonZeroU32::MIN,
};

/// Wants of `band`, at most `each` for each client that it speaks for.
fn wants(band: &Band, each: Capacity) -> Capacity {
    if each.is_unlimited() {
        return band.wants;
    }
    let subclients = u64::from(band.subclients.get());
    let most = Capacity::from_micros(each.as_micros().saturating_mul(subclients));
    band.wants.min(most)
}

#[cfg(test)]
mod tests;
