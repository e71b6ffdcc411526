//! YAML document whose values know their places, so that each error can name its line.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::UserMessageFormatter;
use tollgate_config::catalog::spec::LocatedValue;
use tollgate_sim::scenario::ScenarioError;

/// Value of a document.
#[derive(Debug)]
enum Tree {
    Scalar(Value),
    List(Vec<LocatedValue<Self>>),
    Mapping(Vec<(String, LocatedValue<Self>)>),
}

/// Document.
#[derive(Debug, Default)]
pub(super) struct Document(Tree);

/// Error of a document, with its line and column where they are known.
#[derive(Debug)]
pub(super) struct DocumentError {
    place: Option<(u64, u64)>,
    text: String,
}

struct TreeVisitor;

// === impl Document ===

impl Document {
    /// Reads the document's text.
    pub(super) fn read(text: &str) -> Result<Self, DocumentError> {
        let options = serde_saphyr::options! { with_snippet: false };
        let root = serde_saphyr::from_str_with_options(text, options);
        root.map(Self)
            .map_err(|error| DocumentError::of_yaml(&error))
    }

    /// Returns the value without the places.
    pub(super) fn value(&self) -> Value {
        self.0.value()
    }

    /// Returns the value of a field.
    pub(super) fn value_of(&self, field: &str) -> Option<Value> {
        let (value, whole) = self.find(field)?;
        whole.then(|| value.value.value())
    }

    /// Returns `error` with the place of its field, or of the deepest that there is on the way to it.
    pub(super) fn located(&self, error: &ScenarioError) -> DocumentError {
        let found = self.find(&error.field).map(|(value, _)| value.at);
        let found = found.filter(|at| at.line() > 0);
        DocumentError {
            place: found.map(|at| (at.line(), at.column())),
            text: match error.field.is_empty() {
                true => error.rule.clone(),
                false => error.to_string(),
            },
        }
    }

    /// Returns the deepest value on the way to a field, and whether that is the field's.
    fn find(&self, field: &str) -> Option<(&LocatedValue<Tree>, bool)> {
        let mut found: Option<&LocatedValue<Tree>> = None;
        for step in field.split(['.', '[']) {
            let tree = found.map_or(&self.0, |found| &found.value);
            let below = match tree {
                Tree::Scalar(_) => None,
                Tree::List(items) => step
                    .strip_suffix(']')
                    .and_then(|index| items.get(index.parse::<usize>().ok()?)),
                Tree::Mapping(fields) => {
                    let mut fields = fields.iter();
                    fields
                        .find(|(name, _)| name == step)
                        .map(|(_, value)| value)
                }
            };
            match below {
                Some(below) => found = Some(below),
                None => return found.map(|found| (found, false)),
            }
        }
        found.map(|found| (found, true))
    }
}

// === impl DocumentError ===

impl DocumentError {
    /// Returns the error of a text that is no YAML.
    fn of_yaml(error: &serde_saphyr::Error) -> Self {
        let place = error.location().filter(|at| at.line() > 0);
        let text = match error {
            serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
                format!("{}: is here twice", key.as_deref().unwrap_or("a field"))
            }
            // The place stands behind the library's text as well.
            error => {
                let text = error.render_with_formatter(&UserMessageFormatter);
                let text = text
                    .rsplit_once(" at line ")
                    .map_or(&*text, |(text, _)| text);
                format!("is no YAML: {text}")
            }
        };
        Self {
            place: place.map(|at| (at.line(), at.column())),
            text,
        }
    }

    /// Returns an error of no place.
    pub(super) fn nowhere(text: impl fmt::Display) -> Self {
        Self {
            place: None,
            text: text.to_string(),
        }
    }

    /// Returns the error as one of `file`: `fleet.yaml:7:22: events[0].at: …`.
    pub(super) fn of_file(&self, file: &str) -> String {
        match self.place {
            Some((line, column)) => format!("{file}:{line}:{column}: {}", self.text),
            None => format!("{file}: {}", self.text),
        }
    }
}

// === impl Tree ===

impl Tree {
    fn value(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(items) => {
                let items = items.iter().map(|item| item.value.value());
                Value::Array(items.collect())
            }
            Self::Mapping(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(name, field)| (name.clone(), field.value.value()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::Scalar(Value::Null)
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TreeVisitor)
    }
}

// === impl TreeVisitor ===

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::default())
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Tree, D::Error> {
        Tree::deserialize(from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = from.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Mapping(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_paths() {
        let text = "duration: 10s\nevents:\n  - at: 5s\n    kill: {for: 1s}\n  - {at: 7s}\n";
        let document = Document::read(text).unwrap();
        let rows = [
            ("duration", "f:1:11: "),
            ("events[0].kill.for", "f:4:17: "),
            ("events[1].at", "f:5:10: "),
            // Of a field that is missing it is the place where it belongs.
            ("events[1].kill.for", "f:5:5: "),
            ("sample", "f: "),
        ];
        for (field, want) in rows {
            let error = ScenarioError {
                field: field.to_owned(),
                rule: "wrong".to_owned(),
            };
            let text = document.located(&error).of_file("f");
            assert_eq!(text, format!("{want}{field}: wrong"));
        }
        assert_eq!(document.value_of("events[1].at"), Some("7s".into()));
        assert_eq!(document.value_of("events[1].to"), None);
        assert_eq!(document.value()["events"][0]["kill"]["for"], "1s");
    }

    #[test]
    fn a_text_that_is_no_yaml_is_refused_with_its_line() {
        let rows = [
            ("a: 1\nb: [1\n", "f:2:4: is no YAML: "),
            ("a: 1\na: 2\n", "f:2:1: a: is here twice"),
        ];
        for (text, want) in rows {
            let error = Document::read(text).unwrap_err().of_file("f");
            assert!(error.starts_with(want), "{error}");
        }
    }
}
