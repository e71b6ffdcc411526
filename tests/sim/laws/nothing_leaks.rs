//! Whoever waits is in line and ends: goes, leaves, or is answered when its time is over, each once and
//! those of one member in the order in which they came. And of permits, as many are counted as
//! workers hold, also after a worker's VM has trapped.

use super::{Fleet, Law};

pub(crate) struct NothingLeaks;

impl<W: Fleet> Law<W> for NothingLeaks {
    fn name(&self) -> &'static str {
        "nothing leaks"
    }

    fn check(&mut self, world: &W) -> Result<(), String> {
        world.processes().iter().try_for_each(|p| {
            let books = p.check_books(world.now());
            books.map_err(|broken| format!("{}: {broken}", p.id.as_str()))
        })
    }
}
