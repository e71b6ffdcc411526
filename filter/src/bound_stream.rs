//! A stream as the filter remembers it.

use tollgate_engine::Charge;

/// Stream with what its request has been charged.
#[derive(Debug)]
pub struct BoundStream {
    pub(crate) number: u32,
    /// Before the request is decided on: that of the stream that ended just before, as this one's may
    /// be the same.
    pub(crate) charge: Option<Charge>,
}

// === impl BoundStream ===

impl BoundStream {
    /// Returns a new stream by the number that the host has for it. `earlier` is the charge of the stream
    /// that ended just before.
    #[inline]
    pub fn new(number: u32, earlier: Option<Charge>) -> Self {
        Self {
            number,
            charge: earlier.map(Charge::next),
        }
    }
}
