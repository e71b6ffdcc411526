"""Envoy's bootstrap configuration as the proxy of an overlay gets it, with the addresses of this machine."""

import json
import os
import socket

import yaml

from overlays import ROOT
from references import coordinators

WASM = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"
MANAGER = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
MODULE = "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
TEXT = "type.googleapis.com/google.protobuf.StringValue"
HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}


class Ports:
    """Ports on this machine for what the manifests have at fixed addresses."""

    def __init__(self, coordinator, upstream):
        self.coordinator, self.upstream = coordinator, upstream
        self.main, self.probes, self.admin = free_port(), free_port(), free_port()


def bootstrap(overlay, programs, ports):
    """Returns the configuration of the overlay's proxy."""
    if overlay.proxy["kind"] == "ConfigMap":
        return of_file(overlay.proxy["data"]["envoy.yaml"], programs.module, ports)
    clusters = [cluster("service", ports.upstream), *of_control_plane(overlay, ports)]
    wasm = overlay.module is None
    config = {"@type": WASM, "config": plugin(overlay, programs.module)} if wasm else library(overlay, programs.library)
    filters = [{"name": "tollgate", "typed_config": config}]
    return {
        "admin": {"address": local(ports.admin)},
        "static_resources": {"listeners": [listener(filters, ports.main)], "clusters": clusters},
    }


def of_file(text, module, ports):
    """Returns Envoy's own file with the addresses of this machine."""
    installed = "/usr/local/share/tollgate/tollgate_filter.wasm"
    with open(os.path.join(ROOT, "envoy/demo/images/Dockerfile")) as file:
        assert f" {installed}\n" in file.read(), f"the image has no {installed}"
    here = {
        ("0.0.0.0", 10000): ports.main,
        ("0.0.0.0", 9902): ports.probes,
        ("127.0.0.1", 9901): ports.admin,
        ("127.0.0.1", 8080): ports.upstream,
    }
    return moved(json.loads(json.dumps(yaml.safe_load(text)).replace(installed, module)), here, ports.coordinator)


def moved(value, here, coordinator):
    """Returns a configuration with each socket address replaced; those of Services become the coordinator's."""
    if isinstance(value, list):
        return [moved(each, here, coordinator) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"address", "port_value"}:
        address = value["address"], value["port_value"]
        service = value["address"].endswith(".svc.cluster.local")
        return {"address": "127.0.0.1", "port_value": coordinator if service else here[address]}
    return {name: moved(each, here, coordinator) for name, each in value.items()}


def of_control_plane(overlay, ports):
    """Returns the coordinators' clusters: from a patch, or as Istio makes one from a Service and merges a patch."""
    if overlay.proxy["kind"] == "EnvoyExtensionPolicy":
        return moved(coordinators(overlay), {}, ports.coordinator)
    made = {**cluster(overlay.filter["coordinator"], ports.coordinator), "typed_extension_protocol_options": HTTP2}
    [patch] = overlay.all("EnvoyFilter")[0]["spec"]["configPatches"]
    return [{**made, **patch["patch"]["value"]}]


def plugin(overlay, module):
    """Returns the plugin as the overlay's control plane configures it, but for the code, which is local."""
    spec = overlay.proxy["spec"]
    gateway = overlay.proxy["kind"] == "EnvoyExtensionPolicy"
    wasm = spec["wasm"][0] if gateway else spec.get("wasm", spec)
    vm = {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": module}}}
    if gateway:
        vm["vm_id"] = "envoyextensionpolicy/hello/tollgate/wasm/0"
    else:
        # Istio sets no `vm_id`; the variable makes a new VM at each edit.
        vm["environment_variables"] = {"key_values": {"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "1"}}
    return {
        "name": wasm["name"] if gateway else "hello.tollgate",
        "root_id": wasm["rootID"] if gateway else wasm["pluginName"],
        "failure_policy": "UNSPECIFIED" if gateway else wasm["failStrategy"],
        "vm_config": vm,
        "configuration": {"@type": TEXT, "value": json.dumps(overlay.filter)},
    }


def library(overlay, file):
    """Returns the dynamic module as Envoy Gateway configures it, but for the library, which is that of this machine."""
    entry = overlay.library
    with open(os.path.join(ROOT, "docs/native.md")) as page:
        installed = entry["source"]["local"]["path"]
        assert f" {installed} {os.path.dirname(installed)}/\n" in page.read(), f"the image has no {installed}"
    return {
        "@type": MODULE,
        "dynamic_module_config": {"module": {"local": {"filename": file}}, "do_not_close": entry["doNotClose"]},
        "filter_name": overlay.module["filterName"],
        "filter_config": {"@type": TEXT, "value": json.dumps(overlay.filter)},
    }


def listener(filters, port):
    """Returns a listener that leads everything through `filters` to the service."""
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "service"}}
    manager = {
        "@type": MANAGER,
        "stat_prefix": "main",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [*filters, router],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": "main", "address": local(port), "filter_chains": [chain]}


def cluster(name, port):
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": local(port)}}]}]
    assignment = {"cluster_name": name, "endpoints": endpoints}
    return {"name": name, "type": "STATIC", "connect_timeout": "10s", "load_assignment": assignment}


def local(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def free_port():
    """Returns a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
