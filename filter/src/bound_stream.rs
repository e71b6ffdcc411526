//! A stream as the filter remembers it.

use tollgate_engine::Charge;

/// Stream with what its request has been charged.
#[derive(Debug)]
pub struct BoundStream {
    pub(crate) number: u32,
    /// Before the request is decided on: that of the stream that ended just before, whose request may
    /// be the same. None once the stream has ended.
    pub(crate) charge: Option<Box<Charge>>,
}

// === impl BoundStream ===

impl BoundStream {
    /// Returns a new stream by the number that the host has for it.
    #[inline]
    pub fn new(number: u32, charge: Box<Charge>) -> Self {
        let charge = Some(charge);
        Self { number, charge }
    }

    /// Hands on what the stream before was charged: this one's request is charged nothing.
    pub(crate) fn hand_on(&mut self) {
        if let Some(charge) = &mut self.charge {
            charge.add_pass();
        }
    }
}
