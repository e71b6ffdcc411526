//! All scopes that are asked for, by number.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::scenario::DemandSpec;

/// Scopes of a scenario, and the rules of Envoys that they belong to.
#[derive(Debug)]
pub(crate) struct ScopeTable {
    scopes: Vec<Scope>,
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
        number
    }

    pub(crate) fn len(&self) -> usize {
        self.scopes.len()
    }

    pub(crate) fn get(&self, number: u32) -> &Scope {
        &self.scopes[number as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.iter()
    }

    /// Returns the number of the scope called `id`, if any demand names it.
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
