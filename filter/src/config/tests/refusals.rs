//! Form of a refusal.

use super::*;

#[test]
fn refusals_can_be_dressed() {
    let json = r#"{"coordinator": "c", "refusal_headers": ["draft03"], "scopes": [
        {"name": "a", "key": {"header": "x"}},
        {"name": "b", "key": {"header": "x"}, "refusal": {"status": 503,
            "headers": {"X-Region": "eu 1"}, "body": "later", "content_type": "text/html"}}]}"#;
    let (config, unknown) = parse(json).unwrap();
    assert!(unknown.is_empty());
    let formats = Formats {
        ietf: false,
        draft03: true,
    };
    let plain = Terms {
        formats,
        ..Terms::DEFAULT
    };
    assert_eq!(config.rules[0].terms, plain);
    let dressed = Terms {
        status: 503,
        headers: vec![("x-region".to_owned(), "eu 1".to_owned())],
        body: Some(Body {
            content_type: "text/html".to_owned(),
            text: "later".to_owned(),
        }),
        ..plain
    };
    assert_eq!(config.rules[1].terms, dressed);
}

#[test]
fn refusals_that_no_client_could_read_are_refused() {
    let refusal = |fields: &str| named(&format!(r#""refusal": {fields}"#));
    let long = "b".repeat(8193);
    let many: Vec<String> = (0..17).map(|n| format!(r#""x-{n}": """#)).collect();
    refused(&[
        (
            with(r#""refusal_headers": "ietf""#),
            "refusal_headers is \"ietf\": must be a list",
        ),
        (
            with(r#""refusal_headers": ["rfc"]"#),
            "refusal_headers is \"rfc\": must be a list",
        ),
        (refusal("7"), "scopes[0].refusal is 7: must be an object"),
        (
            refusal(r#"{"status": 200}"#),
            "scopes[0].refusal.status is 200: must be a whole number from 400",
        ),
        (
            refusal(r#"{"headers": []}"#),
            "scopes[0].refusal.headers is []: must be an object",
        ),
        (
            refusal(&format!(r#"{{"headers": {{{}}}}}"#, many.join(","))),
            "at most 16 header names",
        ),
        (
            refusal(r#"{"headers": {"a b": ""}}"#),
            "must be 1 to 100 characters",
        ),
        (
            refusal(r#"{"headers": {"Content-Length": "3"}}"#),
            "is \"content-length\": must be none that",
        ),
        (
            refusal(r#"{"headers": {":status": "200"}}"#),
            "must be none that",
        ),
        (
            refusal(r#"{"headers": {"tollgate-reason": "x"}}"#),
            "must be none that",
        ),
        (
            refusal(r#"{"headers": {"x": 7}}"#),
            "refusal.headers.x is 7: must be up to 1000",
        ),
        (
            refusal(r#"{"headers": {"x": "a\nb"}}"#),
            "must be up to 1000 printable",
        ),
        (
            refusal(r#"{"content_type": ""}"#),
            "refusal.content_type is \"\": must be a media type",
        ),
        (
            refusal(&format!(r#"{{"body": "{long}"}}"#)),
            "must be at most 8192 bytes",
        ),
    ]);
}
