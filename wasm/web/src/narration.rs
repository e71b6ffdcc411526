//! Sentences that say how the fleet stands now, and for how long.

use std::time::Duration;

use tollgate_core::limit::Algorithm;
use tollgate_core::quantity::amount_text;
use tollgate_sim::simulation::live::{CoordinatorStatus, EnvoyStatus};

use crate::settings::{NAMES, Settings};

/// Part of its wants with which an Envoy counts as having all of them: it asks for what it has
/// counted, which is a little behind.
const ALL: f64 = 0.97;
/// The same for an Envoy with less than others, which had got more if it had asked for it.
const ALL_BELOW_OTHERS: f64 = 0.85;

/// State of the fleet that sentences are made of.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) coordinator: CoordinatorStatus,
    /// The Envoys in the order of their names.
    pub(crate) envoys: &'a [EnvoyStatus],
}

// === impl Scene ===

impl Scene<'_> {
    /// Returns the sentences, faults first.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        match self.coordinator {
            CoordinatorStatus::Down => all.push(self.stopped()),
            CoordinatorStatus::Learning(left) => all.push(format!(
                "The new coordinator learns for {} more which leases are out: it renews those, \
                 and lends nothing else.",
                seconds(left)
            )),
            CoordinatorStatus::Lending => {}
        }
        if self.coordinator != CoordinatorStatus::Down {
            all.extend(self.cut_off());
        }
        if self.coordinator == CoordinatorStatus::Lending {
            all.push(self.division());
        }
        all
    }

    fn stopped(&self) -> String {
        // They were all told the same, if they know the tenant.
        let fallbacks = self.envoys.iter().map(|envoy| envoy.fallback);
        let safe = rate_text(fallbacks.fold(0.0, f64::max));
        let left = self
            .envoys
            .iter()
            .filter_map(|envoy| envoy.lease_left)
            .max();
        match left {
            Some(left) => format!(
                "The coordinator is stopped: each Envoy uses its lease, for at most {} more, and \
                 then its safe capacity of {safe}.",
                seconds(left)
            ),
            None => format!(
                "The coordinator is stopped and all leases have expired: each Envoy admits its \
                 safe capacity of {safe}, all {} together at most {}.",
                self.envoys.len(),
                rate_text(self.envoys.iter().map(|envoy| envoy.rate).sum()),
            ),
        }
    }

    fn cut_off(&self) -> Vec<String> {
        let all = self.settings.envoys.iter().zip(self.envoys).zip(NAMES);
        let cut = all.filter(|((chosen, _), _)| chosen.is_cut);
        let cut = cut.map(|((_, envoy), name)| match envoy.lease_left {
            Some(left) => format!(
                "{name} is cut off: it uses its lease of {} for {} more, then its safe capacity \
                 of {}.",
                rate_text(envoy.has),
                seconds(left),
                rate_text(envoy.fallback),
            ),
            None => format!(
                "{name} is cut off and has no lease: it admits its safe capacity of {}, which \
                 the coordinator does not count.",
                rate_text(envoy.rate),
            ),
        });
        cut.collect()
    }

    /// Says how the capacity is divided.
    fn division(&self) -> String {
        let Settings {
            capacity,
            algorithm,
            ..
        } = *self.settings;
        let (wants, of) = (rate_text(self.settings.demand()), rate_text(capacity));
        let count = self.envoys.len();
        match algorithm {
            Algorithm::None => {
                format!(
                    "Nothing is limited: all {wants} requests per second pass. They are only \
                     counted."
                )
            }
            Algorithm::Static => format!(
                "Each Envoy may use the capacity of {of} by itself, all {count} together up to {}.",
                rate_text(capacity * count as f64)
            ),
            _ if self.leased() > capacity * 1.001 => format!(
                "Leases of before the change sum to {}, more than {of}: each shrinks at its next \
                 refresh.",
                rate_text(self.leased())
            ),
            _ if self.settings.demand() <= capacity => {
                if self.all_have_enough() {
                    format!(
                        "All Envoys get what they want: together {wants} of {of} requests per second."
                    )
                } else {
                    format!("Together the Envoys want {wants} of {of}: leases are about to grow.")
                }
            }
            _ => self.overload(&wants, &of),
        }
    }

    /// Says how the capacity is divided when more is wanted.
    fn overload(&self, wants: &str, of: &str) -> String {
        match self.settings.algorithm {
            Algorithm::ProportionalShare => format!(
                "Together the Envoys want {wants} of {of}. Each is sure of an equal part, {}; \
                 the parts that some leave go to the others in proportion to what else they \
                 want.",
                rate_text(self.settings.capacity / self.envoys.len() as f64)
            ),
            Algorithm::UsageShare => format!(
                "Together the Envoys want {wants} of {of}. Each gets a part in proportion to \
                 what it used."
            ),
            Algorithm::MaxRate => format!(
                "Together the Envoys want {wants} of {of}. Round by round, Envoys that are not \
                 busy give to those that are."
            ),
            _ => self.fair_share(wants, of),
        }
    }

    fn fair_share(&self, wants: &str, of: &str) -> String {
        let content: Vec<_> = self.content().collect();
        let most = rate_text(self.most());
        let rest = match content.as_slice() {
            [] => "No Envoy gets all that it wants".to_owned(),
            [one] => format!("{one} wants less and gets all of it"),
            [first @ .., last] => format!(
                "{} and {last} want less and get all of it",
                first.join(", ")
            ),
        };
        format!("Together the Envoys want {wants} of {of}: no Envoy gets more than {most}. {rest}.")
    }

    /// Returns the names of the Envoys that want something and get all of it.
    fn content(&self) -> impl Iterator<Item = &'static str> {
        let most = self.most();
        let is_content = move |envoy: &EnvoyStatus| {
            let is_below = envoy.has < most * 0.95 && envoy.has >= envoy.wants * ALL_BELOW_OTHERS;
            envoy.wants > 0.0 && (is_below || has_enough(envoy))
        };
        let named = self.envoys.iter().zip(NAMES);
        let content = named.filter(move |(envoy, _)| is_content(envoy));
        content.map(|(_, name)| name)
    }

    /// Returns the largest lease.
    fn most(&self) -> f64 {
        let leases = self.envoys.iter().map(|envoy| envoy.has);
        leases.fold(0.0, f64::max)
    }

    fn all_have_enough(&self) -> bool {
        let reached = self.envoys.iter().zip(&self.settings.envoys);
        let mut reached = reached.filter(|(_, chosen)| !chosen.is_cut);
        reached.all(|(envoy, _)| has_enough(envoy))
    }

    fn leased(&self) -> f64 {
        self.envoys.iter().map(|envoy| envoy.has).sum()
    }
}

// === free functions ===

/// Returns a rate in a few digits.
pub(crate) fn rate_text(rate: f64) -> String {
    amount_text("requests", rate)
}

/// Returns the state of an Envoy in a few words.
pub(crate) fn state_text(envoy: &EnvoyStatus) -> String {
    match envoy.lease_left {
        Some(left) => format!("lease, {} left", seconds(left)),
        None if envoy.is_pending => "asks for a lease".to_owned(),
        None if envoy.wants == 0.0 => "idle".to_owned(),
        None => format!("no lease: safe capacity {}", rate_text(envoy.rate)),
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64().ceil())
}

fn has_enough(envoy: &EnvoyStatus) -> bool {
    envoy.has >= envoy.wants * ALL
}

#[cfg(test)]
mod tests;
