//! Cache of resolved scopes for the driver, which needs the same ones again and again.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Catalog, ResolvedScope};

/// Resolves scopes by the newest catalog, and caches them until that changes.
#[derive(Debug)]
pub struct Resolver {
    newest: watch::Receiver<Arc<Catalog>>,
    catalog: Arc<Catalog>,
    known: HashMap<Arc<str>, ResolvedScope>,
    known_max: usize,
}

// === impl Resolver ===

impl Resolver {
    /// Creates a resolver that follows `newest` and caches at most `known_max` scopes.
    pub fn new(mut newest: watch::Receiver<Arc<Catalog>>, known_max: usize) -> Self {
        let catalog = newest.borrow_and_update().clone();
        Self {
            newest,
            catalog,
            known: HashMap::new(),
            known_max,
        }
    }

    /// Switches to the newest catalog. Returns whether there was a newer one.
    pub fn update(&mut self) -> bool {
        // An error means that the writer has ended.
        let changed = self.newest.has_changed().unwrap_or(false);
        if changed {
            self.catalog = self.newest.borrow_and_update().clone();
            self.known.clear();
        }
        changed
    }

    /// Resolves `scope`. A cached scope costs one look-up in a hash map; another one look-ups in
    /// trees and in all globs of the file.
    pub fn resolve(&mut self, scope: &Arc<str>) -> &ResolvedScope {
        // A full cache is cleared: cheaper than to keep an order, and as rare as a fleet that uses
        // more scopes than the lease table may have.
        if self.known.len() >= self.known_max && !self.known.contains_key(scope) {
            self.known.clear();
        }
        let resolved = self.known.entry(scope.clone());
        resolved.or_insert_with_key(|scope| self.catalog.resolve(scope))
    }
}
