//! Keys that Envoy has to compile.

use super::*;
use crate::fake::{Fake, Process};

fn compiled(key: &str) -> Result<Config, String> {
    let (mut config, _) = parse(&rule(&format!(r#""name": "a", "key": {key}"#)))?;
    let done = config.compile(&Fake::new(&Process::new()));
    done.map(|()| config).map_err(|error| error.to_string())
}

#[test]
fn an_expression_that_is_none_is_refused_with_its_text() {
    assert!(compiled(r#"{"cel": "request.host"}"#).is_ok());
    assert!(compiled(r#"{"header": "x"}"#).is_ok());
    let want = "scopes[0].key is 1 +: must be an expression in CEL";
    let error = compiled(r#"{"cel": "1 +"}"#).unwrap_err();
    assert!(error.starts_with(want), "{error}");
    let long = format!(r#"{{"cel": "{}"}}"#, "x".repeat(1001));
    for (key, want) in [
        (r#"{"cel": ""}"#, "scopes[0].key.cel is \"\": must be an"),
        (&long, "must be an expression of 1 to 1000 bytes"),
    ] {
        let error = compiled(key).unwrap_err();
        assert!(error.contains(want), "{error}");
    }
}
