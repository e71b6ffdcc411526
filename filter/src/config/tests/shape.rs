//! Requests that wait for their turn.

use super::*;

#[test]
fn waiting_can_be_set_and_is_checked() {
    let shape = r#""on_limit": "shape", "max_wait_ms": 250, "max_waiting": 5"#;
    let (shaped, _) = parse(&named(shape)).unwrap();
    let shown = shaped.engine.rules[0].shape.unwrap();
    assert_eq!((shown.max_wait.as_millis(), shown.max_waiting), (250, 5));
    refused(&[
        (
            named(r#""on_limit": "queue""#),
            "scopes[0].on_limit is \"queue\": must be \"refuse\", \"shape\"",
        ),
        (
            named(r#""max_wait_ms": 30001"#),
            "scopes[0].max_wait_ms is 30001: must be a whole number from 1 to 30000",
        ),
        (
            named(r#""max_waiting": 0"#),
            "scopes[0].max_waiting is 0: must be a whole number from 1",
        ),
        (
            with(r#""max_waiting": 100001"#),
            "max_waiting is 100001: must be a whole number from 0",
        ),
    ]);
}
