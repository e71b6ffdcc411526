//! Filters as the control planes of meshes configure them: Istio and Envoy Gateway.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::artifact;
use crate::envoy::{Envoy, START_LIMIT, swap_in};
use crate::wait;

/// Istio's name for the cluster of port 7710 of the Service `tollgate` in the namespace `infra`.
pub const ISTIO_CLUSTER: &str = "outbound|7710||tollgate.infra.svc.cluster.local";

const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";

/// A WasmPlugin of Istio's.
#[derive(Clone, Debug)]
pub struct WasmPlugin {
    /// Namespace of the resource.
    pub namespace: String,
    /// Its `pluginName`, here also its name.
    pub name: String,
    /// Its resource version, which each edit changes.
    pub version: u64,
    /// Its `pluginConfig`.
    pub config: Value,
}

/// A filter that Envoy discovers by itself (ECDS), from a file.
#[derive(Debug)]
pub struct DiscoveredFilter {
    name: String,
    file: PathBuf,
    version: u64,
}

// === impl WasmPlugin ===

impl WasmPlugin {
    /// The first version of a plugin in the namespace `shop`.
    pub fn new(name: &str, config: Value) -> Self {
        Self {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            version: 1,
            config,
        }
    }

    /// The same with another configuration, as after an edit.
    #[must_use]
    pub fn edited(&self, config: Value) -> Self {
        Self {
            version: self.version + 1,
            config,
            ..self.clone()
        }
    }

    /// The filter's name, and that of the resource by which it is discovered.
    pub fn resource(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }

    /// The filter's configuration: no `vm_id`, the plugin's name as root id, and the resource version in
    /// the VM's environment, so that each edit is a new VM.
    ///
    /// # Errors
    /// When the filter has not been built.
    pub fn typed_config(&self) -> Result<Value> {
        let environment = json!({"key_values": {
            "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": self.version.to_string(),
        }});
        Ok(json!({
            "@type": WASM,
            "config": {
                "name": self.resource(),
                "root_id": self.name,
                "failure_policy": "FAIL_RELOAD",
                "vm_config": {
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": artifact::filter()?}},
                    "environment_variables": environment,
                },
                "configuration": text(&self.config),
            },
        }))
    }

    /// The filter within a listener.
    ///
    /// # Errors
    /// As [`WasmPlugin::typed_config`].
    pub fn filter(&self) -> Result<Value> {
        Ok(json!({"name": self.resource(), "typed_config": self.typed_config()?}))
    }
}

// === impl DiscoveredFilter ===

impl DiscoveredFilter {
    /// A filter whose file is in `dir` and has `plugin`; `envoy` is part of the file's name.
    ///
    /// # Errors
    /// When the file cannot be written, or the filter has not been built.
    pub fn new(dir: &Path, envoy: &str, plugin: &WasmPlugin) -> Result<Self> {
        let mut filter = Self {
            name: plugin.resource(),
            file: dir.join(format!("{envoy}.{}.json", plugin.resource())),
            version: 0,
        };
        filter.put(plugin)?;
        Ok(filter)
    }

    /// Its place in a listener.
    pub fn place(&self) -> Value {
        json!({
            "name": self.name,
            "config_discovery": {
                "config_source": {
                    "path_config_source": {"path": self.file},
                    "resource_api_version": "V3",
                },
                "type_urls": [WASM],
            },
        })
    }

    fn put(&mut self, plugin: &WasmPlugin) -> Result<()> {
        self.version += 1;
        let resource = json!({
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": self.name,
            "typed_config": plugin.typed_config()?,
        });
        let response = json!({"version_info": self.version.to_string(), "resources": [resource]});
        swap_in(&self.file, &response)
    }

    /// Swaps the configuration and waits until `envoy` has taken it.
    ///
    /// # Errors
    /// When Envoy refuses it, or does not take it in time.
    pub async fn update(&mut self, envoy: &Envoy, plugin: &WasmPlugin) -> Result<()> {
        let counter = |what| {
            format!(
                "extension_config_discovery.http_filter.{}.{what}",
                self.name
            )
        };
        let (reloads, refusals) = (counter("config_reload"), counter("update_rejected"));
        let taken = envoy.stat(&reloads).await?;
        self.put(plugin)?;
        wait::until("the discovered filter", START_LIMIT, async || {
            ensure!(
                envoy.stat(&refusals).await? == 0,
                "the configuration is refused"
            );
            ensure!(envoy.stat(&reloads).await? > taken, "not taken yet");
            Ok(())
        })
        .await
    }
}

// === free functions ===

/// The filter that Envoy Gateway makes of an EnvoyExtensionPolicy in the namespace `shop`. It is off but
/// where a route turns it on with [`turned_on`].
///
/// # Errors
/// When the filter has not been built.
pub fn extension_policy(name: &str, config: &Value) -> Result<Value> {
    let id = policy_id(name);
    Ok(json!({
        "name": format!("envoy.filters.http.wasm/{id}"),
        "disabled": true,
        "typed_config": {
            "@type": WASM,
            "config": {
                "name": id,
                "root_id": "tollgate",
                "vm_config": {
                    "vm_id": id,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": artifact::filter()?}},
                },
                "configuration": text(config),
            },
        },
    }))
}

/// Returns the `typed_per_filter_config` of a route that turns the policies called `names` on.
pub fn turned_on(names: &[&str]) -> Value {
    let on = json!({
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
        "config": {},
    });
    let filters = names.iter().map(|name| {
        let filter = format!("envoy.filters.http.wasm/{}", policy_id(name));
        (filter, on.clone())
    });
    Value::Object(filters.collect())
}

fn policy_id(name: &str) -> String {
    format!("envoyextensionpolicy/shop/{name}/wasm/0")
}

fn text(config: &Value) -> Value {
    json!({
        "@type": "type.googleapis.com/google.protobuf.StringValue",
        "value": config.to_string(),
    })
}
