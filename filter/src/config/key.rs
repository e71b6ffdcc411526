//! Where a rule finds its key, as the configuration says it.

use regex_lite::RegexBuilder;
use serde_json::Value;

use super::ConfigError;
use super::fields::{Fields, check_header_name, is_text};
use crate::key::{self, Expression, Key, Pattern, Prefixes, Template};

/// The most parts of a join.
const PARTS_MAX: usize = 8;
/// The most steps into metadata.
const STEPS_MAX: usize = 8;
/// The last segment of a path that a key may be.
const SEGMENT_MAX: u64 = 64;
/// The longest expression, in bytes.
const EXPRESSION_LEN_MAX: usize = 1000;
/// Sources of a key, for errors.
const KINDS: &str = "an object with one of header, query, path, cookie, bearer, unverified_claim, authority, \
    source_address, peer_san, metadata, route_metadata, virtual_host_metadata, route_name, filter_state, cel, \
    constant and join";
/// The largest compiled regular expression, in bytes, which bounds the time that it takes for a byte of the key.
const REGEX_SIZE_MAX: usize = 64 << 10;
/// Attributes that differ between requests of one key, and what to use instead.
const VARYING: [(&str, &str); 2] = [
    (
        "source.address",
        "no source.address alone, which has the port in it: use {\"source_address\": true}",
    ),
    (
        "request.path",
        "no request.path alone, which has the query in it: use request.url_path, or {\"path\": TEMPLATE}",
    ),
];

/// The names of all sources.
const SOURCES: [&str; 17] = [
    "header",
    "query",
    "path",
    "cookie",
    "bearer",
    "unverified_claim",
    "authority",
    "source_address",
    "peer_san",
    "metadata",
    "route_metadata",
    "virtual_host_metadata",
    "route_name",
    "filter_state",
    "cel",
    "constant",
    "join",
];

/// The field `key` of a rule.
pub(super) fn required(
    rule: &mut Fields<'_>,
    unknown: &mut Vec<String>,
) -> Result<Key, ConfigError> {
    let key = key(rule, "key", unknown)?;
    key.ok_or_else(|| rule.required("key", KINDS))
}

/// The field of a rule called `name`, which is a key.
pub(super) fn key(
    rule: &mut Fields<'_>,
    name: &'static str,
    unknown: &mut Vec<String>,
) -> Result<Option<Key>, ConfigError> {
    let Some(mut fields) = rule.object(name)? else {
        return Ok(None);
    };
    fields.know(&SOURCES);
    let key = match fields.count(&SOURCES) {
        1 => match join(&mut fields, unknown)? {
            Some(key) => Some(changed(&mut fields, key)?),
            None => simple(&mut fields, unknown)?,
        },
        // Of two it would not be clear which one counts.
        _ => None,
    };
    fields.finish(unknown);
    match key {
        Some(key) => Ok(Some(key)),
        None => Err(rule.wrong(name, &fields.whole_object(), KINDS)),
    }
}

/// A key that is not made of others, as far as `regex` and `hash` leave it.
fn simple(fields: &mut Fields<'_>, unknown: &mut Vec<String>) -> Result<Option<Key>, ConfigError> {
    match source(fields, unknown)? {
        Some(key) => changed(fields, key).map(Some),
        None => Ok(None),
    }
}

/// The part of `key` that the field `regex` names, and its hash if the field `hash` says so. That of a credential
/// is its hash unless the field says otherwise.
fn changed(fields: &mut Fields<'_>, key: Key) -> Result<Key, ConfigError> {
    let is_credential = matches!(key, Key::Bearer);
    let mut key = key;
    if let Some(text) = fields.text("regex")? {
        let regex = RegexBuilder::new(text).size_limit(REGEX_SIZE_MAX).build();
        let regex = regex.map_err(|error| {
            fields.wrong("regex", text, &format!("a regular expression: {error}"))
        })?;
        let of = Box::new(key);
        key = Key::Part {
            of,
            regex: Pattern(regex),
        };
    }
    Ok(if fields.flag("hash", is_credential)? {
        Key::Hashed(Box::new(key))
    } else {
        key
    })
}

/// A key as its source has it.
fn source(fields: &mut Fields<'_>, unknown: &mut Vec<String>) -> Result<Option<Key>, ConfigError> {
    let property = |path: &[&str]| Key::Property(path.iter().map(|&step| step.into()).collect());
    Ok(Some(if let Some(name) = fields.text("header")? {
        Key::Header(key_header(fields, name)?)
    } else if let Some(name) = fields.text("query")? {
        Key::Query(bounded(fields, "query", name)?)
    } else if let Some(key) = path(fields, unknown)? {
        key
    } else if let Some(name) = fields.text("cookie")? {
        Key::Cookie(bounded(fields, "cookie", name)?)
    } else if is_set(fields, "bearer")? {
        Key::Bearer
    } else if let Some(steps) = claim(fields)? {
        Key::UnverifiedClaim(steps)
    } else if is_set(fields, "authority")? {
        Key::Authority
    } else if let Some(prefixes) = source_address(fields, unknown)? {
        Key::SourceAddress(prefixes)
    } else if let Some(kind) = fields.text("peer_san")? {
        match kind {
            "uri" => property(&["connection", "uri_san_peer_certificate"]),
            "dns" => property(&["connection", "dns_san_peer_certificate"]),
            _ => return Err(fields.wrong("peer_san", kind, "\"uri\" or \"dns\"")),
        }
    } else if let Some(key) = metadata(fields)? {
        key
    } else if is_set(fields, "route_name")? {
        property(&["xds", "route_name"])
    } else if let Some(name) = fields.text("filter_state")? {
        property(&["filter_state", &bounded(fields, "filter_state", name)?])
    } else if let Some(text) = fields.text("cel")? {
        if text.is_empty() || text.len() > EXPRESSION_LEN_MAX {
            return Err(fields.wrong("cel", text, "an expression of 1 to 1000 bytes"));
        }
        if let Some((_, rule)) = VARYING.iter().find(|(name, _)| is_used_alone(text, name)) {
            return Err(fields.wrong("cel", text, rule));
        }
        Key::Expression(Expression::new(text))
    } else if let Some(text) = fields.text("constant")? {
        Key::Constant(constant(fields, "constant", text)?)
    } else {
        return Ok(None);
    }))
}

/// A header's name, unless each query would be a key of its own.
fn key_header(fields: &Fields<'_>, name: &str) -> Result<String, ConfigError> {
    match check_header_name(fields, "header", name)? {
        path if path == ":path" => {
            let rule = "no header :path, which has the query in it: use {\"path\": TEMPLATE} or {\"query\": NAME}";
            Err(fields.wrong("header", name, rule))
        }
        name => Ok(name),
    }
}

/// Returns whether the value of an expression has that of an attribute in it, as it is.
fn is_used_alone(expression: &str, attribute: &str) -> bool {
    let ends_part = |text: Option<char>| text.is_none_or(|next| matches!(next, '+' | '?' | ':'));
    expression.match_indices(attribute).any(|(at, _)| {
        let before = expression.get(..at).unwrap_or_default();
        let after = expression
            .get(at..)
            .and_then(|rest| rest.strip_prefix(attribute));
        ends_part(before.trim_end().chars().next_back())
            && ends_part(after.unwrap_or_default().trim_start().chars().next())
    })
}

/// The field `unverified_claim`: a name, or the names of objects within each other.
fn claim(fields: &mut Fields<'_>) -> Result<Option<Vec<String>>, ConfigError> {
    let expected = "the name of a claim, or a list of 1 to 8 names within each other";
    match fields.peek("unverified_claim") {
        Some(Value::String(name)) if is_text(&name.as_str()) => {
            let name = fields.text("unverified_claim")?;
            Ok(name.map(|name| vec![name.to_owned()]))
        }
        _ => fields.texts("unverified_claim", 1..=STEPS_MAX, expected),
    }
}

fn join(fields: &mut Fields<'_>, unknown: &mut Vec<String>) -> Result<Option<Key>, ConfigError> {
    let expected = "a list of 2 to 8 keys";
    let Some(value) = fields.take("join") else {
        return Ok(None);
    };
    let with = fields.text("with")?.unwrap_or("/");
    let mut characters = with.chars();
    let with = match (characters.next(), characters.next()) {
        (Some(one), None) if !one.is_control() => one,
        _ => return Err(fields.wrong("with", with, "one printable character")),
    };
    let entries = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if entries.len() < 2 || entries.len() > PARTS_MAX {
        return Err(fields.wrong("join", value, expected));
    }
    let mut parts = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let path = format!("{}[{index}]", fields.path("join"));
        let mut part = Fields::new(&path, &format!("{path}."), entry)?;
        part.know(&SOURCES);
        let key = match part.count(&SOURCES) {
            1 => simple(&mut part, unknown)?,
            _ => None,
        };
        part.finish(unknown);
        parts.push(key.ok_or_else(|| ConfigError::Wrong {
            field: path,
            value: entry.to_string(),
            rule: format!("must be {KINDS}; a join has no joins"),
        })?);
    }
    Ok(Some(Key::Join { parts, with }))
}

fn path(fields: &mut Fields<'_>, unknown: &mut Vec<String>) -> Result<Option<Key>, ConfigError> {
    let expected = "a template such as \"/v1/tenants/{tenant}/**\", or {\"segment\": NUMBER}";
    match fields.take("path") {
        None => Ok(None),
        Some(Value::String(text)) => {
            let template = Template::parse(text);
            template
                .map(|template| Some(Key::Template(template)))
                .map_err(|error| {
                    fields.wrong("path", text.as_str(), &format!("a template: {error}"))
                })
        }
        Some(value) => {
            let inner = fields.object_as("path", expected)?;
            let Some(mut inner) = inner else {
                return Ok(None);
            };
            let number = inner.whole("segment", 0, 1..=SEGMENT_MAX)?;
            inner.finish(unknown);
            match usize::try_from(number) {
                Ok(number) if number > 0 => Ok(Some(Key::Segment(number))),
                _ => Err(fields.wrong("path", value, expected)),
            }
        }
    }
}

fn source_address(
    fields: &mut Fields<'_>,
    unknown: &mut Vec<String>,
) -> Result<Option<Prefixes>, ConfigError> {
    if fields.peek("source_address") == Some(&Value::Bool(true)) {
        fields.take("source_address");
        return Ok(Some(Prefixes { v4: 32, v6: 64 }));
    }
    let expected = "true, or an object with prefix_v4 and prefix_v6";
    let Some(mut inner) = fields.object_as("source_address", expected)? else {
        return Ok(None);
    };
    let prefixes = Prefixes {
        v4: inner.whole("prefix_v4", 32, 0..=32)? as u8,
        v6: inner.whole("prefix_v6", 64, 0..=128)? as u8,
    };
    inner.finish(unknown);
    Ok(Some(prefixes))
}

fn metadata(fields: &mut Fields<'_>) -> Result<Option<Key>, ConfigError> {
    let of = |source| ["xds", source, "filter_metadata"];
    let path = match dynamic_metadata(fields)? {
        Some(path) => Some(path),
        None => match steps(fields, "route_metadata", &of("route_metadata"))? {
            Some(path) => Some(path),
            None => steps(
                fields,
                "virtual_host_metadata",
                &of("virtual_host_metadata"),
            )?,
        },
    };
    Ok(path.map(Key::Property))
}

/// The field `metadata`, as the path of a property.
pub(super) fn dynamic_metadata(
    fields: &mut Fields<'_>,
) -> Result<Option<Vec<String>>, ConfigError> {
    steps(fields, "metadata", &["metadata", "filter_metadata"])
}

/// A field with steps into metadata, which are at `root`.
fn steps(
    fields: &mut Fields<'_>,
    name: &'static str,
    root: &[&str],
) -> Result<Option<Vec<String>>, ConfigError> {
    let expected = "a list of 2 to 8 names: a namespace and the keys below it";
    let steps = fields.texts(name, 2..=STEPS_MAX, expected)?;
    let root = root.iter().map(|&step| step.to_owned());
    Ok(steps.map(|steps| root.chain(steps).collect()))
}

/// A field that says `true`, or nothing.
fn is_set(fields: &mut Fields<'_>, name: &'static str) -> Result<bool, ConfigError> {
    match fields.take(name) {
        None => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(other) => Err(fields.wrong(name, other, "true")),
    }
}

fn bounded(fields: &Fields<'_>, field: &str, name: &str) -> Result<String, ConfigError> {
    if name.is_empty() || name.len() > 100 || name.contains('\0') {
        Err(fields.wrong(field, name, "1 to 100 bytes"))
    } else {
        Ok(name.to_owned())
    }
}

/// A key that stands in the configuration.
pub(super) fn constant(
    fields: &Fields<'_>,
    field: &str,
    text: &str,
) -> Result<String, ConfigError> {
    let usable = key::parsed(key::trimmed(text.as_bytes())).is_some_and(|key| key == text);
    if usable {
        Ok(text.to_owned())
    } else {
        Err(fields.wrong(field, text, "a key of 1 to 200 printable bytes"))
    }
}
