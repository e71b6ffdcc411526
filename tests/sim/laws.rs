//! DESIGN's laws, one file each, checked after every event of every run.

mod lasting;
mod law1_never_more_than_the_capacity;
mod law2_gets_at_most_wants;
mod law3_nothing_left_over;
mod law4_max_min_fair;
mod law6_of_the_fleet;
mod law6_the_proxy_enforces;
mod law7_unreachable_is_not_unlimited;
mod nothing_leaks;
mod tree;
mod what_is_lent_can_be_used;

use std::time::Duration;

use tollgate_sim::ClientView;

use crate::fleet::Fleet;
use crate::plan::Plan;

/// Law about a fleet. It may remember earlier observations.
pub(crate) trait Law {
    fn name(&self) -> &'static str;

    /// Checks the law after every event.
    fn check(&mut self, _fleet: &Fleet) -> Result<(), String> {
        Ok(())
    }

    /// Checks the law after the last event, when everything has had time to settle.
    fn finish(&mut self, _fleet: &Fleet) -> Result<(), String> {
        Ok(())
    }
}

/// Returns the laws that a fleet keeps.
pub(crate) fn of(plan: &Plan) -> Vec<Box<dyn Law>> {
    let mut laws: Vec<Box<dyn Law>> = match plan.is_tree() {
        true => vec![
            Box::new(tree::law1_at_every_level::Law1),
            Box::new(tree::law3_and_4_down_the_tree::Law4),
            Box::new(tree::law5_no_longer_than_borrowed::Law5),
            Box::new(tree::law7_a_parent_that_is_away::Law7::default()),
        ],
        false => vec![
            Box::new(law1_never_more_than_the_capacity::Law1),
            Box::new(law2_gets_at_most_wants::Law2::default()),
            Box::new(law3_nothing_left_over::Law3::default()),
            Box::new(law4_max_min_fair::Law4::default()),
            Box::new(law6_of_the_fleet::Law6::default()),
        ],
    };
    let of_processes: [Box<dyn Law>; 4] = [
        Box::new(law6_the_proxy_enforces::Law6::default()),
        Box::new(law7_unreachable_is_not_unlimited::Law7::default()),
        Box::new(nothing_leaks::NothingLeaks),
        Box::new(what_is_lent_can_be_used::CanBeUsed::default()),
    ];
    laws.extend(of_processes);
    laws
}

/// Returns the capacity that the lease of a client lets it use.
fn has(client: &ClientView<'_>) -> f64 {
    client.has().as_f64()
}

/// Returns the tokens per second that a client can spend at a flow of `flow`.
fn throughput(client: &ClientView<'_>, flow: f64) -> f64 {
    match client.unit().is_concurrency() {
        // A tick until its end is seen, and one until another comes.
        true => flow / (client.takes().as_secs_f64() + 0.02),
        false => flow,
    }
}

/// Returns the time for which work begun under an earlier lease may delay new requests.
fn lingers(client: &ClientView<'_>) -> Duration {
    match client.unit().is_concurrency() {
        true => client.takes(),
        false => Duration::ZERO,
    }
}
