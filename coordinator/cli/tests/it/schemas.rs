//! The JSON schemas of both configuration files, held against the parsers.

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use tollgate_config::{Config, Flags, SourceFile};
use tollgate_core::lease::Unit;

mod fields;
mod wrong_coordinators;
mod wrong_filters;

const COORDINATOR: &str = include_str!("../../../../envoy/coordinator.schema.json");
const FILTER: &str = include_str!("../../../../envoy/filter.schema.json");

fn schema(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn validator(text: &str) -> Validator {
    jsonschema::draft202012::new(&schema(text)).unwrap()
}

/// Reads YAML or JSON, as editors do.
fn value(text: &str) -> Option<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).ok()
}

/// Parses a coordinator's file, which may listen anywhere.
fn parse(text: &str) -> Result<Config, String> {
    let source = SourceFile {
        path: PathBuf::from("tollgate.yaml"),
        content: text.into(),
    };
    let flags = Flags {
        insecure_admin: true,
        insecure_grpc: true,
        ..Flags::default()
    };
    Config::of_file(source, flags).map_err(|error| error.to_string())
}

/// Returns whether the filter takes `json` and knows each field of it.
fn filter_takes(json: &str) -> bool {
    let parsed = tollgate_filter::Config::parse(json.as_bytes());
    parsed.is_ok_and(|(_, unknown)| unknown.is_empty())
}

/// The pages, YAML and JSON files below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let of_path = |path: PathBuf| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    };
    let files = paths.flat_map(of_path);
    let is_text = |path: &PathBuf| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        matches!(kind, Some("md" | "yaml" | "yml" | "json"))
    };
    files.filter(is_text).collect()
}

/// The blocks of code on a page, or all of another file, document by document.
fn documents(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let texts = if path.extension().is_some_and(|kind| kind == "md") {
        blocks(&text)
    } else {
        vec![text]
    };
    let documents = texts.iter().flat_map(|text| text.split("\n---\n"));
    documents.map(str::to_owned).collect()
}

/// The blocks of YAML and JSON on `page`, without their indentation.
fn blocks(page: &str) -> Vec<String> {
    let mut lines = page.lines();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let fence = line.trim_start();
        if !["```yaml", "```json"].contains(&fence) {
            continue;
        }
        let indent = line.len() - fence.len();
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let block = block.map(|line| line.get(indent..).unwrap_or_default());
        blocks.push(block.collect::<Vec<_>>().join("\n"));
    }
    blocks
}

/// Adds the texts in `value`, and its objects that could be a filter's configuration.
fn texts_in(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(':') => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| texts_in(value, texts)),
        Value::Object(fields) => {
            if fields.contains_key("scopes") {
                texts.push(value.to_string());
            }
            fields.values().for_each(|value| texts_in(value, texts));
        }
        _ => {}
    }
}

#[test]
fn every_configuration_in_the_repository_fits_its_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (coordinator, filter) = (validator(COORDINATOR), validator(FILTER));
    let (mut coordinators, mut filters) = (0, 0);
    let folders = ["docs", "envoy", "coordinator/packaging"];
    let paths = folders.iter().flat_map(|folder| files(&root.join(folder)));
    for path in paths.chain([root.join("README.md")]) {
        let mut texts = documents(&path);
        for text in texts.clone() {
            let values = value(&text);
            values.iter().for_each(|value| texts_in(value, &mut texts));
        }
        for text in texts {
            let (valid, count) = match (parse(&text), filter_takes(&text)) {
                (Ok(_), _) => (&coordinator, &mut coordinators),
                (_, true) => (&filter, &mut filters),
                _ => continue,
            };
            let value = value(&text).unwrap();
            let errors: Vec<String> = valid.iter_errors(&value).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}\n{text}", path.display());
            *count += 1;
        }
    }
    assert!(
        coordinators >= 20 && filters >= 30,
        "{coordinators} of coordinators, {filters} of filters"
    );
}

/// The defaults of the fields in `properties`.
fn defaults(properties: &Value) -> Map<String, Value> {
    let fields = properties.as_object().unwrap().iter();
    let defaults = fields.filter_map(|(name, field)| Some((name, field.get("default")?)));
    defaults
        .map(|(name, default)| (name.clone(), default.clone()))
        .collect()
}

#[test]
fn the_defaults_of_the_filters_schema_are_those_of_its_parser() {
    let schema = schema(FILTER);
    let mut rule = defaults(&schema["$defs"]["rule"]["properties"]);
    let mut all = defaults(&schema["properties"]);
    assert!(rule.len() >= 10 && all.len() >= 13);
    let required = json!({"name": "a", "key": {"constant": "x"}});
    let plain = json!({"coordinator": "c", "scopes": [required]});
    rule.extend(required.as_object().unwrap().clone());
    all.extend(plain.as_object().unwrap().clone());
    all.insert("scopes".to_owned(), json!([rule]));
    let parse = |json: Value| tollgate_filter::Config::parse(json.to_string().as_bytes());
    assert_eq!(parse(all.into()).unwrap(), parse(plain).unwrap());
}

#[test]
fn the_defaults_of_the_coordinators_schema_are_those_of_its_parser() {
    let schema = schema(COORDINATOR);
    let sections = schema["properties"].as_object().unwrap().iter();
    let of_section = |(name, section): (&String, &Value)| {
        let defaults = defaults(section.get("properties")?);
        (!defaults.is_empty()).then(|| (name.clone(), defaults.into()))
    };
    let mut all: Map<String, Value> = sections
        // These need more than their defaults.
        .filter(|(name, _)| !["cluster", "parent"].contains(&name.as_str()))
        .filter_map(of_section)
        .collect();
    assert_eq!(all.len(), 4);
    let named = [
        "lease",
        "refresh",
        "min_refresh",
        "headroom",
        "reserve",
        "algorithm",
    ];
    let default = |name: &str| (name.to_owned(), schema["$defs"][name]["default"].clone());
    let mut unit: Map<String, Value> = named.map(default).into_iter().collect();
    unit.insert("rate".to_owned(), json!(5));
    all.insert(
        "limits".to_owned(),
        json!([{"match": "a", "requests": unit}]),
    );
    let all = parse(&Value::from(all).to_string()).unwrap();
    let plain = parse("limits: [{match: a, requests: {rate: 5}}]").unwrap();
    assert_eq!(all.listen, plain.listen);
    assert_eq!(all.admin, plain.admin);
    assert_eq!(all.bounds, plain.bounds);
    assert_eq!(all.catalog.bounds, plain.catalog.bounds);
    assert_eq!(all.connections, plain.connections);
    let [all, plain] = [&all, &plain].map(|config| {
        let limit = config.catalog.limits.exact("a").unwrap();
        limit.limits.get(Unit::Requests)
    });
    assert_eq!(all, plain);
}
