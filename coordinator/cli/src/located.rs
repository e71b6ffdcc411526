//! YAML and JSON of any form, with the place of each value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tollgate_config::catalog::spec::LocatedValue;

/// A value, and its place.
pub(crate) type Node = LocatedValue<Shape>;

/// A value of any form.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Object(Vec<(String, Node)>),
    List(Vec<Node>),
    Scalar(Value),
}

/// Place in a text, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

// === impl Shape ===

impl Shape {
    /// Reads YAML or JSON.
    pub(crate) fn parse(text: &str) -> Option<Node> {
        serde_saphyr::from_str(text).ok()
    }

    /// The field called `name` of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        let Self::Object(fields) = self else {
            return None;
        };
        let field = fields.iter().find(|(known, _)| known == name);
        field.map(|(_, value)| value)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Scalar(value) => value.as_str(),
            _ => None,
        }
    }

    /// The values in it.
    pub(crate) fn children(&self) -> Vec<&Node> {
        match self {
            Self::Object(fields) => fields.iter().map(|(_, value)| value).collect(),
            Self::List(values) => values.iter().collect(),
            Self::Scalar(_) => Vec::new(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(name, value)| (name.clone(), value.value.to_json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Self::List(values) => values.iter().map(|value| value.value.to_json()).collect(),
            Self::Scalar(value) => value.clone(),
        }
    }
}

/// Returns the place of the field at `path`, such as `scopes[0].when.path`, or of the last step to it that is there.
pub(crate) fn place_of(root: &Node, path: &str) -> Place {
    let mut node = root;
    let steps = path
        .split(['.', '['])
        .map(|step| step.trim_end_matches(']'));
    for step in steps.filter(|step| !step.is_empty()) {
        let next = match &node.value {
            Shape::List(values) => step.parse().ok().and_then(|index: usize| values.get(index)),
            shape => shape.get(step),
        };
        match next {
            Some(next) => node = next,
            None => break,
        }
    }
    Place {
        line: node.at.line(),
        column: node.at.column(),
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Shape::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Shape::List(values))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar(Value::Null))
    }
}
