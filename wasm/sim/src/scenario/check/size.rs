//! Rules for what a simulation keeps in memory.

use super::{Check, DemandSpec, EnvoyGroup};
use crate::windows::Windows;

/// The most samples in the windows of all scopes: 160 MB.
const WINDOW_SAMPLES_MAX: u64 = 20_000_000;
/// The most scopes that all Envoys together can come to know, each of which takes some hundred bytes.
const KNOWN_MAX: u64 = 20_000_000;

// === impl Check ===

impl Check<'_> {
    pub(super) fn sizes(&mut self) {
        let scenario = self.scenario;
        let scopes = scenario.demand.iter().map(DemandSpec::scope_count);
        let scopes = scopes.fold(0, u64::saturating_add);
        let sample = scenario.sample.0;
        let len = Windows::samples(sample) as u64;
        let all = scopes.saturating_mul(len);
        self.ensure(all <= WINDOW_SAMPLES_MAX, "sample", || {
            format!(
                "{sample:?} makes windows of {len} samples for {scopes} scopes, in all {all}, more \
                 than {WINDOW_SAMPLES_MAX}"
            )
        });
        let known = scenario.envoys.iter().map(|group| self.known(group));
        let known = known.fold(0, u64::saturating_add);
        self.ensure(known <= KNOWN_MAX, "demand", || {
            format!(
                "makes all Envoys together know {known} scopes, more than {KNOWN_MAX}; fewer Envoys, \
                 fewer scopes or a smaller max_scopes make it less"
            )
        });
    }

    /// Returns how many scopes the Envoys of a group can come to know, in sum.
    fn known(&self, group: &EnvoyGroup) -> u64 {
        let asked = self.scenario.demand.iter().map(|demand| {
            let selection = &demand.envoys;
            let is_selected = selection.group.as_ref().is_none_or(|g| *g == group.name);
            let most = if is_selected { group.count } else { 0 };
            let envoys = selection.count.map_or(most, |count| count.min(most));
            u64::from(envoys).saturating_mul(demand.scope_count())
        });
        let most = u64::from(group.count).saturating_mul(group.max_scopes.into());
        asked.fold(0, u64::saturating_add).min(most)
    }
}
