//! Templates: scopes made of the keys and values that other protocols describe requests by.
//!
//! `tenant/{tenant}` makes the scope `tenant/acme` of the pair `tenant: acme`. Two rules keep clients
//! from choosing another scope than their own by a value of their choice:
//!
//! - Where several values meet in a scope, the `/` and `%` of a value are percent-encoded, so that none
//!   spills into the place of another.
//! - A value that no scope can have, for it is empty, too long or has control characters, stands there
//!   as its SHA-256. To leave such requests without a limit would be an invitation.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest as _, Sha256};
use tollgate_core::lease::{ResourceId, Unit};

/// The longest template, in bytes.
const TEMPLATE_LEN_MAX: usize = 200;
/// The longest first segment, in bytes; as that of a rule's name in the filter.
const KIND_LEN_MAX: usize = 40;
/// The longest part of a scope after its first segment, in bytes; as that of a key in the filter.
const KEY_LEN_MAX: usize = 200;
/// Beginning of the text that stands for a value which no scope can have.
pub const DIGEST_PREFIX: &str = "sha256-";
/// Bytes of a digest that are shown: enough that no two values meet.
const DIGEST_LEN: usize = 16;
/// Length of a digest's text.
const DIGEST_TEXT_LEN: usize = DIGEST_PREFIX.len() + 2 * DIGEST_LEN;

/// Template of scopes, such as `tenant/{tenant}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Length of the first segment, which is the same in all scopes.
    kind_len: usize,
    parts: Vec<Part>,
}

/// Part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The value of a key.
    Value(String),
}

/// Reason for which a text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Its first segment is none.
    #[error(
        "must begin with a word of 1 to 40 of a-z, 0-9, `_` and `-`, and a `/`, as in \
         `tenant/{{tenant}}`"
    )]
    Kind,
    /// Nothing follows the first segment.
    #[error("has nothing after its first `/`; write the key of a value, as in `tenant/{{tenant}}`")]
    NoKey,
    /// A brace without its other.
    #[error("has a `{{` without its `}}`, or the other way round")]
    Brace,
    /// A key without a name.
    #[error("has a key without a name: `{{}}`")]
    EmptyKey,
    /// More than a scope has room for.
    #[error("has {0} bytes, more than 200")]
    TooLong(usize),
    /// A control character.
    #[error("has a control character")]
    Control,
}

// === impl Template ===

impl Template {
    /// Reads a template: text in which `{key}` stands for the value of `key`.
    ///
    /// # Errors
    /// The rule that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.len() > TEMPLATE_LEN_MAX {
            return Err(TemplateError::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(TemplateError::Control);
        }
        let (kind, key) = text.split_once('/').ok_or(TemplateError::Kind)?;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if !(1..=KIND_LEN_MAX).contains(&kind.len()) || !kind.bytes().all(plain) {
            return Err(TemplateError::Kind);
        }
        if key.is_empty() {
            return Err(TemplateError::NoKey);
        }
        Ok(Self {
            kind_len: kind.len(),
            parts: parts(text)?,
        })
    }

    /// Returns the first segment of its scopes.
    pub fn kind(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text.get(..self.kind_len).unwrap_or_default(),
            _ => "",
        }
    }

    /// Returns the scope that the values of its keys make; `None` if `value` lacks one of them.
    ///
    /// `value` returns a value of a key by its place among the values of that key: in
    /// `{a}/{b}/{a}` the key `a` has the places 0 and 1.
    pub fn scope<'a>(&self, value: impl Fn(&str, usize) -> Option<&'a str>) -> Option<String> {
        let is_one_of_several = self.keys().count() > 1;
        let mut texts = Vec::with_capacity(self.parts.len());
        for (i, part) in self.parts.iter().enumerate() {
            texts.push(match part {
                Part::Text(text) => Cow::Borrowed(text.as_str()),
                Part::Value(key) => {
                    let earlier = self.parts.iter().take(i);
                    let place = earlier.filter(|earlier| *earlier == part).count();
                    Cow::Owned(value_text(value(key, place)?, is_one_of_several))
                }
            });
        }
        loop {
            let scope = texts.concat();
            let key = scope.get(self.kind_len + 1..).unwrap_or_default();
            if key.len() <= KEY_LEN_MAX && ResourceId::new(&scope, Unit::Requests).is_ok() {
                return Some(scope);
            }
            // The longest value gives way: a `match` by the others finds the scope all the same.
            let values = texts
                .iter_mut()
                .filter(|text| matches!(text, Cow::Owned(_)));
            match values.max_by_key(|value| value.len()) {
                Some(value) if value.len() > DIGEST_TEXT_LEN => *value = digest(value).into(),
                _ => return Some(format!("{}/{}", self.kind(), digest(key))),
            }
        }
    }

    /// Returns the keys whose values it needs.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Value(key) => Some(key.as_str()),
            Part::Text(_) => None,
        })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Value(key) => write!(f, "{{{key}}}"),
        })
    }
}

// === free functions ===

fn parts(text: &str) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (before, after) = rest.split_once('{').unwrap_or((rest, ""));
        if before.contains('}') {
            return Err(TemplateError::Brace);
        }
        if !before.is_empty() {
            parts.push(Part::Text(before.to_owned()));
        }
        if before.len() == rest.len() {
            break;
        }
        let (key, after) = after.split_once('}').ok_or(TemplateError::Brace)?;
        if key.contains('{') {
            return Err(TemplateError::Brace);
        }
        if key.is_empty() {
            return Err(TemplateError::EmptyKey);
        }
        parts.push(Part::Value(key.to_owned()));
        rest = after;
    }
    Ok(parts)
}

/// Returns the text of a key's value, which may stand beside others.
fn value_text(value: &str, is_one_of_several: bool) -> String {
    if value.is_empty() || value.len() > KEY_LEN_MAX || value.chars().any(char::is_control) {
        return digest(value);
    }
    if is_one_of_several {
        return value.replace('%', "%25").replace('/', "%2F");
    }
    value.to_owned()
}

/// Returns text that stands for a value which no scope can have.
fn digest(value: &str) -> String {
    use fmt::Write as _;
    let digest = Sha256::digest(value.as_bytes());
    let mut text = DIGEST_PREFIX.to_owned();
    for byte in digest.iter().take(DIGEST_LEN) {
        // A text takes all that is written.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(template: &str, pairs: &[(&str, &str)]) -> Option<String> {
        let value = |key: &str, place| {
            let mut found = pairs.iter().filter(|(other, _)| *other == key);
            found.nth(place).map(|(_, value)| *value)
        };
        let template = Template::parse(template).unwrap();
        template.scope(value)
    }

    #[test]
    fn values_take_the_places_of_their_keys() {
        let pairs = [("tenant", "acme"), ("ns", "orders"), ("path", "/v1/a")];
        let rows = [
            ("tenant/{tenant}", Some("tenant/acme")),
            ("namespace/{tenant}/{ns}", Some("namespace/acme/orders")),
            ("route/{path}", Some("route//v1/a")),
            ("edge/t-{tenant}.x", Some("edge/t-acme.x")),
            ("service/all", Some("service/all")),
            ("user/{user}", None),
            ("user/{tenant}/{user}", None),
        ];
        for (template, want) in rows {
            assert_eq!(scope(template, &pairs).as_deref(), want, "{template}");
            assert_eq!(Template::parse(template).unwrap().to_string(), template);
        }
        assert_eq!(Template::parse("a-1/{b}").unwrap().kind(), "a-1");
    }

    #[test]
    fn a_key_that_is_there_several_times_has_its_values_in_their_order() {
        let pairs = [("k", "a"), ("t", "acme"), ("k", "b")];
        let rows = [
            ("x/{k}", Some("x/a")),
            ("x/{k}/{t}/{k}", Some("x/a/acme/b")),
            ("x/{k}/{k}/{k}", None),
        ];
        for (template, want) in rows {
            assert_eq!(scope(template, &pairs).as_deref(), want, "{template}");
        }
    }

    #[test]
    fn a_value_never_spills_into_the_place_of_another() {
        let two = "namespace/{tenant}/{ns}";
        let one = scope(two, &[("tenant", "a/b"), ("ns", "c")]).unwrap();
        let other = scope(two, &[("tenant", "a"), ("ns", "b/c")]).unwrap();
        assert_eq!(one, "namespace/a%2Fb/c");
        assert_eq!(other, "namespace/a/b%2Fc");
        let escaped = scope(two, &[("tenant", "a%2Fb"), ("ns", "c")]);
        assert_eq!(escaped.as_deref(), Some("namespace/a%252Fb/c"));
    }

    #[test]
    fn a_value_that_no_scope_can_have_stands_there_as_its_digest() {
        let longest = "x".repeat(KEY_LEN_MAX);
        let filled = scope("tenant/{t}", &[("t", &longest)]).unwrap();
        assert_eq!(filled, format!("tenant/{longest}"));
        let longer = format!("{longest}y");
        let slashes = "/".repeat(100);
        let mut scopes = Vec::new();
        for value in ["", "a\nb", "a\rb", &longer] {
            let digested = scope("tenant/{t}", &[("t", value)]).unwrap();
            assert!(digested.starts_with("tenant/sha256-"), "{digested}");
            assert_eq!(digested.len(), "tenant/sha256-".len() + 32);
            scopes.push(digested);
        }
        // Too long only together, or only once it is encoded.
        for pairs in [
            [("a", &*longest), ("b", "c")],
            [("a", &*slashes), ("b", "c")],
        ] {
            scopes.push(scope("n/{a}/{b}", &pairs).unwrap());
        }
        scopes.sort();
        scopes.dedup();
        assert_eq!(scopes.len(), 6, "all differ: {scopes:?}");
    }

    #[test]
    fn a_long_value_leaves_the_others_where_a_match_finds_them() {
        let long = "x".repeat(198);
        let of = |a: &str, b: &str| scope("n/{a}/{b}", &[("a", a), ("b", b)]).unwrap();
        assert_eq!(of("acme", &long), format!("n/acme/{}", digest(&long)));
        assert_eq!(of(&long, "acme"), format!("n/{}/acme", digest(&long)));
        assert_ne!(of("acme", &long), of("acme", &format!("{long}y")));
        let fits = "x".repeat(KEY_LEN_MAX - "acme/".len());
        assert_eq!(of("acme", &fits), format!("n/acme/{fits}"));
    }

    #[test]
    fn a_text_that_is_no_template_is_refused() {
        use TemplateError::{Brace, Control, EmptyKey, Kind, NoKey, TooLong};
        let rows = [
            ("", Kind),
            ("tenant", Kind),
            ("/{tenant}", Kind),
            ("Tenant/{tenant}", Kind),
            ("{tenant}/x", Kind),
            ("tenant/", NoKey),
            ("tenant/{tenant", Brace),
            ("tenant/tenant}", Brace),
            ("tenant/{a{b}}", Brace),
            ("tenant/{}", EmptyKey),
            ("tenant/a\tb", Control),
        ];
        for (text, want) in rows {
            assert_eq!(Template::parse(text), Err(want), "{text}");
        }
        let long = format!("tenant/{}", "x".repeat(200));
        assert_eq!(Template::parse(&long), Err(TooLong(207)));
        assert!(Template::parse(&long[..200]).is_ok());
        let kind = "k".repeat(41);
        assert_eq!(Template::parse(&format!("{kind}/x")), Err(Kind));
        assert!(Template::parse(&format!("{}/x", &kind[..40])).is_ok());
    }
}
