//! The laws for trees. What a process must keep it must keep below any coordinator; those laws are
//! the same as elsewhere.

use crate::borrowing::Borrowing;
use crate::fleet::Fleet;

pub(super) mod law1_at_every_level;
pub(super) mod law3_and_4_down_the_tree;
pub(super) mod law5_no_longer_than_borrowed;
pub(super) mod law7_a_parent_that_is_away;

// === free functions ===

/// Returns the facts about a tree.
fn facts(fleet: &Fleet) -> &Borrowing {
    fleet.borrowing.as_ref().expect("a tree")
}
