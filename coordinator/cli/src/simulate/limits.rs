//! Limits of a coordinator's configuration, for a simulation.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value};
use tollgate_config::catalog::Catalog;
use tollgate_config::catalog::check::ConfigErrors;
use tollgate_config::{Config, Flags};
use tollgate_core::lease::Unit;
use tollgate_sim::limits::{LimitSource, PoolOfUnit, ScopeLimits, UnitLimit};
use tollgate_sim::scenario::ScenarioError;

/// Sections of a configuration that a scenario may have itself.
const SECTIONS: [&str; 3] = ["limits", "groups", "attach"];
/// Field that names a coordinator's configuration instead.
pub(super) const FILE: &str = "limits_file";

/// Limits of a catalog.
#[derive(Debug)]
struct CatalogLimits(Catalog);

// === impl CatalogLimits ===

impl LimitSource for CatalogLimits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let resolved = self.0.resolve(scope);
        let units = Unit::ALL.into_iter().filter_map(|unit| {
            let terms = resolved.terms(unit)?;
            let pool = terms.pool.map(|pool| PoolOfUnit {
                id: pool.pool.clone(),
                limit: pool.limit.clone(),
                weight: pool.weight,
            });
            let limit = terms.limit.clone();
            Some(UnitLimit { unit, limit, pool })
        });
        ScopeLimits {
            units: units.collect(),
            canonical: resolved.canonical.clone(),
            home: resolved.home().into(),
            limited: resolved.limited.clone(),
        }
    }
}

// === free functions ===

/// Takes the limits out of a mapping at a `path`: its own sections, or a file beside the scenario in
/// `folder`. None if it has neither.
pub(super) fn take(
    map: &mut Map<String, Value>,
    folder: &Path,
    path: &str,
) -> Result<Option<Rc<dyn LimitSource>>, Vec<ScenarioError>> {
    let file = map.remove(FILE);
    let own = SECTIONS.into_iter();
    let own = own.filter_map(|name| Some((name.to_owned(), map.remove(name)?)));
    let own: Map<String, Value> = own.collect();
    let wrong = |rule: String| {
        let field = format!("{path}{FILE}");
        vec![ScenarioError { field, rule }]
    };
    let config = match (file, own.is_empty()) {
        (None, true) => return Ok(None),
        (None, false) => {
            let text = Value::Object(own).to_string();
            Config::parse(&text).map_err(|errors| below(path, &errors))?
        }
        (Some(Value::String(file)), true) => {
            let flags = Flags {
                insecure_admin: true,
                insecure_grpc: true,
                ..Flags::default()
            };
            let config = Config::load(&folder.join(file), flags);
            config.map_err(|error| wrong(error.to_string()))?
        }
        (Some(Value::String(_)), false) => {
            let rule = "the limits are in that file, so limits, groups and attach cannot be here";
            return Err(wrong(rule.to_owned()));
        }
        (Some(other), _) => {
            let rule = format!("`{other}` is not the path of a coordinator's configuration");
            return Err(wrong(rule));
        }
    };
    if config.shares() {
        let rule = "its limits are in etcd: `tollgate config get` writes them into a file";
        return Err(wrong(rule.to_owned()));
    }
    let catalog = Catalog::new(config.catalog.clone());
    Ok(Some(Rc::new(CatalogLimits(catalog))))
}

/// Returns the errors of a part at a `path`, whose places in the scenario's file are others.
pub(super) fn below(path: &str, errors: &ConfigErrors) -> Vec<ScenarioError> {
    let errors = errors.0.iter().map(|error| ScenarioError {
        field: format!("{path}{}", error.field),
        rule: error.rule.clone(),
    });
    errors.collect()
}
