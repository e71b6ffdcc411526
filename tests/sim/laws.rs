//! DESIGN's laws, one file each, checked after every event of every run.

mod lasting;
mod law1_never_more_than_the_capacity;
mod law2_gets_at_most_wants;
mod law3_nothing_left_over;
mod law4_max_min_fair;
mod law6_of_the_fleet;
mod law6_the_proxy_enforces;
mod law7_unreachable_is_not_unlimited;
mod law_f4_quotas;
mod nothing_leaks;
mod tree;
mod what_is_lent_can_be_used;

use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_sim::ClientView;

use self::lasting::Lasting;
use self::law2_gets_at_most_wants::greedy;
use self::law3_nothing_left_over::wanting;
use self::law4_max_min_fair::short;
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

/// Use of a client for some time, in which it may admit at a flow.
struct Busy {
    since: Instant,
    admitted: u64,
    /// Tokens that had to be paid first.
    owed: f64,
    /// The least flow in that time.
    flow: f64,
}

/// Returns the laws that a fleet keeps.
pub(crate) fn of(plan: &Plan) -> Vec<Box<dyn Law>> {
    if !plan.limit_of(0).quotas.is_empty() {
        // The others are about leases, which a limit with a quota has none of.
        return vec![
            Box::new(law_f4_quotas::LawF4::default()),
            Box::new(nothing_leaks::NothingLeaks),
        ];
    }
    let (always, ms) = (Duration::ZERO, Duration::from_millis(1));
    let mut laws: Vec<Box<dyn Law>> = match plan.is_tree() {
        true => vec![
            Box::new(tree::law1_at_every_level::Law1),
            Box::new(tree::law3_and_4_down_the_tree::Law4),
            Box::new(tree::law5_no_longer_than_borrowed::Law5),
            Box::new(tree::law7_a_parent_that_is_away::Law7::default()),
        ],
        false => vec![
            Box::new(law1_never_more_than_the_capacity::Law1),
            Box::new(Lasting::new("law 2, gets at most wants", always, greedy)),
            Box::new(Lasting::new("law 3, nothing left over", always, wanting)),
            // Filling is slow.
            Box::new(Lasting::new("law 4, max-min fair", 200 * ms, short)),
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

// === impl Busy ===

impl Busy {
    /// Begins to watch a client at a flow.
    fn begin(now: Instant, client: &ClientView<'_>, flow: f64) -> Self {
        Self {
            since: now,
            admitted: client.admitted_total(),
            owed: client.owed(),
            flow,
        }
    }

    /// Checks that a client that is asked for so much has admitted a part of what it could, but for so
    /// many of the largest requests.
    fn check(
        &self,
        now: Instant,
        client: &ClientView<'_>,
        (demand, part, spare): (f64, f64, f64),
    ) -> Result<(), String> {
        let seconds = now.saturating_since(self.since).as_secs_f64();
        let (mut flow, mut busy, mut part) = (self.flow, seconds - 1.0, part);
        if client.unit().is_concurrency() {
            // A tick until the end of a request is seen, and one until another comes; those of before
            // may linger. Requests of equal length that come at equal intervals may find the only place
            // taken each second time.
            let takes = client.requests().takes.as_secs_f64();
            (flow, busy, part) = (flow / (takes + 0.02), busy - takes, 0.45);
        }
        let expected = flow.min(demand) * busy * part - self.owed;
        // Requests are admitted whole.
        let expected = (expected - spare * client.requests().largest as f64).floor();
        let admitted = (client.admitted_total() - self.admitted) as f64;
        if admitted < expected {
            Err(format!(
                "{} admitted {admitted} in {seconds} s at {}, not {expected}",
                client.name, self.flow
            ))
        } else {
            Ok(())
        }
    }
}

// === free functions ===

/// Returns the capacity that the lease of a client lets it use.
fn has(client: &ClientView<'_>) -> f64 {
    client.has().as_f64()
}
