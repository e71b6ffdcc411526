//! DESIGN's laws, one file each, checked after every event of every run.

mod lasting;
pub(crate) mod law1_never_more_than_the_capacity;
mod law2_gets_at_most_wants;
mod law3_nothing_left_over;
pub(crate) mod law4_max_min_fair;
pub(crate) mod law6_the_proxy_enforces;
pub(crate) mod law7_unreachable_is_not_unlimited;
pub(crate) mod nothing_leaks;
pub(crate) mod what_is_lent_can_be_used;

use std::time::Duration;

use tollgate_core::units::Instant;

use crate::process::Process;
use crate::world::World;

/// Processes of a world, for the laws about processes.
pub(crate) trait Fleet {
    fn now(&self) -> Instant;

    fn processes(&self) -> &[Process];

    /// Returns the time left of the run.
    fn left(&self) -> Duration;
}

/// Law about a world. It may remember earlier observations.
pub(crate) trait Law<W = World> {
    fn name(&self) -> &'static str;

    /// Checks the law after every event.
    fn check(&mut self, _world: &W) -> Result<(), String> {
        Ok(())
    }

    /// Checks the law after the last event, when everything has had time to settle.
    fn finish(&mut self, _world: &W) -> Result<(), String> {
        Ok(())
    }
}

/// Checks each of `laws`, up to the first that is broken.
pub(crate) fn hold<W>(
    laws: &mut [Box<dyn Law<W>>],
    look: impl Fn(&mut dyn Law<W>) -> Result<(), String>,
) -> Result<(), String> {
    laws.iter_mut().try_for_each(|law| {
        look(law.as_mut()).map_err(|broken| format!("{}: {broken}", law.name()))
    })
}

pub(crate) fn all() -> Vec<Box<dyn Law>> {
    vec![
        Box::new(law1_never_more_than_the_capacity::Law1),
        Box::new(law2_gets_at_most_wants::Law2::default()),
        Box::new(law3_nothing_left_over::Law3::default()),
        Box::new(law4_max_min_fair::Law4::default()),
        Box::new(law6_the_proxy_enforces::Law6::default()),
        Box::new(law7_unreachable_is_not_unlimited::Law7::default()),
        Box::new(nothing_leaks::NothingLeaks),
        Box::new(what_is_lent_can_be_used::CanBeUsed::default()),
    ]
}
