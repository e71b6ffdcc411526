//! The API's description of itself, against its behaviour.

use serde_json::Value;

use crate::harness::{Ask, Coordinator};

const LIMITS: &str = "- {match: '*', requests: {rate: 5}}";

#[tokio::test]
async fn the_description_names_each_operation_once() {
    let coordinator = Coordinator::start(LIMITS).await;
    let api = coordinator.get("/v1/openapi.json").await.json();
    assert_eq!(api["openapi"], "3.1.0");
    let mut ids = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        assert!(!path.contains('*'), "{path}");
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(!ids.contains(&id), "{id} is there twice");
            ids.push(id);
            let summary = operation["summary"].as_str().unwrap_or_default();
            assert!(!summary.is_empty(), "{method} {path} has no summary");
        }
    }
    assert!(ids.len() >= 6, "{ids:?}");
}

#[tokio::test]
async fn every_reference_of_the_description_leads_somewhere() {
    let coordinator = Coordinator::start(LIMITS).await;
    let api = coordinator.get("/v1/openapi.json").await.json();
    let mut references = Vec::new();
    collect(&api, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let target = api.pointer(reference.strip_prefix('#').unwrap());
        assert!(target.is_some(), "{reference} leads nowhere");
    }
}

#[tokio::test]
async fn a_method_that_a_path_does_not_have_is_a_problem_that_names_those_it_has() {
    let coordinator = Coordinator::start(LIMITS).await;
    for method in ["PUT", "POST", "DELETE", "PATCH", "OPTIONS", "BREW"] {
        let answer = coordinator.ask(&Ask::new(method, "/v1/scopes")).await;
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("allow"), "get,head", "{method}");
        let kind = answer.header("content-type");
        assert_eq!(kind, "application/problem+json", "{method}");
    }
    let head = coordinator.ask(&Ask::new("HEAD", "/v1/scopes")).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

fn collect<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}
