//! Inspection of a simulation by laws: which resources they look at, and a planted defect.

use std::collections::BTreeMap;

use tollgate_core::lease::ResourceId;

use crate::defect::Defect;
use crate::limits::LimitTable;
use crate::scopes::ScopeTable;

/// Resources whose use by processes is observed.
#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) defect: Option<Defect>,
    pub(crate) resources: Vec<InspectedResource>,
}

/// Resource whose use is observed: one with a limit, at the start.
#[derive(Clone, Debug)]
pub(crate) struct InspectedResource {
    pub(crate) id: ResourceId,
    /// Number of its scope.
    pub(crate) number: Option<u32>,
    /// Numbers of the scopes whose requests use it.
    pub(crate) members: Vec<u32>,
}

// === impl Inspection ===

impl Inspection {
    /// Returns the inspection of all limited resources that `scopes` use.
    pub(crate) fn new(scopes: &ScopeTable, limits: &LimitTable, defect: Option<Defect>) -> Self {
        let mut members: BTreeMap<ResourceId, Vec<u32>> = BTreeMap::new();
        for (number, scope) in (0..).zip(scopes.iter().take(scopes.asked())) {
            let canonical = limits.of(&scope.id).canonical.clone();
            let shared = (canonical != scope.id).then_some(canonical);
            for id in std::iter::once(&scope.id).chain(&shared) {
                let of_scope = limits.of(id);
                let units = of_scope.units.iter();
                for unit in units.filter(|unit| !unit.limit.capacity.is_unlimited()) {
                    let (scope, unit) = (id.clone(), unit.unit);
                    let using = members.entry(ResourceId { scope, unit }).or_default();
                    using.push(number);
                }
            }
        }
        let resources = members.into_iter().map(|(id, members)| InspectedResource {
            number: scopes.find(&id.scope),
            id,
            members,
        });
        Self {
            defect,
            resources: resources.collect(),
        }
    }
}
