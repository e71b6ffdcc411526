//! Refusals reach clients of gRPC-Web, JSON and Connect in their own form, whether Tollgate is behind or in
//! front of the filter that translates, at once or after a wait.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate_tests::connection::{Answer, Connection};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate};
use tollgate_tests::grpc_echo::GrpcEcho;

use crate::test_context::{TestContext, run_test};

/// A message without fields in gRPC's frame.
const EMPTY: &str = "\0\0\0\0\0";
/// The same in base64.
const EMPTY_TEXT: &str = "AAAAAAA=";
const JSON: &str = r#"{"text": "hello"}"#;

/// Form of a call, and of its answer.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Listener.
    to: &'static str,
    content_type: &'static str,
    body: &'static str,
    /// Whether an answer is RESOURCE_EXHAUSTED in this form.
    is_refusal: fn(&Answer) -> bool,
}

const FORMS: [Form; 9] = [
    Form::new(
        "web-behind",
        "application/grpc-web+proto",
        EMPTY,
        in_headers,
    ),
    Form::new(
        "web-behind",
        "application/grpc-web-text",
        EMPTY_TEXT,
        in_headers,
    ),
    Form::new("web-behind", "application/grpc", EMPTY, in_headers),
    Form::new(
        "web-in-front",
        "application/grpc-web+proto",
        EMPTY,
        in_trailers,
    ),
    Form::new(
        "web-in-front",
        "application/grpc-web-text",
        EMPTY_TEXT,
        in_text,
    ),
    Form::new("web-in-front", "application/grpc", EMPTY, in_headers),
    Form::new("json-behind", "application/json", JSON, in_status),
    Form::new("json-in-front", "application/json", JSON, in_problem),
    Form::new("connect-behind", "application/json", JSON, in_connect),
];

// === impl Form ===

impl Form {
    const fn new(
        to: &'static str,
        content_type: &'static str,
        body: &'static str,
        is_refusal: fn(&Answer) -> bool,
    ) -> Self {
        Self {
            to,
            content_type,
            body,
            is_refusal,
        }
    }

    async fn call(self, envoy: &Envoy, tenant: Option<&str>) -> Result<Answer> {
        let tenant = tenant.map(|tenant| format!("{TENANT_HEADER}: {tenant}\r\n"));
        let request = format!(
            "POST /echo.Echo/Any HTTP/1.1\r\nhost: x\r\ncontent-type: {}\r\naccept: {}\r\n\
             connect-protocol-version: 1\r\nte: trailers\r\n{}content-length: {}\r\n\r\n{}",
            self.content_type,
            self.content_type,
            tenant.unwrap_or_default(),
            self.body.len(),
            self.body,
        );
        let to = envoy.listener(self.to).context("a listener")?;
        let mut connection = Connection::open(to).await?;
        connection.answer_to(request.as_bytes()).await
    }
}

#[test]
fn a_refusal_is_translated_for_the_client() {
    run_test("a_refusal_is_translated_for_the_client", translated);
}

async fn translated(test: &TestContext) -> Result<()> {
    let echo = GrpcEcho::start().await?;
    // Coordinators that accept connections and never answer.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let spec = EnvoySpec::new("envoy", 1, echo.address(), Vec::new()).upstream_over_http2();
    let mut spec = spec.asking(silent.local_addr()?);
    spec.listeners = listeners(test.dir())?;
    let envoy = Envoy::start(test.dir(), &spec).await?;
    for (number, form) in FORMS.into_iter().enumerate() {
        let admitted = form.call(&envoy, None).await?;
        ensure!(admitted.status == 200, "{form:?}: {admitted:?}");
        ensure!(!(form.is_refusal)(&admitted), "{form:?}: {admitted:?}");
        // The first call is held and refused by a tick, since no lease comes, the next one at once.
        for call in ["late", "at once"] {
            let answer = form.call(&envoy, Some(&format!("t{number}"))).await?;
            ensure!((form.is_refusal)(&answer), "{form:?}, {call}: {answer:?}");
            let reason = answer.header("tollgate-reason");
            ensure!(
                reason == Some("tenant/requests"),
                "{form:?}, {call}: {answer:?}"
            );
            let names: Vec<_> = answer
                .lines()
                .filter_map(|line| line.split(": ").next())
                .collect();
            let twice = names
                .iter()
                .find(|name| names.iter().filter(|other| other == name).count() > 1);
            ensure!(twice.is_none(), "{form:?}: {twice:?} in {answer:?}");
        }
    }
    Ok(())
}

fn in_headers(answer: &Answer) -> bool {
    let kind = answer.header("content-type").unwrap_or_default();
    answer.status == 200
        && kind.starts_with("application/grpc")
        && answer.header("grpc-status") == Some("8")
        && answer.header("grpc-message").is_some()
        && answer.header("grpc-status-details-bin").is_some()
        && answer.body.is_empty()
}

fn in_trailers(answer: &Answer) -> bool {
    answer.status == 200
        && answer.header("content-type") == Some("application/grpc-web+proto")
        && answer.body.contains("grpc-status:8\r\n")
}

/// The first bytes of a frame of trailers, in base64.
fn in_text(answer: &Answer) -> bool {
    answer.status == 200
        && answer.header("content-type") == Some("application/grpc-web-text+proto")
        && answer.body.starts_with("gAAA")
}

fn in_status(answer: &Answer) -> bool {
    answer.status == 429
}

fn in_problem(answer: &Answer) -> bool {
    answer.status == 429 && answer.header("content-type") == Some("application/problem+json")
}

fn in_connect(answer: &Answer) -> bool {
    answer.status == 429 && answer.body.contains("resource_exhausted")
}

fn listeners(dir: &Path) -> Result<Vec<(String, Vec<Value>)>> {
    let rule = json!({"name": "tenant", "key": {"header": TENANT_HEADER}, "missing": "skip"});
    let plugin = by_tenant(&json!({"scopes": [rule], "no_lease": "pessimistic"}));
    let tollgate = tollgate(&plugin)?;
    let web = filter("grpc_web", "grpc_web.v3.GrpcWeb", &json!({}));
    let descriptor = dir.join("echo.pb");
    fs::write(&descriptor, descriptors().encode_to_vec())?;
    let transcoder = filter(
        "grpc_json_transcoder",
        "grpc_json_transcoder.v3.GrpcJsonTranscoder",
        &json!({"proto_descriptor": descriptor, "services": ["echo.Echo"], "auto_mapping": true}),
    );
    let connect = filter(
        "connect_grpc_bridge",
        "connect_grpc_bridge.v3.FilterConfig",
        &json!({}),
    );
    let chains = [
        ("web-behind", [web.clone(), tollgate.clone()]),
        ("web-in-front", [tollgate.clone(), web]),
        ("json-behind", [transcoder.clone(), tollgate.clone()]),
        ("json-in-front", [tollgate.clone(), transcoder]),
        ("connect-behind", [connect, tollgate]),
    ];
    let listeners = chains.map(|(name, filters)| (name.to_owned(), filters.to_vec()));
    Ok(listeners.to_vec())
}

/// A filter of Envoy's.
fn filter(name: &str, kind: &str, config: &Value) -> Value {
    let mut config = config.clone();
    config["@type"] = json!(format!(
        "type.googleapis.com/envoy.extensions.filters.http.{kind}"
    ));
    json!({"name": format!("envoy.filters.http.{name}"), "typed_config": config})
}

/// The service that the upstream is, with messages of one text.
fn descriptors() -> FileDescriptorSet {
    let text = FieldDescriptorProto {
        name: Some("text".to_owned()),
        number: Some(1),
        label: Some(Label::Optional.into()),
        r#type: Some(Type::String.into()),
        ..FieldDescriptorProto::default()
    };
    let message = DescriptorProto {
        name: Some("Message".to_owned()),
        field: vec![text],
        ..DescriptorProto::default()
    };
    let method = MethodDescriptorProto {
        name: Some("Any".to_owned()),
        input_type: Some(".echo.Message".to_owned()),
        output_type: Some(".echo.Message".to_owned()),
        ..MethodDescriptorProto::default()
    };
    let service = ServiceDescriptorProto {
        name: Some("Echo".to_owned()),
        method: vec![method],
        ..ServiceDescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("echo.proto".to_owned()),
        package: Some("echo".to_owned()),
        message_type: vec![message],
        service: vec![service],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    FileDescriptorSet { file: vec![file] }
}
