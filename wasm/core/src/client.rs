//! What one Envoy process knows of the resources it uses, and the worker that speaks for it.
//!
//! One process is one client. Its workers share a [`Holding`] for each scope, with a [`Holder`] or a
//! [`Gauge`] for each unit, kept as a record in the memory that they share: whoever reads a record,
//! decides with it and writes it back unchanged in between has made the decision for all. So
//! everything here is plain data.

mod backoff;
mod borrower;
mod demand;
mod gauge;
mod holder;
mod holding;
mod pen;
mod policy;
mod record;

pub use self::borrower::{State, Todo};
pub use self::demand::Demand;
pub use self::gauge::{Gauge, Permits, Usage};
pub use self::holder::{Draw, Holder};
pub use self::holding::Holding;
pub use self::pen::{Pen, Turn};
pub use self::policy::{Mode, Policy};
