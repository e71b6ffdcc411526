//! All scopes that are asked for, by number.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::limits::LimitTable;
use crate::scenario::DemandSpec;

/// The most scopes whose samples are kept, of those that are asked for and of those that these share.
const WATCHED_MAX: usize = 12;

/// Scopes of a scenario, and the rules of Envoys that they belong to.
///
/// First stand those that are asked for, then those whose capacity these use as well, then pools.
#[derive(Debug)]
pub(crate) struct ScopeTable {
    scopes: Vec<Scope>,
    /// Number of those that are asked for.
    asked: usize,
    /// Ids of pools.
    pools: Vec<Arc<str>>,
    by_id: HashMap<Arc<str>, u32, FixedState>,
    /// First parts of the ids, in the order of the rules.
    rules: Vec<String>,
}

/// Scope of some demand.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) id: Arc<str>,
    /// Place of its rule.
    pub(crate) rule: usize,
}

// === impl ScopeTable ===

impl ScopeTable {
    pub(crate) fn new() -> Self {
        Self {
            scopes: Vec::new(),
            asked: 0,
            pools: Vec::new(),
            by_id: HashMap::with_hasher(FixedState::with_seed(0)),
            rules: Vec::new(),
        }
    }

    /// Adds the scopes of a demand, and returns their numbers.
    pub(crate) fn add_all(&mut self, demand: &DemandSpec) -> Vec<u32> {
        if let Some(spread) = &demand.scopes {
            let ids = (0..spread.count).map(|k| format!("{}{k}", spread.prefix));
            return ids.map(|id| self.add(&id)).collect();
        }
        let scope = demand.scope.iter();
        scope.map(|id| self.add(id)).collect()
    }

    fn add(&mut self, id: &str) -> u32 {
        if let Some(known) = self.by_id.get(id) {
            return *known;
        }
        let number = self.scopes.len() as u32;
        let id: Arc<str> = id.into();
        let name = id.split('/').next().unwrap_or_default();
        let known = self.rules.iter().position(|rule| rule == name);
        let rule = known.unwrap_or_else(|| {
            self.rules.push(name.to_owned());
            self.rules.len() - 1
        });
        self.by_id.insert(id.clone(), number);
        self.scopes.push(Scope { id, rule });
        self.asked = self.scopes.len();
        number
    }

    /// Adds the scopes and pools whose capacity the others use as well, after all demand.
    pub(crate) fn add_shared(&mut self, limits: &LimitTable) {
        let mut scopes: Vec<Arc<str>> = self.scopes.iter().map(|scope| scope.id.clone()).collect();
        // A tenant that its namespaces use may be a member of a pool.
        while !scopes.is_empty() {
            let (mut shared, mut pools) = (BTreeSet::new(), BTreeSet::new());
            limits.look_at_all(&scopes, |limits| {
                if !self.by_id.contains_key(&limits.canonical) {
                    shared.insert(limits.canonical.clone());
                }
                let of_units = limits.units.iter().filter_map(|unit| unit.pool.as_ref());
                pools.extend(of_units.map(|pool| pool.id.scope.clone()));
            });
            for id in &shared {
                self.by_id.insert(id.clone(), self.scopes.len() as u32);
                // No request is for it alone, so it needs no rule.
                self.scopes.push(Scope {
                    id: id.clone(),
                    rule: 0,
                });
            }
            self.pools.extend(pools);
            scopes = shared.into_iter().collect();
        }
        self.pools.sort_unstable();
        self.pools.dedup();
    }

    /// Returns the number of scopes.
    pub(crate) fn len(&self) -> usize {
        self.scopes.len()
    }

    /// Returns the number of scopes that are asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked
    }

    /// Returns the number of scopes and pools.
    pub(crate) fn node_count(&self) -> usize {
        self.scopes.len() + self.pools.len()
    }

    /// Returns the ids of pools, whose numbers come after those of scopes.
    pub(crate) fn pools(&self) -> &[Arc<str>] {
        &self.pools
    }

    /// Returns the number of the pool called `id`.
    pub(crate) fn find_pool(&self, id: &str) -> Option<usize> {
        let place = self.pools.binary_search_by(|pool| (**pool).cmp(id)).ok()?;
        Some(self.scopes.len() + place)
    }

    /// Returns the id of the scope or pool of a number.
    pub(crate) fn id(&self, number: usize) -> &str {
        match self.scopes.get(number) {
            Some(scope) => &scope.id,
            None => &self.pools[number - self.scopes.len()],
        }
    }

    /// Returns the numbers of those whose samples are kept.
    pub(crate) fn watched(&self) -> Vec<usize> {
        let asked = (0..self.asked).take(WATCHED_MAX);
        let shared = (self.asked..self.node_count()).take(WATCHED_MAX);
        asked.chain(shared).collect()
    }

    pub(crate) fn get(&self, number: u32) -> &Scope {
        &self.scopes[number as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.iter()
    }

    /// Returns the number of the scope called `id`, if there is any.
    pub(crate) fn find(&self, id: &str) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn rules(&self) -> &[String] {
        &self.rules
    }
}

// === impl Scope ===

impl Scope {
    /// Returns the second part of its id.
    pub(crate) fn key(&self) -> &str {
        self.id.split_once('/').map_or("", |(_, key)| key)
    }
}
