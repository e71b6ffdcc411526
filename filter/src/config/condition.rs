//! Which requests a rule is about, as the configuration says it.

use serde_json::Value;

use super::ConfigError;
use super::fields::{Fields, check_header_name, is_text};
use crate::condition::{Condition, Expected};

/// The most entries of a list; each costs a comparison per request.
const ENTRIES_MAX: usize = 32;

/// The field `when` of a rule.
pub(super) fn condition(
    rule: &mut Fields<'_>,
    unknown: &mut Vec<String>,
) -> Result<Option<Condition>, ConfigError> {
    let Some(mut fields) = rule.object("when")? else {
        return Ok(None);
    };
    let mut condition = simple(&mut fields)?;
    if let Some(mut inner) = fields.object("not")? {
        condition.not = Some(Box::new(simple(&mut inner)?));
        inner.finish(unknown);
    }
    fields.finish(unknown);
    Ok(Some(condition))
}

fn simple(fields: &mut Fields<'_>) -> Result<Condition, ConfigError> {
    let condition = Condition {
        path_prefixes: path_prefixes(fields)?,
        methods: methods(fields)?,
        headers: headers(fields)?,
        not: None,
    };
    Ok(condition)
}

fn path_prefixes(fields: &mut Fields<'_>) -> Result<Vec<String>, ConfigError> {
    let expected = "a path that begins with a slash, or a list of 1 to 32 of them";
    let prefixes = match fields.peek("path_prefix") {
        Some(Value::String(one)) if is_text(&one.as_str()) => {
            fields.text("path_prefix")?.map(|one| vec![one.to_owned()])
        }
        _ => fields.texts("path_prefix", 1..=ENTRIES_MAX, expected)?,
    };
    let prefixes = prefixes.unwrap_or_default();
    match prefixes.iter().find(|prefix| !prefix.starts_with('/')) {
        Some(wrong) => Err(fields.wrong("path_prefix", wrong.as_str(), expected)),
        None => Ok(prefixes),
    }
}

fn methods(fields: &mut Fields<'_>) -> Result<Vec<String>, ConfigError> {
    let expected = "a list of 1 to 32 methods in capitals";
    let methods = fields
        .texts("methods", 1..=ENTRIES_MAX, expected)?
        .unwrap_or_default();
    let plain = |method: &&String| !method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
    match methods.iter().find(plain) {
        Some(wrong) => Err(fields.wrong("methods", wrong.as_str(), expected)),
        None => Ok(methods),
    }
}

fn headers(fields: &mut Fields<'_>) -> Result<Vec<(String, Expected)>, ConfigError> {
    let expected = "an object of at most 32 header names, each with true, false or its value";
    let Some(value) = fields.take("headers") else {
        return Ok(Vec::new());
    };
    let object = value.as_object().filter(|map| map.len() <= ENTRIES_MAX);
    let object = object.ok_or_else(|| fields.wrong("headers", value, expected))?;
    let header = |(name, value): (&String, &Value)| {
        let name = check_header_name(fields, "headers", name)?;
        let expected = match value {
            Value::Bool(true) => Expected::Present,
            Value::Bool(false) => Expected::Absent,
            Value::String(text) => Expected::Equal(text.clone()),
            _ => {
                let expected = "true, false or the header's value";
                return Err(fields.wrong(&format!("headers.{name}"), value, expected));
            }
        };
        Ok((name, expected))
    };
    object.iter().map(header).collect()
}
