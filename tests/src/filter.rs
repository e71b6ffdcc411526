//! HTTP filters as Envoy configures them: Tollgate, the baselines and Envoy's own limiters.

use std::env;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Error, Result, bail};
use serde_json::{Value, json};

use crate::artifact;

/// Name of the upstream cluster that every route goes to.
pub const UPSTREAM: &str = "upstream";
/// Name of the cluster of coordinators.
pub const COORDINATOR: &str = "tollgate";
/// The request header that names the tenant.
pub const TENANT_HEADER: &str = "x-tenant";

/// The variable that chooses the build of the filter that tests load: `wasm` or `native`.
const BUILD: &str = "TOLLGATE_BUILD";

/// Build of the Tollgate filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// For a wasm VM.
    Wasm,
    /// As a dynamic module.
    Native,
}

// === impl Build ===

impl Build {
    /// The build that this run is about, by default wasm.
    ///
    /// # Errors
    /// When the variable says anything else.
    pub fn under_test() -> Result<Self> {
        match env::var(BUILD) {
            Err(_) => Ok(Self::Wasm),
            Ok(name) => name.parse().context(BUILD),
        }
    }
}

impl FromStr for Build {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "wasm" => Ok(Self::Wasm),
            "native" => Ok(Self::Native),
            other => bail!("{other:?} is no build: must be wasm or native"),
        }
    }
}

/// The Tollgate filter with `plugin` as its JSON configuration.
///
/// # Errors
/// When the filter has not been built.
pub fn tollgate(plugin: &Value) -> Result<Value> {
    tollgate_in("tollgate", plugin)
}

/// The Tollgate filter with a `vm_id` of its own, for two filters in one Envoy.
///
/// # Errors
/// As [`tollgate`].
pub fn tollgate_in(vm_id: &str, plugin: &Value) -> Result<Value> {
    match Build::under_test()? {
        Build::Wasm => tollgate_wasm(vm_id, plugin),
        Build::Native => tollgate_native(plugin),
    }
}

/// The Tollgate filter for a wasm VM.
///
/// # Errors
/// When the filter has not been built.
pub fn tollgate_wasm(vm_id: &str, plugin: &Value) -> Result<Value> {
    let file = artifact::filter()?;
    Ok(wasm(vm_id, &file.to_string_lossy(), &plugin.to_string()))
}

/// The Tollgate filter as a dynamic module.
///
/// # Errors
/// When the module has not been built.
pub fn tollgate_native(plugin: &Value) -> Result<Value> {
    Ok(tollgate_from(&artifact::native_filter()?, plugin))
}

/// The benchmark's baseline: a dynamic module without any work.
///
/// # Errors
/// When the module has not been built.
pub fn empty_module() -> Result<Value> {
    Ok(tollgate_from(&artifact::baseline_module()?, &json!({})))
}

/// A dynamic module from any file, with `plugin` as its JSON configuration.
pub fn tollgate_from(file: &Path, plugin: &Value) -> Value {
    json!({
        "name": "envoy.filters.http.dynamic_modules.tollgate",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3\
                      .DynamicModuleFilter",
            "dynamic_module_config": {
                "module": {"local": {"filename": file}},
                "do_not_close": true,
                // The names of statistics are those of the wasm build then.
                "metrics_namespace": "wasmcustom",
            },
            "filter_name": "tollgate",
            "filter_config": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": plugin.to_string(),
            },
        },
    })
}

/// The Tollgate filter from another module than the one that users load.
pub fn tollgate_of(module: &Path, plugin: &Value) -> Value {
    wasm("tollgate", &module.to_string_lossy(), &plugin.to_string())
}

/// The smallest plugin configuration: scopes `tenant/<x-tenant>`, merged with `more`.
pub fn by_tenant(more: &Value) -> Value {
    let mut plugin = json!({
        "coordinator": COORDINATOR,
        "scopes": [{"name": "tenant", "key": {"header": TENANT_HEADER}}],
    });
    if let (Some(plugin), Some(more)) = (plugin.as_object_mut(), more.as_object()) {
        plugin.extend(more.clone());
    }
    plugin
}

/// A rule for scopes `tenant/<x-tenant>` with a safe capacity for each process.
pub fn tenant_rule(safe_capacity: f64) -> Value {
    json!({
        "name": "tenant",
        "key": {"header": TENANT_HEADER},
        "safe_capacity": safe_capacity,
    })
}

/// The benchmark's baseline filter without any work.
///
/// # Errors
/// When the filter has not been built.
pub fn empty_baseline() -> Result<Value> {
    let file = artifact::baseline_filter("bench_empty_filter")?;
    Ok(wasm("empty", &file.to_string_lossy(), ""))
}

/// The benchmark's baseline filter that only reads the request headers called `names`.
///
/// # Errors
/// When the filter has not been built.
pub fn header_baseline(names: &[&str]) -> Result<Value> {
    let file = artifact::baseline_filter("bench_header_filter")?;
    let vm_id = format!("headers-{}", names.len());
    Ok(wasm(&vm_id, &file.to_string_lossy(), &names.join(",")))
}

/// Envoy's local limiter with a bucket for each of so many tenants that never runs dry.
pub fn local_rate_limit(tenants: usize) -> Value {
    let plenty = json!({"max_tokens": 4_000_000_000_u32, "tokens_per_fill": 4_000_000_000_u32,
                        "fill_interval": "1s"});
    let always = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "local",
            "token_bucket": plenty,
            "filter_enabled": always,
            "filter_enforced": always,
            "max_dynamic_descriptors": tenants,
            "descriptors": [{"entries": [{"key": "tenant"}], "token_bucket": plenty}],
            "rate_limits": [tenant_descriptor()],
        },
    })
}

/// Envoy's global limiter, which calls the service in `cluster` for every request.
pub fn global_rate_limit(cluster: &str) -> Value {
    json!({
        "name": "envoy.filters.http.ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            "domain": "tollgate",
            "timeout": "1s",
            "failure_mode_deny": true,
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": {"envoy_grpc": {"cluster_name": cluster}},
            },
            "rate_limits": [tenant_descriptor()],
        },
    })
}

fn tenant_descriptor() -> Value {
    json!({"actions": [{
        "request_headers": {"header_name": TENANT_HEADER, "descriptor_key": "tenant"},
    }]})
}

/// A wasm filter. Its `vm_id` is its name, so it has shared data of its own.
fn wasm(name: &str, file: &str, configuration: &str) -> Value {
    json!({
        "name": format!("envoy.filters.http.wasm.{name}"),
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": name,
                "failure_policy": "FAIL_RELOAD",
                "vm_config": {
                    "vm_id": name,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": file}},
                },
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": configuration,
                },
            },
        },
    })
}
