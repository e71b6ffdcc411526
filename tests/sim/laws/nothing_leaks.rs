//! Every waiting request is in a wait queue and ends once: it goes on, leaves, or is answered when
//! its time is over. The requests of one member end in the order in which they came. The process
//! counts as many permits as its workers have, also after a worker's VM has trapped.

use super::{Fleet, Law};

pub(crate) struct NothingLeaks;

impl<W: Fleet> Law<W> for NothingLeaks {
    fn name(&self) -> &'static str {
        "nothing leaks"
    }

    fn check(&mut self, world: &W) -> Result<(), String> {
        world.processes().iter().try_for_each(|p| {
            let counts = p.check_counts(world.now());
            counts.map_err(|broken| format!("{}: {broken}", p.id.as_str()))
        })
    }
}
