//! What one Envoy process knows of the resources it uses, and the worker that speaks for it.
//!
//! One process is one client. Its workers share a [`Holding`] for each scope, with a [`Holder`] or a
//! [`Gauge`] for each unit, kept as a record in the memory that they share: whoever reads a record,
//! decides with it and writes it back unchanged in between has made the decision for all. So
//! everything here is plain data.

pub(crate) mod backoff;
mod borrower;
#[cfg(test)]
mod clocks;
mod demand;
mod gauge;
mod holder;
mod holding;
mod line;
mod pen;
mod policy;
mod record;
mod safe_mode;
mod turns;

pub use self::borrower::{State, Todo};
pub use self::demand::Demand;
pub use self::gauge::{Gauge, Permits, Usage};
pub use self::holder::{Draw, Fill, Holder};
pub use self::holding::Holding;
pub use self::line::{Line, Shortage};
pub use self::pen::{Pen, Turn};
pub use self::policy::{Mode, Policy};
pub use self::safe_mode::{CallHistory, SafeMode, SafeModeReport};
pub use self::turns::{Turns, Waiter};
