"""Pods: what they may do, what they may use, and which images they run."""

import glob
import os
import re

from overlays import DOCUMENTED, ROOT, label

# Security settings of each container, as in Kubernetes' restricted profile and beyond.
CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
RESOURCES = [("requests", "cpu"), ("requests", "memory"), ("limits", "memory")]


def problems(overlay):
    """Returns what is wrong with the pods of an overlay."""
    # The documentation shows how to name another registry.
    strangers = images(overlay) - known_images() if overlay.name != DOCUMENTED else []
    found = [f"image {each} is not one of the demos'" for each in strangers]
    for maker, template in overlay.pods:
        spec = template["spec"]
        wrong = against(POD, spec["securityContext"])
        if spec.get("automountServiceAccountToken") is not False:
            wrong.append("gets a token for Kubernetes' API")
        for container in spec["containers"] + spec.get("initContainers", []):
            wrong += [f"container {container['name']}: {each}" for each in of_container(container, spec)]
        found += [f"{label(maker)}: {each}" for each in wrong]
    return found


def of_container(container, spec):
    """Returns what is wrong with one container."""
    context = container.get("securityContext", {})
    wrong = against(CONTAINER, context)
    if not {**spec["securityContext"], **context}.get("runAsUser"):
        wrong.append("runs as root, or as whom its image says")
    resources = container.get("resources", {})
    wrong += [f"has no {kind}.{name}" for kind, name in RESOURCES if name not in resources.get(kind, {})]
    if "readinessProbe" not in container:
        wrong.append("has no readiness probe")
    return wrong


def against(wanted, context):
    return [f"{field} is not {value}" for field, value in wanted.items() if context.get(field) != value]


def images(overlay):
    """Returns the images that the overlay names, also those of the filter."""
    found = [each["image"] for _, template in overlay.pods for each in template["spec"]["containers"]]
    plugin = overlay.proxy and overlay.proxy["kind"]
    spec = overlay.proxy["spec"] if plugin and plugin != "ConfigMap" else {}
    urls = [spec.get("url"), spec.get("wasm", {}).get("url") if plugin == "TrafficExtension" else None]
    if plugin == "EnvoyExtensionPolicy":
        urls = [each["code"]["image"]["url"] for each in spec.get("wasm", [])]
    for proxy in overlay.all("EnvoyProxy"):
        urls.append(proxy["spec"]["provider"]["kubernetes"]["envoyDeployment"]["container"]["image"])
    return {*found, *(url.removeprefix("oci://") for url in urls if url)}


def known_images():
    """Returns the images of the demos, and those with the filter, which have the version of the others."""
    text = ""
    for path in glob.glob(os.path.join(ROOT, "envoy/demo/*/docker-compose.yml")):
        with open(path) as file:
            text += file.read()
    found = set(re.findall(r"image: (\S+)", text))
    version = next(each for each in found if each.startswith("tollgate/coordinator:")).split(":")[1]
    return found | {f"tollgate/{name}:{version}" for name in ("filter", "envoy-native")}
