//! Coordinators without a cluster.

use super::*;
use crate::grpc_service::{Files, Pem, Tls};

fn with_coordinator(coordinator: &str) -> String {
    format!(
        r#"{{"coordinator": {coordinator}, "scopes": [{{"name": "a", "key": {{"header": "x"}}}}]}}"#
    )
}

#[test]
fn coordinators_can_have_an_address() {
    for target in [
        "tollgate.infra:7710",
        "10.0.0.1:1",
        "[fd00::1]:65535",
        "a_b-c:80",
    ] {
        let json = with_coordinator(&format!(r#"{{"address": "{target}"}}"#));
        let (config, unknown) = parse(&json).unwrap();
        assert!(unknown.is_empty());
        assert_eq!(config.engine.coordinator, format!("grpc://{target}"));
        let address = config.address.unwrap();
        assert_eq!((address.target.as_str(), address.tls), (target, None));
    }
    let (config, _) = parse(&with_coordinator(r#""tollgate""#)).unwrap();
    assert_eq!(
        (config.engine.coordinator.as_str(), config.address),
        ("tollgate", None)
    );
}

#[test]
fn an_address_can_speak_tls() {
    let tls = |fields: &str| {
        let json = format!(r#"{{"address": "t:1", "port": 1, "tls": {{"later": 1{fields}}}}}"#);
        let json = with_coordinator(&json).replacen('{', r#"{"unknown_fields": "warn", "#, 1);
        let (config, unknown) = parse(&json).unwrap();
        assert_eq!(unknown, ["coordinator.tls.later", "coordinator.port"]);
        config.address.unwrap().tls.unwrap()
    };
    let system = Tls {
        ca: None,
        files: None,
        server_name: None,
        reread_seconds: None,
    };
    assert_eq!(tls(""), system);
    let all = r#", "ca": "/tls/ca.crt", "cert": "/tls/tls.crt", "key": "/tls/tls.key",
                 "server_name": "coordinator.example", "reread_seconds": 60"#;
    let want = Tls {
        ca: Some(Pem::File("/tls/ca.crt".to_owned())),
        files: Some(Files {
            cert: "/tls/tls.crt".to_owned(),
            key: "/tls/tls.key".to_owned(),
        }),
        server_name: Some("coordinator.example".to_owned()),
        reread_seconds: Some(60),
    };
    assert_eq!(tls(all), want);
    let pem = "-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----";
    let want = Some(Pem::Text(pem.replace("\\n", "\n")));
    assert_eq!(tls(&format!(r#", "ca": "{pem}""#)).ca, want);
}

#[test]
fn coordinators_that_cannot_be_called_are_refused() {
    let long = "n".repeat(121);
    let name = format!("\"{long}\"");
    let host = format!(r#"{{"address": "{long}:7710"}}"#);
    let rows = [
        (
            "null",
            "coordinator is required: the name of Envoy's cluster of",
        ),
        (
            &name,
            "must be the name of Envoy's cluster of coordinators, 1 to 120 bytes",
        ),
        (
            r#""grpc://tollgate:7710""#,
            "or an object with their address, {\"address\"",
        ),
        (
            r#""grpcs://tollgate:7710""#,
            "coordinator is \"grpcs://tollgate:7710\": must be",
        ),
        ("{}", "coordinator.address is required: HOST:PORT"),
        (
            r#"{"address": 7710}"#,
            "coordinator.address is 7710: must be a string",
        ),
        (
            r#"{"address": "tollgate"}"#,
            "coordinator.address is \"tollgate\": must be HOST:PORT",
        ),
        (r#"{"address": "tollgate:"}"#, "must be HOST:PORT"),
        (r#"{"address": "tollgate:0"}"#, "a port from 1 to 65535"),
        (r#"{"address": "tollgate:65536"}"#, "a port from 1 to 65535"),
        (r#"{"address": "tollgate:+1"}"#, "a port from 1 to 65535"),
        (r#"{"address": "dns:///tollgate:1"}"#, "with a DNS name"),
        (r#"{"address": "a..b:1"}"#, "with a DNS name"),
        (r#"{"address": "::1:7710"}"#, "an IPv6 address in brackets"),
        (
            r#"{"address": "[::g]:7710"}"#,
            "an IPv6 address in brackets",
        ),
        (&host, "together at most 120 bytes"),
    ];
    refused(&rows.map(|(coordinator, error)| (with_coordinator(coordinator), error)));
}

#[test]
fn tls_that_cannot_be_spoken_is_refused() {
    let path = format!(r#"{{"ca": "/{}"}}"#, "n".repeat(120));
    let pem = format!(r#"{{"ca": "-----BEGIN{}"}}"#, "c".repeat(6991));
    let rows = [
        ("true", "coordinator.tls is true: must be an object"),
        (
            r#"{"ca": "ca.crt"}"#,
            "coordinator.tls.ca is \"ca.crt\": must be the absolute path",
        ),
        (r#"{"ca": "/"}"#, "must be the absolute path"),
        (&path, "at most 120 bytes"),
        (&pem, "or the certificates in PEM, at most 7000 bytes"),
        (
            r#"{"cert": "c", "key": "/k"}"#,
            "coordinator.tls.cert is \"c\": must be the absolute path",
        ),
        (
            r#"{"cert": "/c"}"#,
            "coordinator.tls.key is required: tls.cert and tls.key are",
        ),
        (
            r#"{"key": "/k"}"#,
            "coordinator.tls.cert is required: tls.cert and tls.key are",
        ),
        (
            r#"{"server_name": "a b"}"#,
            "coordinator.tls.server_name is \"a b\": must be a DNS",
        ),
        (
            r#"{"reread_seconds": 0}"#,
            "tls.reread_seconds is 0: must be a whole number from 1",
        ),
    ];
    let json = |tls| with_coordinator(&format!(r#"{{"address": "t:1", "tls": {tls}}}"#));
    refused(&rows.map(|(tls, error)| (json(tls), error)));
}
