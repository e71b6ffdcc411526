//! Configuration of a test's Envoy, as JSON.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::EnvoySpec;
use crate::filter::{COORDINATOR, UPSTREAM};

/// Bootstrap configuration, fixed for the life of the process: node, admin address, clusters.
pub(super) fn bootstrap(spec: &EnvoySpec, listeners_file: &Path) -> Value {
    let upstream = if spec.upstream_http2 {
        http2_cluster
    } else {
        cluster
    };
    let mut clusters = vec![upstream(UPSTREAM, &[spec.upstream])];
    match spec.coordinators[..] {
        [] => {}
        [one] => clusters.push(http2_cluster(COORDINATOR, &[one])),
        _ => {
            let mut cluster = http2_cluster(COORDINATOR, &spec.coordinators);
            cluster["health_checks"] = health_checks();
            clusters.push(cluster);
        }
    }
    let further = spec.clusters.iter();
    clusters.extend(further.map(|(name, to)| http2_cluster(name, &[*to])));
    let file = |path: &Path| json!({"path_config_source": {"path": path}});
    let mut dynamic = json!({"lds_config": file(listeners_file)});
    if let Some(path) = &spec.clusters_file {
        dynamic["cds_config"] = file(path);
    }
    json!({
        "node": {"id": spec.name, "cluster": "tollgate-tests"},
        "admin": {"address": socket_address(SocketAddr::from(([127, 0, 0, 1], 0)))},
        "stats_config": spec.stats_config,
        "static_resources": {"clusters": clusters},
        "dynamic_resources": dynamic,
    })
}

/// Content of the listeners' file: a discovery response.
pub(super) fn listener_discovery(
    version: u64,
    spec: &EnvoySpec,
    listeners: &[(String, Vec<Value>)],
) -> Value {
    let resources: Vec<Value> = listeners
        .iter()
        .map(|(name, filters)| listener(spec, name, filters))
        .collect();
    json!({"version_info": version.to_string(), "resources": resources})
}

fn listener(spec: &EnvoySpec, name: &str, filters: &[Value]) -> Value {
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
        "address": socket_address(SocketAddr::from(([127, 0, 0, 1], spec.port))),
        "filter_chains": [{
            "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": connection_manager,
            }],
            "transport_socket": spec.transport_socket,
        }],
    })
}

fn cluster(name: &str, to: &[SocketAddr]) -> Value {
    let endpoint = |to: &SocketAddr| json!({"endpoint": {"address": socket_address(*to)}});
    let endpoints: Vec<Value> = to.iter().map(endpoint).collect();
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    })
}

/// Health checks as in the examples: only coordinators that report themselves as serving are called.
fn health_checks() -> Value {
    json!([{
        "timeout": "1s",
        "interval": "2s",
        "no_traffic_interval": "2s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
        "grpc_health_check": {"service_name": "tollgate.v1.LeaseService"},
    }])
}

fn http2_cluster(name: &str, to: &[SocketAddr]) -> Value {
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
