//! The laws for trees, one file each, checked after every event of every run. What a process must
//! keep it must keep below any coordinator; those laws are the same as elsewhere.

mod law1_at_every_level;
mod law3_and_4_down_the_tree;
mod law5_no_longer_than_borrowed;
mod law7_a_parent_that_is_away;

use super::World;
use crate::laws::Law;
use crate::laws::law6_the_proxy_enforces::Law6;
use crate::laws::law7_unreachable_is_not_unlimited::Law7;
use crate::laws::nothing_leaks::NothingLeaks;
use crate::laws::what_is_lent_can_be_used::CanBeUsed;

pub(crate) fn all() -> Vec<Box<dyn Law<World>>> {
    vec![
        Box::new(law1_at_every_level::Law1),
        Box::new(law3_and_4_down_the_tree::Law4),
        Box::new(law5_no_longer_than_borrowed::Law5),
        Box::new(Law6::default()),
        Box::new(Law7::default()),
        Box::new(law7_a_parent_that_is_away::Law7::default()),
        Box::new(NothingLeaks),
        Box::new(CanBeUsed::default()),
    ]
}
