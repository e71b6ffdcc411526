//! DESIGN's laws, one file each, checked after every event of every run.

mod law1_never_more_than_the_capacity;
mod law2_gets_at_most_wants;
mod law3_nothing_left_over;
mod law4_max_min_fair;
mod law6_the_proxy_enforces;
mod law7_unreachable_is_not_unlimited;

use crate::world::World;

/// One law. It may remember what it saw.
pub(crate) trait Law {
    fn name(&self) -> &'static str;

    /// After every event.
    fn check(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }

    /// After the last one, when everything has had time to settle.
    fn finish(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }
}

pub(crate) fn all() -> Vec<Box<dyn Law>> {
    vec![
        Box::new(law1_never_more_than_the_capacity::Law1),
        Box::new(law2_gets_at_most_wants::Law2),
        Box::new(law3_nothing_left_over::Law3),
        Box::new(law4_max_min_fair::Law4),
        Box::new(law6_the_proxy_enforces::Law6::default()),
        Box::new(law7_unreachable_is_not_unlimited::Law7::default()),
    ]
}
