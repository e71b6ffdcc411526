//! Fleets of real engines and real lease servers on a virtual clock and a simulated network.
//!
//! A [`Simulation`](simulation::Simulation) plays a [`Scenario`](scenario::Scenario) event by event.
//! Each Envoy is one process of [`tollgate_engine`]'s engines, each coordinator a lease server of
//! [`tollgate_core`] for each shard; only the network, the clocks and the demand are made up, from
//! one seed. The same scenario with the same seed takes the same course.
//!
//! Nothing here does I/O, reads a clock or starts a thread, so it runs in a browser as well.

#![forbid(unsafe_code)]

mod capacities;
mod coordinator;
pub mod defect;
mod demand;
pub mod fairness;
pub mod figures;
mod ideal;
mod inspection;
pub mod limits;
pub mod observer;
mod process;
pub mod random;
mod recorder;
pub mod sample;
pub mod scenario;
mod scopes;
pub mod simulation;
pub mod sizes;
mod topology;
mod wall;

pub use self::process::view::{ClientKey, ClientView, tokens};
pub use self::process::{ResourceDemand, Spent};
pub use self::topology::Node;
