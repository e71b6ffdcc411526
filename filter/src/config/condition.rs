//! Which requests a rule is about, as the configuration says it.

use core::net::IpAddr;

use ipnet::IpNet;
use regex_lite::{Regex, RegexBuilder};
use serde_json::Value;

use super::ConfigError;
use super::fields::{Fields, check_header_name, is_text};
use crate::condition::{Condition, Expected, PathPattern, Test, normalised};

/// The most entries of a list; each costs a comparison per request.
const ENTRIES_MAX: usize = 32;
/// The most conditions within each other.
const DEPTH_MAX: usize = 4;
/// The largest compiled expression, in bytes, which bounds the time that it takes for a byte of the path.
const REGEX_SIZE_MAX: usize = 64 << 10;

/// Makes a pattern of a text, or says the rule that it breaks.
type ReadPattern = fn(&str) -> Result<PathPattern, String>;

/// The fields that compare the path.
const PATHS: [(&str, ReadPattern); 4] = [
    ("path", |text| plain(text).map(PathPattern::Exact)),
    ("path_under", |text| plain(text).map(PathPattern::Under)),
    ("path_prefix", |text| plain(text).map(PathPattern::Prefix)),
    ("path_regex", |text| regex(text).map(PathPattern::Regex)),
];

/// The field `when` of a rule.
pub(super) fn condition(rule: &mut Fields<'_>) -> Result<Option<Condition>, ConfigError> {
    match rule.object("when")? {
        Some(mut fields) => read(&mut fields, 1).map(Some),
        None => Ok(None),
    }
}

/// Reads a condition that is within so many others, and itself.
fn read(fields: &mut Fields<'_>, depth: usize) -> Result<Condition, ConfigError> {
    if depth > DEPTH_MAX {
        return Err(fields.wrong_whole("within at most three other conditions"));
    }
    let mut tests = Vec::new();
    for (name, pattern) in PATHS {
        let patterns = one_or_more(fields, name, pattern)?;
        tests.extend(patterns.map(Test::Path));
    }
    tests.extend(one_or_more(fields, "methods", method)?.map(Test::Method));
    tests.extend(one_or_more(fields, "source_in", network)?.map(Test::Source));
    tests.extend(headers(fields)?);
    for (name, of) in [
        ("any", Test::Any as fn(Vec<Condition>) -> Test),
        ("all", Test::All),
    ] {
        tests.extend(several(fields, name, depth)?.map(of));
    }
    if let Some(mut inner) = fields.object("not")? {
        tests.push(Test::Not(read(&mut inner, depth.saturating_add(1))?));
    }
    let mut unknown = Vec::new();
    fields.finish(&mut unknown);
    // Without a part of it a condition holds for all requests, or for none.
    if !unknown.is_empty() {
        return Err(ConfigError::UnknownCondition(unknown));
    }
    if tests.is_empty() {
        let expected = "at least one of path, path_under, path_prefix, path_regex, methods, source_in, headers, \
                        any, all and not";
        return Err(fields.wrong_whole(expected));
    }
    Ok(Condition(tests))
}

/// Reads a list of conditions.
fn several(
    fields: &mut Fields<'_>,
    name: &'static str,
    depth: usize,
) -> Result<Option<Vec<Condition>>, ConfigError> {
    let Some(value) = fields.take(name) else {
        return Ok(None);
    };
    let entries = value
        .as_array()
        .filter(|list| (1..=ENTRIES_MAX).contains(&list.len()));
    let expected = "a list of 1 to 32 conditions";
    let entries = entries.ok_or_else(|| fields.wrong(name, value, expected))?;
    let mut conditions = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let path = format!("{}[{index}]", fields.path(name));
        let mut inner = Fields::new(&path, &format!("{path}."), entry)?;
        conditions.push(read(&mut inner, depth.saturating_add(1))?);
    }
    Ok(Some(conditions))
}

/// Reads a text or a list of 1 to 32, of each of which `read` makes an entry.
fn one_or_more<T>(
    fields: &mut Fields<'_>,
    name: &'static str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<Vec<T>>, ConfigError> {
    let texts = match fields.peek(name) {
        Some(Value::String(one)) if is_text(&one.as_str()) => {
            fields.text(name)?.map(|one| vec![one.to_owned()])
        }
        _ => fields.texts(name, 1..=ENTRIES_MAX, "a text or a list of 1 to 32")?,
    };
    let Some(texts) = texts else { return Ok(None) };
    let entry = |text: &String| read(text).map_err(|rule| fields.wrong(name, text.as_str(), &rule));
    texts.iter().map(entry).collect::<Result<_, _>>().map(Some)
}

fn plain(text: &str) -> Result<String, String> {
    if text.starts_with('/') && normalised(text.as_bytes()) == text.as_bytes() {
        Ok(text.to_owned())
    } else {
        Err("a path as it is after decoding, that begins with a slash, without a query, //, /./ and /../"
            .to_owned())
    }
}

fn regex(text: &str) -> Result<Regex, String> {
    let whole = format!("^(?:{text})$");
    let mut builder = RegexBuilder::new(&whole);
    let builder = builder.size_limit(REGEX_SIZE_MAX);
    let regex = builder.dot_matches_new_line(true).build();
    regex.map_err(|error| format!("a regular expression of a whole path: {error}"))
}

fn method(text: &str) -> Result<String, String> {
    if text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-') {
        Ok(text.to_owned())
    } else {
        Err("a method in capitals, or a list of 1 to 32 of them".to_owned())
    }
}

/// Reads `10.0.0.0/8`, or an address alone.
fn network(text: &str) -> Result<IpNet, String> {
    let address: Option<IpAddr> = text.parse().ok();
    let network = address.map(IpNet::from).or_else(|| text.parse().ok());
    let network = network.filter(|network| network.addr().to_canonical() == network.addr());
    network.ok_or_else(|| {
        "an address or a network such as 10.0.0.0/8 or 2001:db8::/32, of version 4 written as such, or a list of 1 \
         to 32 of them"
            .to_owned()
    })
}

fn headers(fields: &mut Fields<'_>) -> Result<Vec<Test>, ConfigError> {
    let expected = "an object of 1 to 32 header names, each with true, false, its value, a list of values, \
                    {\"prefix\": TEXT} or {\"item\": TEXT}";
    let Some(value) = fields.take("headers") else {
        return Ok(Vec::new());
    };
    let object = value
        .as_object()
        .filter(|map| (1..=ENTRIES_MAX).contains(&map.len()));
    let object = object.ok_or_else(|| fields.wrong("headers", value, expected))?;
    let test = |(name, value): (&String, &Value)| {
        let name = check_header_name(fields, "headers", name)?;
        if name == ":path" {
            let rule = "no header :path, which has the query in it: path, path_under, path_prefix or path_regex";
            return Err(fields.wrong("headers", name.as_str(), rule));
        }
        match expected_value(value) {
            Some(expected) => Ok(Test::Header(name, expected)),
            None => {
                let rule = "true, false, the header's value, a list of 1 to 32 values, {\"prefix\": TEXT} or \
                            {\"item\": TEXT}";
                Err(fields.wrong(&format!("headers.{name}"), value, rule))
            }
        }
    };
    object.iter().map(test).collect()
}

/// Reads what a header must be.
fn expected_value(value: &Value) -> Option<Expected> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match value {
        Value::Bool(true) => Some(Expected::Present),
        Value::Bool(false) => Some(Expected::Absent),
        Value::String(text) => Some(Expected::OneOf(vec![text.clone()])),
        Value::Array(list) if (1..=ENTRIES_MAX).contains(&list.len()) => list
            .iter()
            .map(text)
            .collect::<Option<_>>()
            .map(Expected::OneOf),
        Value::Object(object) if object.len() == 1 => {
            let (kind, value) = object.iter().next()?;
            let value = text(value).filter(|value| !value.is_empty())?;
            match kind.as_str() {
                "prefix" => Some(Expected::Prefix(value)),
                "item" => Some(Expected::Item(value)),
                _ => None,
            }
        }
        _ => None,
    }
}
