//! Values by step, in a ring.

use super::STEPS;

/// Value of a step at which nothing is known.
pub(super) const GAP: f32 = f32::NAN;

/// Values of the last [`STEPS`] steps. The recorder knows at which of them there was a sample: the
/// places of the others have older values.
#[derive(Clone, Debug)]
pub(super) struct Series(Box<[f32; STEPS]>);

// === impl Series ===

impl Series {
    /// Memory of its values.
    pub(super) const BYTES: usize = STEPS * size_of::<f32>();

    /// Nothing is known so far.
    pub(super) fn new() -> Self {
        Self(Box::new([GAP; STEPS]))
    }

    pub(super) fn set(&mut self, step: u64, value: f32) {
        if let Some(place) = self.0.get_mut(place(step)) {
            *place = value;
        }
    }

    pub(super) fn get(&self, step: u64) -> f32 {
        self.0.get(place(step)).copied().unwrap_or(GAP)
    }
}

// === free functions ===

/// Place of `step` in a ring.
pub(super) fn place(step: u64) -> usize {
    // The remainder is less than the length.
    (step % STEPS as u64) as usize
}
