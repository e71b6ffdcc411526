//! Errors of a file that is no configuration.

use super::errors;

#[test]
fn the_shape_of_the_file_is_checked() {
    let rows = [
        ("", "limits: is missing"),
        ("# nothing", "limits: is missing"),
        ("limits:", "limits: is missing"),
        ("limits: []", "good"),
        ("limits: 5", "1:9: limits: `5` is not a list"),
        ("- 5", "1:1: the file is not a mapping"),
        ("limits: [", "1:9: limits: unclosed bracket '['"),
        (
            "limit: []",
            "1:1: limit: unknown field, did you mean `limits`? Expected one of listen, tls, admin, \
             cluster, parent, store, bounds, connections, limits, groups, attach, doorman, rls, rlqs",
        ),
        (
            "limits:\n- match: a\n  match: b",
            "3:3: limits[0].match: is here twice",
        ),
        (
            "limits:\n- match: a\n  request: {}",
            "3:3: limits[0].request: unknown field, did you mean `requests`? Expected one of match, requests, request_bytes, \
             response_bytes, concurrency",
        ),
        (
            "limits:\n- match: '*'\n  requests: {rate: 5}\n---\nlimits: []",
            "5:1: only single YAML document expected but multiple found",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(errors(text), want, "{text}");
    }
}

#[test]
fn a_wrong_shape_names_the_field_and_what_stands_there() {
    let rows = [
        ("parent: \"x\"", "1:9: parent: `x` is not a mapping"),
        (
            "limits:\n- {match: a, requests: {rate: .nan}}\nparent: x",
            "3:9: parent: `x` is not a mapping",
        ),
        ("cluster: 3", "1:10: cluster: `3` is not a mapping"),
        ("limits: {}", "1:9: limits: is a mapping, not a list"),
        ("limits:\n  a: b", "2:3: limits: is not a list"),
        ("limits:\n- x", "2:3: limits[0]: `x` is not a mapping"),
        ("parent:\n- x", "2:3: parent: is not a mapping"),
        (
            "listen: {grpc: {}}",
            "1:16: listen.grpc: is a mapping, not a single value",
        ),
        (
            "groups: {gold: {requests: 3}}",
            "1:27: groups.gold.requests: `3` is not a mapping; write `requests: {rate: 3}`",
        ),
        (
            "limits: [{match: a, request_bytes: 5 MiB/s}]",
            "1:36: limits[0].request_bytes: `5 MiB/s` is not a mapping; write \
             `request_bytes: {rate: 5 MiB}`",
        ),
        (
            "limits: [{match: a, concurrency: many}]",
            "1:34: limits[0].concurrency: `many` is not a mapping; write `concurrency: {max: 100}`",
        ),
        (
            "groups:\n  silver: {}\n  value: {value: 3}",
            "3:11: groups.value.value: unknown field, expected one of requests, request_bytes, \
             response_bytes, concurrency, fair_between",
        ),
        (
            "limits: [{requests: {guaranteed: {3: 4, 5: [6]}}}]",
            "1:44: limits[0].requests.guaranteed.5: is a list, not a single value",
        ),
        (
            "attach: {tenants: {acme: {group: [gold]}}}",
            "1:34: attach.tenants.acme.group: is a list, not a single value",
        ),
        (
            "groups: {gold: {}, gold: {}}",
            "1:20: groups.gold: is here twice",
        ),
        ("admin: s3cret", "1:8: admin: is not a mapping"),
        (
            "admin: {tokens: [s3cret]}",
            "1:18: admin.tokens[0]: is not a mapping",
        ),
        ("x", "1:1: `x` is not a mapping"),
        (
            "parent: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "1:9: parent: `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…` is not a mapping",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(errors(text), want, "{text}");
    }
}

/// Each anchor repeats the one before ten times.
fn bomb(levels: u32) -> String {
    let mut text = "listen: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..levels {
        let repeated = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("k{level}: &a{level} [{repeated}]\n"));
    }
    text
}

#[test]
fn too_much_is_said_in_words_that_need_no_yaml() {
    // In a section that takes a list, so that what is repeated is read.
    let repeats = |count: usize| format!("[{}]", vec!["*l"; count].join(", "));
    let many = format!(
        "groups: {{g: &l {{requests: {{rate: 5}}}}}}\nlimits: [{}]",
        vec!["{match: x, <<: *l}"; 30].join(", ")
    );
    // Few aliases are fine, also many to one anchor.
    assert!(errors(&many).contains("is matched by limits[0] already"));
    let limit = "&l {match: a, requests: {rate: 5}, concurrency: {max: 5}}";
    let text = format!("limits: [{limit}, {}", &repeats(49_000)[1..]);
    let message = errors(&text);
    let want = "the file is too large: more than 500000 values with all that aliases (`*name`) \
                repeat, or too many anchors or levels; write fewer, or repeat less";
    assert!(message.ends_with(want), "{message}");
    assert!(
        message.starts_with("1:181881: limits[45454]: "),
        "{message}"
    );
    for levels in [5, 9, 20] {
        let message = errors(&format!("limits: []\n{}", bomb(levels)));
        // The first line that is wrong is enough.
        assert!(message.starts_with("2:13: listen: "), "{message}");
    }
    let wrong = errors("groups: {g: &g {rate: 5}}\nlimits: [*g]");
    assert!(
        wrong.starts_with("1:17: groups.g.rate: unknown field"),
        "{wrong}"
    );
}
