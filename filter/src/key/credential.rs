//! Keys out of cookies and bearer tokens.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{Found, decoded_leniently, trimmed};

/// The cookie called `name` of a `Cookie` header (RFC 6265, section 4.2.1), percent-decoded and without quotes around it.
/// Of two with different values none: upstreams differ in which one they take.
pub(super) fn cookie<'a>(cookies: &[u8], name: &str) -> Found<'a> {
    let pairs = cookies.split(|byte| *byte == b';').map(trimmed);
    let mut values = pairs.filter_map(|pair| {
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        let quoted = value.strip_prefix(b"\"");
        let quoted = quoted.and_then(|rest| rest.strip_suffix(b"\""));
        Some(decoded_leniently(quoted.unwrap_or(value)))
    });
    let Some(value) = values.next() else {
        return Found::Missing;
    };
    if values.all(|other| other == value) {
        Found::Value(Cow::Owned(value.into_owned()))
    } else {
        Found::Missing
    }
}

/// The token of an `Authorization` header (RFC 6750, section 2.1).
pub(super) fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = trimmed(authorization).split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| trimmed(token))
}

/// A claim of the JWT (RFC 7519) in an `Authorization` header, unless it is an object or a list.
pub(super) fn claim(authorization: &[u8], steps: &[String]) -> Option<Vec<u8>> {
    let mut parts = bearer(authorization)?.split(|byte| *byte == b'.');
    let payload = parts.nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(payload.trim_ascii_end()).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let mut claim = &claims;
    for step in steps {
        claim = claim.get(step)?;
    }
    match claim {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Number(_) | Value::Bool(_) => Some(claim.to_string().into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let value = |text: &str| Found::Value(Cow::Owned(text.as_bytes().to_vec()));
        let rows = [
            ("sid=abc", value("abc")),
            ("a=1; sid=abc; b=2", value("abc")),
            ("xsid=1;sid=\"abc\"", value("abc")),
            ("sid=abc; sid=other", Found::Missing),
            ("sid=abc; sid=%61bc", value("abc")),
            ("a=1,sid=abc", Found::Missing),
            ("sid=", value("")),
            ("SID=abc", Found::Missing),
            ("sid", Found::Missing),
            ("", Found::Missing),
        ];
        for (cookies, want) in rows {
            assert_eq!(cookie(cookies.as_bytes(), "sid"), want, "{cookies}");
        }
    }

    #[test]
    fn a_claim_is_read_and_never_believed_to_be_more() {
        let token = |payload: &str| {
            let payload = URL_SAFE_NO_PAD.encode(payload);
            format!("Bearer e30.{payload}.no-signature")
        };
        let claims = token(r#"{"sub": "alice", "org": {"id": 42}, "paid": true, "list": [1]}"#);
        let rows: [(&str, &[&str], Option<&str>); 10] = [
            (&claims, &["sub"], Some("alice")),
            (
                &claims.replace("Bearer ", "bearer   "),
                &["sub"],
                Some("alice"),
            ),
            (&claims, &["org", "id"], Some("42")),
            (&claims, &["paid"], Some("true")),
            (&claims, &["org"], None),
            (&claims, &["list"], None),
            (&claims, &["none"], None),
            (&token("{"), &["sub"], None),
            ("Bearer e30", &["sub"], None),
            ("Basic e30.e30.e30", &["sub"], None),
        ];
        for (header, steps, want) in rows {
            let steps: Vec<String> = steps.iter().map(|&step| step.to_owned()).collect();
            let found = claim(header.as_bytes(), &steps);
            assert_eq!(
                found.as_deref(),
                want.map(str::as_bytes),
                "{header} {steps:?}"
            );
        }
    }
}
