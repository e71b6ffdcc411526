//! Scenario: a fleet, its coordinators, their network, the demand, and what goes wrong.
//!
//! The types are what a user writes, for any format that serde knows; [`Scenario::check`] has the
//! rules that values must keep to each other. Limits are no part of it: a simulation is given them
//! as [`LimitSource`](crate::limits::LimitSource)s, so that a file of a real coordinator can be one.

use serde::{Deserialize, Serialize};

mod check;
mod cost;
mod demand;
mod event;
mod fleet;
mod network;
mod quantity;

pub use self::check::ScenarioError;
pub use self::demand::{
    Arrivals, Bulky, DemandSpec, InTurn, OnOff, Program, Ramp, Routing, ScopeSpread, Settles,
    Spike, Trace, Walk,
};
pub use self::event::{
    Change, Crash, Cut, DemandChange, Deploy, Direction, EventSpec, HandOver, Kill, LoseTerm,
    Mishaps, Scale, Selection, Stop, Trap,
};
pub use self::fleet::{CoordinatorSpec, EnvoyGroup, FirstTerm, NoLease};
pub use self::network::NetworkSpec;
pub use self::quantity::{Amount, QuantityError, Share, Span};

/// A fleet and its course.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Name, for reports.
    pub name: String,
    /// A sentence for reports.
    pub description: String,
    /// Length of the run in virtual time.
    pub duration: Span,
    /// Seed of every random choice.
    pub seed: u64,
    /// Time between two samples.
    pub sample: Span,
    /// Time after which samples count for the figures: the start-up before it does not.
    pub measure_from: Span,
    /// Groups of Envoys.
    pub envoys: Vec<EnvoyGroup>,
    /// Coordinators; one without a parent if none is named.
    pub coordinators: Vec<CoordinatorSpec>,
    /// Network between them.
    pub network: NetworkSpec,
    /// Whether coordinators tell those below them when their shares move, so that these ask at once.
    pub nudges: bool,
    /// Demand; several entries add up.
    pub demand: Vec<DemandSpec>,
    /// Planned events.
    pub events: Vec<EventSpec>,
    /// Random events.
    pub mishaps: Option<Mishaps>,
}

// === impl Scenario ===

impl Scenario {
    /// Returns the scenario with a coordinator, if it names none.
    pub(crate) fn completed(mut self) -> Self {
        if self.coordinators.is_empty() {
            self.coordinators.push(CoordinatorSpec::default());
        }
        self
    }

    /// Returns the number of Envoys among which `selection` chooses.
    pub(crate) fn selectable(&self, selection: &Selection) -> usize {
        let group = selection.group.as_ref();
        let groups = self.envoys.iter();
        let groups = groups.filter(|envoys| group.is_none_or(|name| envoys.name == *name));
        let counts = groups.map(|group| group.count as usize);
        counts.fold(0, usize::saturating_add)
    }

    /// Returns the most Envoys that there are at a time.
    pub fn envoy_count(&self) -> usize {
        let counts = self.envoys.iter().map(|group| self.places(group) as usize);
        counts.fold(0, usize::saturating_add)
    }

    /// Returns the most Envoys that there are of a group at a time.
    pub(crate) fn places(&self, group: &EnvoyGroup) -> u32 {
        let scales = self.events.iter().filter_map(|event| match &event.change {
            Change::Scale(scale) if scale.group == group.name => Some(scale.to),
            _ => None,
        });
        scales.fold(group.count, u32::max)
    }
}

impl Default for Scenario {
    /// Returns a scenario in which nothing happens.
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            duration: Span::default(),
            seed: 0,
            sample: Span::from_secs(1),
            measure_from: Span::default(),
            envoys: Vec::new(),
            coordinators: Vec::new(),
            network: NetworkSpec::default(),
            nudges: true,
            demand: Vec::new(),
            events: Vec::new(),
            mishaps: None,
        }
    }
}
