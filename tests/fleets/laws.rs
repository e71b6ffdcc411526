//! DESIGN's laws, one file each, checked after every event of every run.

mod law6_the_proxy_enforces;
mod law7_unreachable_is_not_unlimited;
mod nothing_leaks;
mod what_is_lent_can_be_used;

use std::time::Duration;

use tollgate_sim::ClientView;

use crate::fleet::Fleet;

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

/// Returns all laws.
pub(crate) fn all() -> Vec<Box<dyn Law>> {
    vec![
        Box::new(law6_the_proxy_enforces::Law6::default()),
        Box::new(law7_unreachable_is_not_unlimited::Law7::default()),
        Box::new(nothing_leaks::NothingLeaks),
        Box::new(what_is_lent_can_be_used::CanBeUsed::default()),
    ]
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
