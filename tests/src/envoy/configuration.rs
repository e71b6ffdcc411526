//! The configuration that an Envoy is started with, as JSON.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::Spec;
use crate::filter::{COORDINATOR, UPSTREAM};

/// The part that stays as long as the process: node, admin address, clusters.
pub(super) fn bootstrap(spec: &Spec, listeners_file: &Path) -> Value {
    let mut clusters = vec![cluster(UPSTREAM, spec.upstream)];
    if let Some(coordinator) = spec.coordinator {
        clusters.push(grpc_cluster(COORDINATOR, coordinator));
    }
    clusters.extend(
        spec.clusters
            .iter()
            .map(|(name, to)| grpc_cluster(name, *to)),
    );
    json!({
        "node": {"id": spec.name, "cluster": "tollgate-tests"},
        "admin": {"address": socket_address(SocketAddr::from(([127, 0, 0, 1], 0)))},
        "stats_config": spec.stats_config,
        "static_resources": {"clusters": clusters},
        "dynamic_resources": {
            "lds_config": {"path_config_source": {"path": listeners_file}},
        },
    })
}

/// What the listeners' file says: a discovery response.
pub(super) fn listener_discovery(
    version: u64,
    spec: &Spec,
    listeners: &[(String, Vec<Value>)],
) -> Value {
    let resources: Vec<Value> = listeners
        .iter()
        .map(|(name, filters)| listener(spec, name, filters))
        .collect();
    json!({"version_info": version.to_string(), "resources": resources})
}

fn listener(spec: &Spec, name: &str, filters: &[Value]) -> Value {
    let mut filters = filters.to_vec();
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        },
    }));
    let connection_manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network\
                  .http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": {"virtual_hosts": spec.virtual_hosts},
        "access_log": spec.access_log,
        "http_filters": filters,
    });
    json!({
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": name,
        "address": socket_address(SocketAddr::from(([127, 0, 0, 1], 0))),
        "filter_chains": [{
            "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": connection_manager,
            }],
            "transport_socket": spec.transport_socket,
        }],
    })
}

fn cluster(name: &str, to: SocketAddr) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket_address(to)}}]}],
        },
    })
}

fn grpc_cluster(name: &str, to: SocketAddr) -> Value {
    let mut cluster = cluster(name, to);
    cluster["typed_extension_protocol_options"] = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        },
    });
    cluster
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip(), "port_value": address.port()}})
}
