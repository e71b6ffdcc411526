use super::super::Config;
use super::*;

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn parse(admin: &str) -> Result<Admin, String> {
    let limits = "limits: [{match: '*', requests: {rate: 5}}]";
    let config = Config::parse(&format!("admin: {admin}\n{limits}\n"));
    config
        .map(|config| config.admin)
        .map_err(|errors| errors.to_string())
}

#[test]
fn a_good_section_says_what_it_says() {
    let text = format!(
        "{{tokens: [{{name: ops, role: admin, sha256: {HASH}}}], public: [metrics, status], \
         insecure: true}}"
    );
    let admin = parse(&text).unwrap();
    let token = admin.tokens.find("abc").unwrap();
    assert_eq!((token.name.as_str(), token.role), ("ops", Role::Admin));
    assert_eq!(
        admin.public,
        Public {
            metrics: true,
            status: true
        }
    );
    assert!(admin.insecure);
    assert_eq!(parse("{}"), Ok(Admin::default()));
    assert_eq!(parse("{tokens: []}"), Ok(Admin::default()));
}

#[test]
fn what_is_wrong_names_line_field_value_and_rule() {
    let token = |token: &str| format!("{{tokens: [{{{token}}}]}}");
    let rows = [
        (
            token(&format!("role: admin, sha256: {HASH}")),
            "1:18: admin.tokens[0].name: is missing",
        ),
        (
            token(&format!("name: a, role: root, sha256: {HASH}")),
            "1:34: admin.tokens[0].role: \"root\" is neither `viewer` nor `admin`",
        ),
        (
            token(&format!("name: \"a\\n\", role: admin, sha256: {HASH}")),
            "1:25: admin.tokens[0].name: \"a\\n\" is not 1 to 64 letters, digits, spaces or any of \
             `-_.@/`",
        ),
        (
            token("name: a, role: admin, sha256: tollgate_secret"),
            "1:49: admin.tokens[0].sha256: has 15 characters, which are not a SHA-256 hash: 64 \
             hexadecimal digits, as `tollgate token` prints them",
        ),
        (
            "{public: [metrics, pprof]}".to_owned(),
            "1:27: admin.public[1]: \"pprof\" is neither `metrics` nor `status`",
        ),
        (
            "{insecure: yes}".to_owned(),
            "1:19: admin.insecure: \"yes\" is neither `true` nor `false`",
        ),
    ];
    for (section, want) in rows {
        assert_eq!(parse(&section), Err(want.to_owned()), "{section}");
    }
}

#[test]
fn no_two_tokens_have_the_same_name_or_hash() {
    let one = format!("{{name: a, role: admin, sha256: {HASH}}}");
    let message = parse(&format!("{{tokens: [{one}, {one}]}}")).unwrap_err();
    assert!(
        message.contains("the name \"a\" is here twice"),
        "{message}"
    );
    assert!(
        message.contains("the token of \"a\" is here twice"),
        "{message}"
    );
}

#[test]
fn there_is_a_bound_on_tokens() {
    let one = |i| format!("{{name: a{i}, role: admin, sha256: '{i:064x}'}}");
    let list = |n| (0..n).map(one).collect::<Vec<_>>().join(", ");
    assert!(parse(&format!("{{tokens: [{}]}}", list(TOKENS_MAX))).is_ok());
    let message = parse(&format!("{{tokens: [{}]}}", list(TOKENS_MAX + 1)));
    let want = "1:17: admin.tokens: has 101 tokens, more than 100";
    assert_eq!(message, Err(want.to_owned()));
}

#[test]
fn beyond_loopback_it_needs_tls_and_a_token() {
    let open = Admin::default();
    let token = format!("{{tokens: [{{name: ops, role: admin, sha256: {HASH}}}]}}");
    let closed = parse(&token).unwrap();
    let anyway = parse("{insecure: true}").unwrap();
    let (far, near) = ("0.0.0.0:7711", "127.0.0.1:7711");
    let rows = [
        (&open, near, false, None),
        (&open, "[::1]:7711", false, None),
        (&open, "[::ffff:127.0.0.1]:7711", false, None),
        (&open, far, false, Some("TLS and a token (admin.tokens)")),
        (&open, far, true, Some("a token (admin.tokens)")),
        (&closed, far, false, Some("TLS")),
        (&closed, "[::]:7711", false, Some("TLS")),
        (&closed, far, true, None),
        (&anyway, far, false, None),
    ];
    for (admin, address, tls, want) in rows {
        let address: SocketAddr = address.parse().unwrap();
        assert_eq!(admin.missing_protection(address, tls), want, "{address}");
    }
}
