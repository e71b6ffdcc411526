//! Routes of an Envoy, each with other descriptors.

use serde_json::{Value, json};
use tollgate_tests::filter::{TENANT_HEADER, UPSTREAM};

/// The header that chooses the route.
pub(super) const ROUTE_HEADER: &str = "x-route";
pub(super) const PAID_HEADER: &str = "x-paid";
pub(super) const MODEL_HEADER: &str = "x-model";
/// Limit of descriptors that bring one along, by the metadata that a filter sets.
pub(super) const PLAN: [&str; 2] = ["plan", "limit"];
/// Value of the upstream's header `x-cost`.
const COST: &str = "%DYNAMIC_METADATA(tollgate:cost)%";

pub(super) fn virtual_hosts() -> Value {
    let mut own = route("of-the-route");
    own["route"]["rate_limits"] = json!([with(&tenant(), number(3))]);
    let routes = descriptors().into_iter().map(|(name, rate_limits)| {
        let mut route = route(name);
        route["typed_per_filter_config"] = json!({"envoy.filters.http.ratelimit": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3\
                      .RateLimitPerRoute",
            "rate_limits": rate_limits,
        }});
        route
    });
    let routes: Vec<Value> = routes.chain([own]).collect();
    json!([{"name": "all", "domains": ["*"], "routes": routes}])
}

/// Descriptors of each route, in the filter's configuration for it.
fn descriptors() -> Vec<(&'static str, Vec<Value>)> {
    let (tenant, paid) = (tenant(), by_header(PAID_HEADER, "paid"));
    // A key that is there twice.
    let special = json!([
        {"generic_key": {"descriptor_value": "usual"}},
        {"generic_key": {"descriptor_value": "special"}},
        tenant[0],
    ]);
    let path = json!([
        tenant[0],
        {"request_headers": {"header_name": ":path", "descriptor_key": "path"}},
    ]);
    let cost = json!({"format": COST});
    let plan = json!({"key": PLAN[0], "path": [{"key": PLAN[1]}]});
    let plan = json!({"dynamic_metadata": {"metadata_key": plan}});
    let look = [&tenant, &paid, &by_header(MODEL_HEADER, "model")];
    vec![
        ("look", look.map(|of| with(of, number(0))).into()),
        ("number", vec![with(&tenant, number(3))]),
        (
            "format",
            vec![with(&tenant, json!({"format": "%REQ(x-hits)%"}))],
        ),
        (
            "cost",
            vec![with(&paid, number(0)), at_end(with(&paid, cost.clone()))],
        ),
        (
            "refund",
            vec![
                with(&tenant, number(5)),
                at_end(with(&tenant, negative(cost))),
            ],
        ),
        (
            "refund-number",
            vec![
                with(&tenant, number(5)),
                at_end(with(&tenant, negative(number(5)))),
            ],
        ),
        ("plan", vec![json!({"actions": tenant, "limit": plan})]),
        (
            "quota",
            vec![
                with(&model("small"), number(2)),
                with(&model("large"), number(1)),
            ],
        ),
        (
            "paths",
            vec![json!({"actions": tenant}), json!({"actions": path})],
        ),
        ("special-look", vec![with(&special, number(0))]),
        (
            "special",
            vec![json!({"actions": tenant}), json!({"actions": special})],
        ),
    ]
}

fn route(name: &str) -> Value {
    let headers = json!([{"name": ROUTE_HEADER, "string_match": {"exact": name}}]);
    json!({"match": {"prefix": "/", "headers": headers}, "route": {"cluster": UPSTREAM}})
}

fn tenant() -> Value {
    by_header(TENANT_HEADER, "tenant")
}

/// The actions of a descriptor that has the value of `header`, if there is one.
fn by_header(header: &str, key: &str) -> Value {
    json!([{"request_headers": {"header_name": header, "descriptor_key": key}}])
}

fn model(name: &str) -> Value {
    json!([{"generic_key": {"descriptor_key": "model", "descriptor_value": name}}])
}

fn with(actions: &Value, hits: Value) -> Value {
    json!({"actions": actions, "hits_addend": hits})
}

fn number(number: u64) -> Value {
    json!({"number": number})
}

fn negative(mut hits: Value) -> Value {
    hits["is_negative_hits"] = json!(true);
    hits
}

fn at_end(mut descriptor: Value) -> Value {
    descriptor["apply_on_stream_done"] = json!(true);
    descriptor
}
