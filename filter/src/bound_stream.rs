//! A stream as the filter remembers it.

use tollgate_engine::Charge;

/// Stream with what its request has been charged.
#[derive(Debug)]
pub struct BoundStream {
    pub(crate) number: u32,
    pub(crate) charge: Charge,
}

// === impl BoundStream ===

impl BoundStream {
    /// Returns a new stream by the number that the host has for it.
    #[inline]
    pub fn new(number: u32) -> Self {
        Self {
            number,
            charge: Charge::default(),
        }
    }
}
