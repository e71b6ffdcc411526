//! What one Envoy process knows of the resources it uses, and the worker that speaks for it.
//!
//! One process is one client. Its workers share a [`Holder`] for each resource, kept as a record in
//! the memory that they share: whoever reads a record, decides with it and writes it back
//! unchanged in between has made the decision for all. So everything here is plain data.

mod backoff;
mod demand;
mod holder;
mod pen;
mod policy;
mod record;

pub use self::demand::Demand;
pub use self::holder::{Draw, Holder, State, Todo};
pub use self::pen::{Pen, Turn};
pub use self::policy::{Mode, Policy};
