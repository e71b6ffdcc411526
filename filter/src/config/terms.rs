//! Form of refusals: status, further headers, a body of one's own, and which drafts' fields.

use serde_json::Value;

use super::fields::{Fields, check_header_name};
use super::{ConfigError, Formats};

/// The most headers that a rule adds to its refusals.
const HEADERS_MAX: usize = 16;
/// The longest value of such a header, in bytes.
const VALUE_LEN_MAX: usize = 1000;
/// The longest body of one's own, in bytes.
const BODY_LEN_MAX: usize = 8192;

/// Form of the refusals of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Which fields of the drafts they carry.
    pub(crate) formats: Formats,
    /// The HTTP status; gRPC has its own.
    pub(crate) status: u32,
    /// Further headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, unless it is the problem that the filter describes.
    pub(crate) body: Option<Body>,
    /// Whether requests go on, and the upstream is told instead.
    pub(crate) marks: bool,
}

/// A body of the operator's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) content_type: String,
    pub(crate) text: String,
}

// === impl Terms ===

impl Terms {
    /// Terms where nothing is configured.
    pub(crate) const DEFAULT: Self = Self {
        formats: Formats {
            ietf: true,
            draft03: false,
        },
        status: 429,
        headers: Vec::new(),
        body: None,
        marks: false,
    };

    /// The same, to refer to.
    pub(crate) const PLAIN: &'static Self = &Self::DEFAULT;

    /// The field `refusal` of a rule.
    pub(super) fn read(
        rule: &mut Fields<'_>,
        formats: Formats,
        unknown: &mut Vec<String>,
    ) -> Result<Self, ConfigError> {
        let terms = Self {
            formats,
            marks: rule.peek("on_limit").and_then(Value::as_str) == Some("mark"),
            ..Self::DEFAULT
        };
        let Some(mut fields) = rule.object("refusal")? else {
            return Ok(terms);
        };
        let terms = Self {
            status: fields.whole("status", 429, 400..=599)? as u32,
            headers: headers(&mut fields)?,
            body: body(&mut fields)?,
            ..terms
        };
        fields.finish(unknown);
        Ok(terms)
    }
}

// === free functions ===

/// Which drafts' fields are told; the field is a list of their names.
pub(super) fn formats(
    root: &mut Fields<'_>,
    name: &'static str,
    default: Formats,
) -> Result<Formats, ConfigError> {
    let expected = "a list of \"ietf\" and \"draft03\"";
    let Some(value) = root.take(name) else {
        return Ok(default);
    };
    let mut formats = Formats::default();
    let names = value.as_array();
    for format in names.ok_or_else(|| root.wrong(name, value, expected))? {
        match format.as_str() {
            Some("ietf") => formats.ietf = true,
            Some("draft03") => formats.draft03 = true,
            _ => return Err(root.wrong(name, format, expected)),
        }
    }
    Ok(formats)
}

fn headers(fields: &mut Fields<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let expected = "an object of at most 16 header names with their values";
    let Some(value) = fields.take("headers") else {
        return Ok(Vec::new());
    };
    let object = value.as_object().filter(|map| map.len() <= HEADERS_MAX);
    let object = object.ok_or_else(|| fields.wrong("headers", value, expected))?;
    let header = |(name, value): (&String, &Value)| {
        let name = check_header_name(fields, "headers", name)?;
        if is_reserved(&name) {
            let rule = "none that Tollgate, Envoy or the protocol sets";
            return Err(fields.wrong("headers", name.as_str(), rule));
        }
        let text = value.as_str().filter(|text| is_value(text));
        let rule = "up to 1000 printable ASCII characters";
        let text = text.ok_or_else(|| fields.wrong(&format!("headers.{name}"), value, rule))?;
        Ok((name, text.to_owned()))
    };
    object.iter().map(header).collect()
}

fn body(fields: &mut Fields<'_>) -> Result<Option<Body>, ConfigError> {
    let kind = fields.text("content_type")?.unwrap_or("text/plain");
    if kind.is_empty() || !is_value(kind) {
        return Err(fields.wrong("content_type", kind, "a media type"));
    }
    let Some(text) = fields.text("body")? else {
        return Ok(None);
    };
    if text.len() > BODY_LEN_MAX {
        return Err(fields.wrong("body", text, "at most 8192 bytes"));
    }
    Ok(Some(Body {
        content_type: kind.to_owned(),
        text: text.to_owned(),
    }))
}

/// Names that a refusal has already, and those that say where a message ends.
fn is_reserved(name: &str) -> bool {
    let prefixes = [":", "tollgate-", "ratelimit", "grpc-", "content-"];
    let names = [
        "connection",
        "retry-after",
        "transfer-encoding",
        "x-envoy-ratelimited",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    names.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn is_value(text: &str) -> bool {
    text.len() <= VALUE_LEN_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}
