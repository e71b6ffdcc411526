//! Playground: a simulated fleet whose demand, limits and faults people change in a browser.
//!
//! [`Playground`] is all that the page sees. The simulation of [`tollgate_sim`], the drawing and
//! the sentences are made here; the page hands over what its sliders and switches say, and shows
//! what it gets back.

mod chart;
mod fleet;
mod history;
mod narration;
mod playground;
mod settings;
mod slider;

pub use self::playground::{EnvoyRow, Playground};
