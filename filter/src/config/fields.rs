//! A JSON object being read: which fields were asked for, and where it is for errors.

use core::ops::RangeInclusive;

use super::{ConfigError, Map, Value};

/// Lengths of the texts in lists, in bytes.
const TEXT_LEN: RangeInclusive<usize> = 1..=200;
/// The least likeness of a misspelt name and the field that was meant, from 0 to 1.
const LIKENESS_MIN: f64 = 0.9;

/// The fields of one object; what was not taken in the end is unknown.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    prefix: String,
    object: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

#[cfg(test)]
thread_local! {
    /// The paths of the fields that this thread's parsers have asked for, to hold the documentation and the schema
    /// against.
    pub(super) static ASKED_FOR: core::cell::RefCell<std::collections::BTreeSet<String>> =
        const { core::cell::RefCell::new(std::collections::BTreeSet::new()) };
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// The fields of `value`, which errors call `name` and whose fields they call `prefix` plus
    /// the field's name.
    pub(super) fn new(name: &str, prefix: &str, value: &'a Value) -> Result<Self, ConfigError> {
        Self::new_as(name, prefix, value, "an object")
    }

    /// The same, where the rule says more of the value.
    fn new_as(name: &str, prefix: &str, value: &'a Value, rule: &str) -> Result<Self, ConfigError> {
        let object = value.as_object().ok_or_else(|| ConfigError::Wrong {
            field: name.to_owned(),
            value: shown(value),
            rule: format!("must be {rule}"),
        })?;
        Ok(Self {
            prefix: prefix.to_owned(),
            object,
            known: Vec::new(),
        })
    }

    /// The field called `name`; `null` counts as absent.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        #[cfg(test)]
        ASKED_FOR.with_borrow_mut(|paths| paths.insert(self.path(name)));
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// The fields of the object called `name`, whose own unknown fields its reader has to report.
    pub(super) fn object(&mut self, name: &'static str) -> Result<Option<Self>, ConfigError> {
        self.object_as(name, "an object")
    }

    /// The same, where the rule says more of the value.
    pub(super) fn object_as(
        &mut self,
        name: &'static str,
        rule: &str,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let path = self.path(name);
        Self::new_as(&path, &format!("{path}."), value, rule).map(Some)
    }

    /// Makes fields known that are not read.
    pub(super) fn know(&mut self, names: &[&'static str]) {
        self.known.extend(names);
    }

    /// The number of fields with one of these names.
    pub(super) fn count(&self, names: &[&str]) -> usize {
        let value = |name: &&&str| self.peek(name).is_some_and(|value| !value.is_null());
        names.iter().filter(value).count()
    }

    /// The field called `name`, which is not known for that.
    pub(super) fn peek(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name)
    }

    /// All of it, for errors.
    pub(super) fn whole_object(&self) -> Value {
        Value::Object(self.object.clone())
    }

    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> Result<bool, ConfigError> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(name, other, "true or false")),
        }
    }

    /// The field called `name` as a list of that many texts of [`TEXT_LEN`].
    pub(super) fn texts(
        &mut self,
        name: &'static str,
        count: RangeInclusive<usize>,
        rule: &str,
    ) -> Result<Option<Vec<String>>, ConfigError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let text = |entry: &Value| entry.as_str().filter(is_text).map(str::to_owned);
        let entries = value.as_array().filter(|list| count.contains(&list.len()));
        let texts = entries.and_then(|list| list.iter().map(text).collect());
        texts.map(Some).ok_or_else(|| {
            let rule = format!("{rule}, each of 1 to 200 bytes without a zero byte");
            self.wrong(name, value, &rule)
        })
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<&'a str>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, other, "a string")),
        }
    }

    pub(super) fn whole(
        &mut self,
        name: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, ConfigError> {
        let Some(value) = self.take(name) else {
            return Ok(default);
        };
        whole(value)
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let rule = format!("a whole number from {} to {}", range.start(), range.end());
                self.wrong(name, value, &rule)
            })
    }

    /// Adds the fields that were not read to `unknown`.
    pub(super) fn finish(&self, unknown: &mut Vec<String>) {
        let strange = self
            .object
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()));
        let similar = |key: &str| similar(key, self.known.iter().copied());
        unknown.extend(strange.map(|key| match similar(key) {
            Some(meant) => format!("{} (did you mean {meant}?)", self.path(key)),
            None => self.path(key),
        }));
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn required(&self, name: &str, rule: &'static str) -> ConfigError {
        ConfigError::Required {
            field: self.path(name),
            rule,
        }
    }

    pub(super) fn wrong(&self, name: &str, value: impl Into<Shown>, rule: &str) -> ConfigError {
        ConfigError::Wrong {
            field: self.path(name),
            value: value.into().0,
            rule: format!("must be {rule}"),
        }
    }

    /// Like [`Fields::wrong`], of the object itself.
    pub(super) fn wrong_whole(&self, rule: &str) -> ConfigError {
        ConfigError::Wrong {
            field: self.prefix.trim_end_matches('.').to_owned(),
            value: shown(&self.whole_object()),
            rule: format!("must be {rule}"),
        }
    }

    /// Like [`Fields::wrong`], where the rule is a sentence of its own.
    pub(super) fn wrong_as(&self, name: &str, value: &Value, rule: String) -> ConfigError {
        ConfigError::Wrong {
            field: self.path(name),
            value: shown(value),
            rule,
        }
    }
}

/// A value as an error shows it.
#[derive(Debug)]
pub(super) struct Shown(String);

impl From<&Value> for Shown {
    fn from(value: &Value) -> Self {
        Self(shown(value))
    }
}

impl From<&str> for Shown {
    fn from(value: &str) -> Self {
        Self(shortened(format!("{value:?}")))
    }
}

// === free functions ===

/// The one of `known` that is most like `name`, if any is much like it.
pub(crate) fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &'a str| (strsim::jaro_winkler(name, known), known);
    let best = known.map(likeness);
    let best = best.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= LIKENESS_MIN).then_some(best.1)
}

/// `name` in lower case, if it can be a header's; pseudo-headers such as `:authority` can.
pub(super) fn check_header_name(
    fields: &Fields<'_>,
    field: &str,
    name: &str,
) -> Result<String, ConfigError> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let bare = name.strip_prefix(':').unwrap_or(name);
    if bare.is_empty() || name.len() > 100 || !bare.bytes().all(token) {
        let rule = "1 to 100 characters that a header name may have";
        return Err(fields.wrong(field, name, rule));
    }
    Ok(name.to_ascii_lowercase())
}

/// Returns whether a text may stand in a list.
pub(super) fn is_text(text: &&str) -> bool {
    TEXT_LEN.contains(&text.len()) && !text.contains('\0')
}

/// The whole number in `value`, which may be written as a fraction or with an exponent.
fn whole(value: &Value) -> Option<u64> {
    const EXACT_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    let exact = |number: &f64| number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(number);
    let number = || value.as_f64().filter(exact);
    value
        .as_u64()
        .or_else(|| number().map(|number| number as u64))
}

fn shown(value: &Value) -> String {
    shortened(value.to_string())
}

/// The first part of a text that could be of any length.
pub(crate) fn shortened(mut text: String) -> String {
    const LEN_MAX: usize = 80;
    if text.len() > LEN_MAX {
        text.truncate(text.floor_char_boundary(LEN_MAX));
        text.push_str("...");
    }
    text
}
