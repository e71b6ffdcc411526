//! Requests as metadata for other filters of the proxy, in the form that envoyproxy/ratelimit gives.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;

// === free functions ===

/// Returns the domain, the descriptors and the hits of a request.
pub(super) fn of_request(request: &RateLimitRequest) -> Struct {
    let descriptors = request.descriptors.iter().map(descriptor).collect();
    let mut fields = vec![
        ("domain", text(request.domain.clone())),
        ("descriptors", list(descriptors)),
    ];
    if request.hits_addend != 0 {
        fields.push(("hitsAddend", number(request.hits_addend.into())));
    }
    object(fields)
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| text(format!("{}={}", entry.key, entry.value)));
    let mut fields = vec![("entries", list(entries.collect()))];
    if let Some(hits) = descriptor.hits_addend {
        // Beyond 2^53 a number of JSON is not exact, and no request has so many hits.
        fields.push(("hitsAddend", number(hits as f64)));
    }
    value(Kind::StructValue(object(fields)))
}

fn object(fields: Vec<(&str, Value)>) -> Struct {
    let fields = fields.into_iter();
    Struct {
        fields: fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}

const fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

const fn number(number: f64) -> Value {
    value(Kind::NumberValue(number))
}

const fn text(text: String) -> Value {
    value(Kind::StringValue(text))
}

const fn list(values: Vec<Value>) -> Value {
    value(Kind::ListValue(ListValue { values }))
}
