//! What is wrong with the shape of a file, said of the field that has it.
//!
//! The reader says where it stopped and why, and [`serde_path_to_error`] on which way. What both
//! leave out is what stands there and, because [`Placed`] hides them, the keys of maps: these are
//! looked up in the same text, read once more without any shape.

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::{Path, Segment};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, NonFiniteFloatPolicy, Options};

use super::check::join;
use super::error::{ConfigError, Problem};
use super::raw::{ALIAS_DEPTH_MAX, NODES_MAX};
use crate::catalog::spec::Placed;

/// The longest value that is quoted, in characters.
const QUOTED_MAX: usize = 40;

/// The most events that aliases may repeat when a file is read without any shape. Of a file with
/// more, errors do not name the keys of maps.
const LOOKUP_REPLAY_MAX: usize = 100_000;

/// What stands in a file, whatever it means.
#[derive(Debug)]
enum Node {
    Single(String),
    List(Vec<Self>),
    Mapping(Vec<(Placed<Self>, Self)>),
}

/// Takes everything.
struct NodeVisitor;

/// A field that the reader names itself.
#[derive(Debug)]
enum Key<'a> {
    Unknown(&'a str),
    Twice(Option<&'a str>),
    Missing(&'a str),
}

// === impl Node ===

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

impl Node {
    /// What stands below, at `index`.
    fn at(&self, index: usize) -> Option<&Self> {
        match self {
            Self::List(nodes) => nodes.get(index),
            Self::Single(_) | Self::Mapping(_) => None,
        }
    }

    /// What stands below, as `key`.
    fn field(&self, key: &str) -> Option<&Self> {
        let named = |(name, _): &&(Placed<Self>, Self)| name.value.name() == Some(key);
        let entry = self.entries().iter().find(named);
        entry.map(|(_, node)| node)
    }

    /// The last entry that does not begin after `at`, and its name.
    fn around(&self, at: Location) -> Option<(&str, &Self)> {
        let place = |of: Location| (of.line(), of.column());
        let before = |(name, _): &&(Placed<Self>, Self)| place(name.at) <= place(at);
        let (name, node) = self.entries().iter().rfind(before)?;
        Some((name.value.name()?, node))
    }

    fn entries(&self) -> &[(Placed<Self>, Self)] {
        match self {
            Self::Mapping(entries) => entries,
            Self::Single(_) | Self::List(_) => &[],
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Single(text) => Some(text),
            Self::List(_) | Self::Mapping(_) => None,
        }
    }
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Single(text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Single(value.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Single(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Single(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Single(number.to_string()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Single(String::new()))
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = seq.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Mapping(entries))
    }
}

// === impl Key ===

impl<'a> Key<'a> {
    fn of(error: &'a Error) -> Option<Self> {
        Some(match error {
            Error::SerdeUnknownField { field, .. } => Self::Unknown(field),
            Error::DuplicateMappingKey { key, .. } => Self::Twice(key.as_deref()),
            Error::SerdeMissingField { field, .. } => Self::Missing(field),
            _ => return None,
        })
    }
}

// === free functions ===

/// Reads `text`, or says what is wrong with its shape.
pub(super) fn read<T: DeserializeOwned>(
    text: &str,
    options: impl Fn(DuplicateKeyPolicy) -> Options,
) -> Result<Option<T>, ConfigError> {
    let mut path = None;
    let strict = options(DuplicateKeyPolicy::Error);
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, strict, |reader| {
        serde_path_to_error::deserialize(reader).map_err(|error| {
            path = Some(error.path().clone());
            error.into_inner()
        })
    });
    read.map_err(|error| {
        // An error in repeated values has the place of the alias: that is where they do not fit.
        let at = error.location().unwrap_or(Location::UNKNOWN);
        let error = original(&error);
        // A later one of the same name is the one that stands where the error is.
        let mut options = options(DuplicateKeyPolicy::LastWins);
        // What is no number of ours elsewhere is no reason not to find this.
        options.non_finite_float_policy = NonFiniteFloatPolicy::AsString;
        // Here every value is kept, so that aliases could need a lot of memory.
        options.alias_limits.max_total_replayed_events = LOOKUP_REPLAY_MAX;
        let document: Option<Node> = serde_saphyr::from_str_with_options(text, options).ok();
        let steps = path.iter().flat_map(Path::iter);
        let (field, node) = find(steps, Key::of(error), document.as_ref(), at);
        let problem = Problem::Shape(said(error, &field, node));
        // A last step without a name leads into what stands there.
        ConfigError::new(at, field.trim_end_matches(".?"), problem)
    })
}

/// The error itself, where the reader wraps it into the places of an alias and its anchor.
fn original(mut error: &Error) -> &Error {
    while let Error::AliasError { error: inner, .. } = error {
        error = inner;
    }
    error
}

/// The way to the field at fault, and what stands there as far as it has a name.
fn find<'a>(
    steps: impl Iterator<Item = &'a Segment>,
    key: Option<Key<'_>>,
    document: Option<&'a Node>,
    at: Location,
) -> (String, Option<&'a Node>) {
    // That of a place, see `Placed`; no field of ours is called so.
    let hidden = |step: &&Segment| matches!(step, Segment::Map { key } if key == "value");
    let mut steps: Vec<&Segment> = steps.filter(|step| !hidden(step)).collect();
    let name = match key {
        Some(Key::Unknown(name)) => {
            steps.pop_if(|step| matches!(step, Segment::Map { key } if key == name));
            Some(name)
        }
        Some(Key::Twice(name)) => {
            steps.pop_if(|step| matches!(step, Segment::Unknown));
            name
        }
        Some(Key::Missing(name)) => Some(name),
        None => None,
    };
    let mut field = String::new();
    let mut node = document;
    for step in steps {
        match step {
            Segment::Seq { index } => {
                field.push_str(&format!("[{index}]"));
                node = node.and_then(|node| node.at(*index));
            }
            Segment::Map { key } | Segment::Enum { variant: key } => {
                field = join(&field, key);
                node = node.and_then(|node| node.field(key));
            }
            Segment::Unknown => {
                let entry = node.and_then(|node| node.around(at));
                let (name, below) = entry.unzip();
                field = join(&field, &name.unwrap_or("?").escape_debug().to_string());
                node = below;
            }
        }
    }
    if let Some(name) = name {
        field = join(&field, &name.escape_debug().to_string());
    }
    (field, node)
}

/// What the reader says, without the place, which stands in front, and without advice to
/// programmers.
fn said(error: &Error, field: &str, node: Option<&Node>) -> String {
    match error {
        Error::Unexpected { expected, .. } => unexpected(expected, field, node),
        Error::SerdeInvalidType { expected, .. } => unexpected(expected, field, node),
        Error::SerdeUnknownField { expected, .. } => {
            format!("unknown field, expected one of {}", expected.join(", "))
        }
        Error::DuplicateMappingKey { key: Some(_), .. } => "is here twice".to_owned(),
        Error::DuplicateMappingKey { .. } => "has a field twice".to_owned(),
        Error::SerdeMissingField { .. } => "is missing".to_owned(),
        Error::MultipleDocuments { .. } => "a second YAML document: only one is read".to_owned(),
        other => too_much(other).unwrap_or_else(|| without_place(other)),
    }
}

/// The bound that a file reached, in words for people who have never heard of events and anchors.
fn too_much(error: &Error) -> Option<String> {
    let many_values = || {
        format!(
            "more than {NODES_MAX} values stand here or before, with all that aliases (`*name`) \
             repeat; write fewer, or repeat less"
        )
    };
    Some(match error {
        Error::AliasReplayLimitExceeded { .. } => many_values(),
        Error::AliasReplayStackDepthExceeded { .. } => {
            format!("aliases (`*name`) lead to other aliases more than {ALIAS_DEPTH_MAX} times")
        }
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Events { .. } | BudgetBreach::Nodes { .. } => many_values(),
            BudgetBreach::Aliases { aliases } => {
                format!("{aliases} aliases (`*name`) are too many")
            }
            BudgetBreach::Anchors { anchors } => {
                format!("{anchors} anchors (`&name`) are too many")
            }
            BudgetBreach::MergeKeys { merge_keys } => {
                format!("{merge_keys} merge keys (`<<`) are too many")
            }
            BudgetBreach::Depth { depth } => {
                format!("lists and mappings are nested {depth} deep, which is too deep")
            }
            BudgetBreach::RecordedAnchorEvents { .. }
            | BudgetBreach::RecordedAnchorBytes { .. } => {
                "what anchors (`&name`) mark is too large altogether".to_owned()
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// The reader's text without the place, which stands in front of it.
fn without_place(error: &Error) -> String {
    let text = error.to_string();
    let place = error.location().map_or_else(String::new, |at| {
        format!(" at line {}, column {}", at.line(), at.column())
    });
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

fn unexpected(expected: &str, field: &str, node: Option<&Node>) -> String {
    let expected = match expected {
        "mapping start" => "a mapping",
        "sequence start" => "a list",
        "string scalar" => "a single value",
        other => other,
    };
    let subject = if field.is_empty() { "the file " } else { "" };
    // Not quoted: it may be a token itself.
    let secret = field.starts_with("admin");
    match node.filter(|_| !secret) {
        Some(Node::Single(text)) => {
            let mut quoted: String = text.chars().take(QUOTED_MAX).collect();
            if quoted.len() < text.len() {
                quoted.push('…');
            }
            format!("{quoted:?} is not {expected}")
        }
        Some(Node::List(_)) => format!("{subject}is a list, not {expected}"),
        Some(Node::Mapping(_)) => format!("{subject}is a mapping, not {expected}"),
        None => format!("{subject}is not {expected}"),
    }
}
