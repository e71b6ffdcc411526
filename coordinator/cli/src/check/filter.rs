//! Configurations of the filter: JSON alone, or within an Envoy's configuration, checked by the filter's own parser.

use std::collections::BTreeSet;

use tollgate_filter::{Config, ConfigError};

use super::{Finding, Severity, counted};
use crate::located::{Node, Place, Shape, place_of};

/// The end of the type of Envoy's wasm filter, and of its dynamic modules.
const WASM_TYPE: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
const MODULE_TYPE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";

/// Configurations of filters in a file.
#[derive(Debug)]
pub(super) struct Filters {
    text: String,
    /// Each with the process that it is of: what shares a table.
    found: Vec<(String, Found)>,
}

/// A filter's configuration.
#[derive(Debug)]
enum Found {
    /// The file, or an object in it.
    Object(Node),
    /// JSON in a text, and the place of that.
    Text(String, Place),
}

// === impl Found ===

impl Found {
    fn json(&self) -> String {
        match self {
            Self::Object(node) => node.value.to_json().to_string(),
            Self::Text(text, _) => text.clone(),
        }
    }
}

// === impl Filters ===

impl Filters {
    /// Finds the configurations in a file; none if it is neither a filter's nor an Envoy's with one.
    pub(super) fn find(content: &[u8]) -> Option<Self> {
        let text = str::from_utf8(content).ok()?.to_owned();
        let Some(root) = Shape::parse(&text) else {
            // A filter's JSON that is none is still nothing for a coordinator.
            let is_filter = text.trim_start().starts_with('{') && text.contains("\"scopes\"");
            let start = Place { line: 1, column: 1 };
            let found = vec![(String::new(), Found::Text(text.clone(), start))];
            return is_filter.then_some(Self { text, found });
        };
        let is_filter = root.value.get("scopes").is_some() && root.value.get("limits").is_none();
        let found = if is_filter {
            vec![(String::new(), Found::Object(root))]
        } else {
            let mut found = Vec::new();
            search(&root, &mut found);
            found
        };
        (!found.is_empty()).then_some(Self { text, found })
    }

    /// Returns what is wrong with them, and where two of an Envoy contradict each other.
    pub(super) fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut earlier: Vec<(&str, Config)> = Vec::new();
        for (process, found) in &self.found {
            match Config::parse(found.json().as_bytes()) {
                Ok((config, _)) => {
                    let same = earlier.iter().filter(|(other, _)| other == process);
                    let conflicts = same.flat_map(|(_, first)| first.conflicts(&config));
                    let conflicts = BTreeSet::from_iter(conflicts).into_iter();
                    findings.extend(conflicts.map(|conflict| self.conflict(found, &conflict)));
                    earlier.push((process, config));
                }
                Err(error) => findings.extend(self.errors(found, &error)),
            }
        }
        findings
    }

    /// Returns what there is, if it is good.
    pub(super) fn summary(&self) -> String {
        let count = self.found.len();
        counted(count, "filter")
    }

    fn conflict(&self, found: &Found, conflict: &str) -> Finding {
        let place = match found {
            Found::Object(node) => place_of(node, "scopes"),
            Found::Text(_, outer) => *outer,
        };
        let rule = format!("{conflict}: an Envoy has one rule of each name");
        Finding {
            severity: Severity::Warning,
            line: Some(place.line),
            column: Some(place.column),
            field: Some("scopes".to_owned()),
            value: None,
            message: format!("{}:{}: {rule}", place.line, place.column),
            rule,
        }
    }

    fn errors(&self, found: &Found, error: &ConfigError) -> Vec<Finding> {
        let finding = |field: &str, value: Option<&String>, rule: String, message: String| {
            // A hint may follow the field.
            let path = field.split(' ').next().unwrap_or(field);
            let place = self.place(found, path, error);
            Finding {
                severity: Severity::Error,
                line: Some(place.line),
                column: Some(place.column),
                field: Some(path.to_owned()).filter(|path| !path.is_empty()),
                value: value.cloned(),
                rule,
                message: format!("{}:{}: {message}", place.line, place.column),
            }
        };
        let whole = error.to_string();
        match error {
            ConfigError::Syntax(_) => vec![finding("", None, whole.clone(), whole)],
            ConfigError::Unknown(fields) | ConfigError::UnknownCondition(fields) => {
                let one = |field: &String| {
                    let message = format!("{field} is not known");
                    finding(field, None, message.clone(), message)
                };
                fields.iter().map(one).collect()
            }
            ConfigError::Required { field, rule } => {
                vec![finding(field, None, (*rule).to_owned(), whole)]
            }
            ConfigError::Wrong { field, value, rule } => {
                vec![finding(field, Some(value), rule.clone(), whole)]
            }
        }
    }

    /// The place of the field at `path` in the file.
    fn place(&self, found: &Found, path: &str, error: &ConfigError) -> Place {
        let (text, outer) = match found {
            Found::Object(node) => return place_of(node, path),
            Found::Text(text, outer) => (text, *outer),
        };
        let inner = match (error, Shape::parse(text)) {
            (ConfigError::Syntax(error), _) => Place {
                line: error.line() as u64,
                column: error.column() as u64,
            },
            (_, Some(node)) => place_of(&node, path),
            (_, None) => return outer,
        };
        self.within_block(text, outer, inner).unwrap_or(outer)
    }

    /// The place in the file of a place in `text`, which begins at `outer`, if it is a block of lines there.
    fn within_block(&self, text: &str, outer: Place, inner: Place) -> Option<Place> {
        let first = text.lines().next()?;
        let mut lines = (1..).zip(self.text.lines());
        let (line, found) = lines.find(|(line, found)| {
            *line >= outer.line && found.trim_start() == first.trim_start()
        })?;
        let indent = found.len().checked_sub(first.len())?;
        Some(Place {
            line: line + inner.line.saturating_sub(1),
            column: inner.column + indent as u64,
        })
    }
}

// === free functions ===

/// Adds the configurations of Tollgate's filters that are in `node`.
fn search(node: &Node, found: &mut Vec<(String, Found)>) {
    let kind = node.value.get("@type").and_then(|kind| kind.value.as_str());
    let kind = kind.unwrap_or_default();
    let config = if kind.ends_with(WASM_TYPE) {
        let config = node.value.get("config");
        config.and_then(|config| config.value.get("configuration"))
    } else if kind.ends_with(MODULE_TYPE) {
        let name = node.value.get("filter_name");
        let name = name.and_then(|name| name.value.as_str());
        node.value
            .get("filter_config")
            .filter(|_| name == Some("tollgate"))
    } else {
        None
    };
    // Envoy takes a text, an object, or either within a message of that type.
    let config = config.map(|config| config.value.get("value").unwrap_or(config));
    if let Some(config) = config {
        let at = Place {
            line: config.at.line(),
            column: config.at.column(),
        };
        match config.value.as_str() {
            // Wasm filters of others have other texts.
            Some(text) if kind.ends_with(MODULE_TYPE) || text.contains("\"scopes\"") => {
                found.push((process_of(node), Found::Text(text.to_owned(), at)));
            }
            None if config.value.get("scopes").is_some() => {
                found.push((process_of(node), Found::Object(config.clone())));
            }
            _ => {}
        }
    }
    for child in node.value.children() {
        search(child, found);
    }
}

/// The process of a filter: all modules are one, wasm filters one for each `vm_id` or, where that is blank, `root_id`.
fn process_of(filter: &Node) -> String {
    let config = filter.value.get("config");
    let text = |node: Option<&Node>| Some(node?.value.as_str()?.to_owned());
    let vm_id = text(config.and_then(|config| config.value.get("vm_config")?.value.get("vm_id")));
    let root_id = text(config.and_then(|config| config.value.get("root_id")));
    match (config, vm_id.filter(|id| !id.is_empty())) {
        (None, _) => "module".to_owned(),
        (_, Some(vm_id)) => format!("vm {vm_id}"),
        (_, None) => format!("root {}", root_id.unwrap_or_default()),
    }
}
