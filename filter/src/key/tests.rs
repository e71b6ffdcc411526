use super::*;
use crate::config::Config;
use crate::fake::{Fake, Process};

#[test]
fn only_printable_text_is_a_key_and_a_long_one_is_hashed() {
    let longest = "x".repeat(KEY_LEN_MAX);
    let too_long = "x".repeat(KEY_LEN_MAX + 1);
    let hash = hashed(too_long.as_bytes());
    let rows: [(&[u8], Option<&str>); 12] = [
        (b"acme", Some("acme")),
        (b"  acme\t", Some("acme")),
        (b"a b", Some("a b")),
        ("b\u{fc}cher".as_bytes(), Some("b\u{fc}cher")),
        (longest.as_bytes(), Some(&longest)),
        (too_long.as_bytes(), Some(&hash)),
        (b"", None),
        (b" \t ", None),
        (b"a\nb", None),
        (b"a\x7f", None),
        ("\u{85}".as_bytes(), None),
        (b"\xff\xfe", None),
    ];
    for (value, want) in rows {
        assert_eq!(parsed(trimmed(value)).as_deref(), want, "{value:?}");
    }
}

fn key(json: &str) -> Key {
    let json = format!(r#"{{"coordinator": "c", "scopes": [{{"name": "a", "key": {json}}}]}}"#);
    let (mut config, unknown) = Config::parse(json.as_bytes()).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    config.rules.remove(0).key
}

fn host() -> Fake {
    let host = Fake::new(&Process::new());
    host.set_headers(&[
        (":path", "/v1/tenants/acme/orders?region=eu%20west&bad=%"),
        (":authority", "API.example.com:8443"),
        ("x-tenant", " acme "),
        ("x-slash", "a/b"),
        ("x-empty", ""),
        ("cookie", "a=1; sid=s1"),
        // {"sub": "alice", "org": {"id": 42}}
        (
            "authorization",
            "Bearer e30.eyJzdWIiOiAiYWxpY2UiLCAib3JnIjogeyJpZCI6IDQyfX0.x",
        ),
    ]);
    let jwt = "metadata.filter_metadata.envoy.filters.http.jwt_authn.payload";
    let properties: [(&str, &[u8]); 9] = [
        (&format!("{jwt}.sub"), b"alice"),
        (&format!("{jwt}.age"), &42.0_f64.to_le_bytes()),
        ("xds.route_metadata.filter_metadata.app.plan", b"gold"),
        (
            "xds.virtual_host_metadata.filter_metadata.app.team",
            b"core",
        ),
        ("xds.route_name", b"checkout"),
        ("filter_state.app.tenant", b"stateful"),
        ("source.address", b"192.0.2.77:4711"),
        ("connection.uri_san_peer_certificate", b"spiffe://acme/api"),
        ("connection.dns_san_peer_certificate", b""),
    ];
    let properties = properties.map(|(path, value)| (path.to_owned(), value.to_vec()));
    *host.properties.borrow_mut() = properties.into();
    host
}

/// Key of a worker from the value that is found, if it has any.
fn resolved(found: Found<'_>) -> Result<String, &'static str> {
    match found {
        Found::Missing => Err("missing"),
        Found::Value(value) => match parsed(trimmed(&value)) {
            Some(key) => Ok(key.into_owned()),
            None if trimmed(&value).is_empty() => Err("missing"),
            None => Err("missing"),
        },
    }
}

#[test]
fn every_kind_of_key_is_read() {
    let jwt = |claim: &str| {
        format!(r#"{{"metadata": ["envoy.filters.http.jwt_authn", "payload", "{claim}"]}}"#)
    };
    let token_hash = hashed(b"e30.eyJzdWIiOiAiYWxpY2UiLCAib3JnIjogeyJpZCI6IDQyfX0.x");
    let rows = [
        (r#"{"header": "X-Tenant"}"#, Ok("acme")),
        (r#"{"header": "x-empty"}"#, Err("missing")),
        (r#"{"query": "region"}"#, Ok("eu west")),
        (r#"{"query": "tenant"}"#, Err("missing")),
        (r#"{"query": "bad"}"#, Err("missing")),
        (r#"{"path": {"segment": 3}}"#, Ok("acme")),
        (r#"{"path": {"segment": 9}}"#, Err("missing")),
        (r#"{"path": "/v1/tenants/{tenant}/**"}"#, Ok("acme")),
        (r#"{"path": "/v2/{tenant}"}"#, Err("missing")),
        (r#"{"authority": true}"#, Ok("api.example.com")),
        (r#"{"source_address": true}"#, Ok("192.0.2.77")),
        (
            r#"{"source_address": {"prefix_v4": 24}}"#,
            Ok("192.0.2.0/24"),
        ),
        (r#"{"peer_san": "uri"}"#, Ok("spiffe://acme/api")),
        (r#"{"peer_san": "dns"}"#, Err("missing")),
        (&jwt("sub"), Ok("alice")),
        (&jwt("age"), Ok("42")),
        (&jwt("iss"), Err("missing")),
        (r#"{"route_metadata": ["app", "plan"]}"#, Ok("gold")),
        (r#"{"virtual_host_metadata": ["app", "team"]}"#, Ok("core")),
        (r#"{"route_name": true}"#, Ok("checkout")),
        (r#"{"filter_state": "app.tenant"}"#, Ok("stateful")),
        (r#"{"constant": "all"}"#, Ok("all")),
        (r#"{"cookie": "sid"}"#, Ok("s1")),
        (r#"{"cookie": "si"}"#, Err("missing")),
        (
            r#"{"cookie": "sid", "hash": true}"#,
            Ok("sha256:e8bc163c82eee18733288c7d4ac636db"),
        ),
        (r#"{"bearer": true}"#, Ok(&token_hash)),
        (
            r#"{"bearer": true, "hash": false, "regex": "^[a-z0-9]+"}"#,
            Ok("e30"),
        ),
        (r#"{"unverified_claim": "sub"}"#, Ok("alice")),
        (r#"{"unverified_claim": ["org", "id"]}"#, Ok("42")),
        (
            r#"{"unverified_claim": "iss", "hash": true}"#,
            Err("missing"),
        ),
        (r#"{"header": "x-empty", "hash": true}"#, Err("missing")),
        (r#"{"header": "x-slash", "regex": "^(.)/"}"#, Ok("a")),
        (r#"{"header": "x-slash", "regex": "^b"}"#, Err("missing")),
        (
            r#"{"join": [{"header": "x-tenant"}, {"route_name": true}]}"#,
            Ok("acme/checkout"),
        ),
        (
            r#"{"join": [{"header": "x-tenant"}, {"header": "x-slash"}]}"#,
            Ok("acme/a/b"),
        ),
        (
            r#"{"join": [{"header": "x-slash"}, {"header": "x-tenant"}]}"#,
            Err("missing"),
        ),
        (
            r#"{"join": [{"header": "x-slash"}, {"header": "x-tenant"}], "with": ":"}"#,
            Ok("a/b:acme"),
        ),
        (
            r#"{"join": [{"cookie": "sid", "hash": true}, {"constant": "a"}], "with": ":"}"#,
            Ok("sha256:e8bc163c82eee18733288c7d4ac636db:a"),
        ),
        (
            r#"{"join": [{"query": "bad"}, {"header": "x-none"}]}"#,
            Err("missing"),
        ),
        (
            r#"{"join": [{"query": "bad"}, {"header": "x-tenant"}]}"#,
            Err("missing"),
        ),
    ];
    let host = host();
    for (json, want) in rows {
        let key = key(json);
        let found = resolved(key.read(&host).unwrap());
        assert_eq!(found, want.map(str::to_owned), "{json}");
        assert!(!key.in_words().is_empty());
    }
}

#[test]
fn an_expression_is_compiled_before_it_is_read() {
    let host = host();
    let say = |text: &str, value: &[u8]| {
        let mut properties = host.properties.borrow_mut();
        properties.insert(text.to_owned(), value.to_vec());
    };
    say("request.host", b"acme");
    say("size(request.path)", &12_u64.to_le_bytes());
    let rows = [
        (r#"{"cel": "request.host"}"#, Ok("acme")),
        (r#"{"cel": "request.headers['x-none']"}"#, Err("missing")),
        (r#"{"cel": "size(request.path)"}"#, Ok("12")),
        (
            r#"{"join": [{"cel": "request.host"}, {"header": "x-tenant"}]}"#,
            Ok("acme/acme"),
        ),
    ];
    for (json, want) in rows {
        let mut key = key(json);
        assert_eq!(key.compile(&host), Ok(true));
        let found = resolved(key.read(&host).unwrap());
        assert_eq!(found, want.map(str::to_owned), "{json}");
    }
    for bad in [
        r#"{"cel": "1 +"}"#,
        r#"{"join": [{"cel": "1 +"}, {"header": "x"}]}"#,
    ] {
        assert_eq!(key(bad).compile(&host), Ok(false), "{bad}");
    }
}

#[test]
fn a_request_without_a_path_has_no_key_of_it() {
    let host = Fake::new(&Process::new());
    for json in [
        r#"{"query": "x"}"#,
        r#"{"path": {"segment": 1}}"#,
        r#"{"path": "/{x}"}"#,
        r#"{"authority": true}"#,
        r#"{"source_address": true}"#,
    ] {
        assert_eq!(key(json).read(&host), Ok(Found::Missing), "{json}");
    }
}
