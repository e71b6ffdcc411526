"""Names in an overlay that have to be those of something else in it."""

import re

import yaml

from overlays import label

# The longest name of a host in Linux, which a pod with `setHostnameAsFQDN` has to keep to.
HOST_NAME_LEN_MAX = 64

# The namespaces of proxies that are not in the overlay.
PROXY_NAMESPACES = {"EnvoyExtensionPolicy": "envoy-gateway-system"}


def problems(overlay):
    """Returns the references that lead nowhere."""
    found = namespaces(overlay)
    for maker, template in overlay.pods:
        found += [f"{label(maker)}: {each}" for each in of_pods(overlay, maker, template)]
    for service in overlay.all("Service"):
        found += [f"{label(service)}: {each}" for each in of_service(overlay, service)]
    for policy in overlay.all("NetworkPolicy") + overlay.all("PodDisruptionBudget"):
        found += [f"{label(policy)}: {each}" for each in of_policy(overlay, policy)]
    for monitor in overlay.all("ServiceMonitor"):
        found += [f"{label(monitor)}: {each}" for each in of_monitor(overlay, monitor)]
    return found + of_gateways(overlay) + (of_proxy(overlay) if overlay.proxy else [])


def namespaces(overlay):
    """Returns the objects in namespaces that the overlay does not make."""
    made = {each["metadata"]["name"] for each in overlay.all("Namespace")}
    named = [(each, each["metadata"].get("namespace")) for each in overlay.documents]
    return [f"{label(each)}: there is no namespace {name}" for each, name in named if name and name not in made]


def of_pods(overlay, maker, template):
    """Returns the wrong references of the pods that `maker` makes."""
    spec, space = template["spec"], maker["metadata"]["namespace"]
    found = []
    if not matches(maker["spec"]["selector"]["matchLabels"], template):
        found.append("its selector does not select its pods")
    maps = {each["metadata"]["name"] for each in in_space(overlay, "ConfigMap", space)}
    volumes = {each["name"]: each.get("configMap", {}).get("name") for each in spec.get("volumes", [])}
    found += [f"there is no ConfigMap {name}" for name in volumes.values() if name and name not in maps]
    volumes.update({each["metadata"]["name"]: None for each in maker["spec"].get("volumeClaimTemplates", [])})
    accounts = [each["metadata"]["name"] for each in in_space(overlay, "ServiceAccount", space)]
    if spec.get("serviceAccountName", "default") not in ["default", *accounts]:
        found.append(f"there is no ServiceAccount {spec['serviceAccountName']}")
    for container in spec["containers"]:
        mounts = container.get("volumeMounts", [])
        found += [f"there is no volume {each['name']}" for each in mounts if each["name"] not in volumes]
        # Kubernetes never updates a file that is mounted by itself.
        found += [f"{each['mountPath']} is mounted by subPath" for each in mounts if "subPath" in each]
        found += [f"no port is called {name}" for name in probed(container) - ports_of(container).keys()]
    return found + (of_set(overlay, maker, spec) if maker["kind"] == "StatefulSet" else [])


def of_set(overlay, maker, spec):
    """Returns the wrong references of a StatefulSet."""
    space, name = maker["metadata"]["namespace"], maker["spec"]["serviceName"]
    services = {each["metadata"]["name"]: each for each in in_space(overlay, "Service", space)}
    if services.get(name, {}).get("spec", {}).get("clusterIP") != "None":
        return [f"{name} is no headless Service"]
    host = f"{maker['metadata']['name']}-0.{name}.{space}.svc.cluster.local"
    if spec.get("setHostnameAsFQDN") and len(host) > HOST_NAME_LEN_MAX:
        return [f"{host} is longer than {HOST_NAME_LEN_MAX} characters"]
    return []


def of_service(overlay, service):
    """Returns the ports of a Service that none of its pods has."""
    pods = selected(overlay, service["metadata"]["namespace"], service["spec"]["selector"])
    if not pods:
        return ["selects no pods"]
    wanted = {each["targetPort"] for each in service["spec"]["ports"]}
    return [f"no pod of it has a port {name}" for name in sorted(wanted - ports(pods).keys())]


def of_policy(overlay, policy):
    """Returns the pods and ports that a policy names and that are not there."""
    space, spec = policy["metadata"]["namespace"], policy["spec"]
    pods = selected(overlay, space, spec.get("podSelector", spec.get("selector"))["matchLabels"])
    if not pods:
        return ["selects no pods"]
    found = []
    for rule in spec.get("ingress", []):
        found += [f"no pod of it has a port {name}" for name in named(rule) - ports(pods).keys()]
    for rule in spec.get("egress", []):
        selectors = [peer["podSelector"]["matchLabels"] for peer in rule["to"] if "podSelector" in peer]
        towards = [pod for selector in selectors for pod in selected(overlay, space, selector)]
        if selectors and not towards:
            found.append(f"leads to no pods: {selectors}")
        found += [f"no pod there has a port {name}" for name in named(rule) - ports(towards).keys()]
    return found


def of_monitor(overlay, monitor):
    """Returns the endpoints that no selected Service has."""
    wanted = monitor["spec"]["selector"]["matchLabels"]
    services = in_space(overlay, "Service", monitor["metadata"]["namespace"])
    services = [each for each in services if matches(wanted, each)]
    has = {port["name"] for service in services for port in service["spec"]["ports"]}
    asked = {each["port"] for each in monitor["spec"]["endpoints"]}
    return [f"no Service of it has a port {name}" for name in sorted(asked - has)]


def of_gateways(overlay):
    """Returns the EnvoyProxies that a Gateway names, and the dynamic modules of a policy, that are not there."""
    found = []
    for gateway in overlay.all("Gateway"):
        named = gateway["spec"].get("infrastructure", {}).get("parametersRef")
        proxies = in_space(overlay, "EnvoyProxy", gateway["metadata"]["namespace"])
        if named and named["name"] not in [each["metadata"]["name"] for each in proxies]:
            found.append(f"{label(gateway)}: there is no EnvoyProxy {named['name']}")
    if overlay.proxy and overlay.module and not overlay.library:
        found.append(f"{label(overlay.proxy)}: no EnvoyProxy has a module {overlay.module['name']}")
    return found


def of_proxy(overlay):
    """Returns what keeps the proxy from the coordinators: no cluster, no Service, or a policy."""
    kind, space = overlay.proxy["kind"], overlay.proxy["metadata"]["namespace"]
    space = PROXY_NAMESPACES.get(kind, space)
    found = [] if admits(overlay, space) else [f"no NetworkPolicy lets {space} ask the coordinators"]
    asked = addresses(overlay)
    found += [] if asked else ["the filter asks a cluster that is not there"]
    return found + [f"there is no Service with a port for gRPC at {each}" for each in asked if not leads(overlay, each)]


def addresses(overlay):
    """Returns the addresses of the cluster that the filter asks, each as host and port; none without a cluster."""
    if overlay.proxy["kind"] in ("WasmPlugin", "TrafficExtension"):
        cluster = overlay.filter["coordinator"]
        _, port, _, host = cluster.split("|")
        [patched] = [each for each in overlay.all("EnvoyFilter")]
        [patch] = patched["spec"]["configPatches"]
        references = patched["metadata"]["annotations"]["envoyfilter.istio.io/referenced-services"]
        assert patch["match"]["cluster"]["name"] == cluster, "the EnvoyFilter is about another cluster"
        assert references == f"{host.split('.')[1]}/{host}", "the EnvoyFilter keeps another Service"
        return [(host, int(port))]
    groups = [group for cluster in coordinators(overlay) for group in cluster["load_assignment"]["endpoints"]]
    endpoints = [each for group in groups for each in group["lb_endpoints"]]
    sockets = [each["endpoint"]["address"]["socket_address"] for each in endpoints]
    return [(each["address"], each["port_value"]) for each in sockets]


def coordinators(overlay):
    """Returns the clusters called as the filter's coordinators where the overlay defines them."""
    if overlay.proxy["kind"] == "ConfigMap":
        clusters = yaml.safe_load(overlay.proxy["data"]["envoy.yaml"])["static_resources"]["clusters"]
        wanted = "tollgate"
    else:
        patches = [each for policy in overlay.all("EnvoyPatchPolicy") for each in policy["spec"]["jsonPatches"]]
        clusters = [each["operation"]["value"] for each in patches]
        wanted = overlay.filter["coordinator"]
    return [each for each in clusters if each["name"] == wanted]


def leads(overlay, address):
    """Returns whether a Service of the overlay, with a port that Istio takes for gRPC, is at `address`."""
    host, port = address
    found = re.fullmatch(r"([^.]+)\.([^.]+)\.svc\.cluster\.local", host)
    services = in_space(overlay, "Service", found[2]) if found else []
    services = [each for each in services if each["metadata"]["name"] == found[1]]
    offered = [each for service in services for each in service["spec"]["ports"]]
    return any(each["port"] == port and each["name"].startswith("grpc") for each in offered)


def admits(overlay, space):
    """Returns whether the coordinators' policy lets pods of the namespace `space` ask them."""
    labels = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in overlay.all("Namespace")}
    labels = {**labels.get(space, {}), "kubernetes.io/metadata.name": space}
    rules = [each for each in overlay.one("NetworkPolicy")["spec"]["ingress"] if "grpc" in named(each)]
    peers = [peer["namespaceSelector"] for rule in rules for peer in rule["from"] if "namespaceSelector" in peer]
    return any(each["matchLabels"].items() <= labels.items() for each in peers)


def selected(overlay, space, wanted):
    """Returns the templates of the pods in a namespace that have the labels `wanted`."""
    pods = [template for maker, template in overlay.pods if maker["metadata"]["namespace"] == space]
    return [each for each in pods if matches(wanted, each)]


def matches(wanted, document):
    return wanted.items() <= document["metadata"].get("labels", {}).items()


def in_space(overlay, kind, space):
    return [each for each in overlay.all(kind) if each["metadata"]["namespace"] == space]


def named(rule):
    """Returns the names among the ports of a policy's rule."""
    return {each["port"] for each in rule.get("ports", []) if isinstance(each["port"], str)}


def probed(container):
    """Returns the names of the ports that the container's probes ask."""
    probes = [container[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in container]
    return {each["httpGet"]["port"] for each in probes}


def ports(pods):
    """Returns the ports of pods, by name."""
    containers = [each for pod in pods for each in pod["spec"]["containers"]]
    return {name: number for each in containers for name, number in ports_of(each).items()}


def ports_of(container):
    return {each["name"]: each["containerPort"] for each in container.get("ports", [])}
