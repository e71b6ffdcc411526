"""Mistakes planted in rendered overlays, each of which has to be found."""

import copy

import hardening
import playing
import references
import schemas
from overlays import Overlay

# Tests by title: functions of the programs that return a problem if the mistake is not found.
MISTAKES = {}


def planted(title, name, checker, found):
    """Makes a test of a function that changes the objects of the overlay `name`; the problem has to contain `found`."""

    def register(change):
        def test(programs):
            overlay = Overlay(name, copy.deepcopy(Overlay(name).documents))
            change(overlay)
            problems = checker(programs, overlay)
            return [] if any(found in each for each in problems) else [f"not found: {found}; but {problems}"]

        MISTAKES[title] = test

    return register


def forms(_, overlay):
    return schemas.problems(overlay.documents)


def names(_, overlay):
    return references.problems(overlay)


def pods(_, overlay):
    return hardening.problems(overlay)


def container(overlay):
    return overlay.one("StatefulSet")["spec"]["template"]["spec"]["containers"][0]


@planted("a misspelt field of a container", "single", forms, "readynessProbe")
def _(overlay):
    container(overlay)["readynessProbe"] = container(overlay).pop("readinessProbe")


@planted("a misspelt field of a proxy's modules", "envoy-gateway-module", forms, "doNotUnload")
def _(overlay):
    module = overlay.one("EnvoyProxy")["spec"]["dynamicModules"][0]
    module["doNotUnload"] = module.pop("doNotClose")


@planted("a text where a number belongs", "single", forms, "replicas")
def _(overlay):
    overlay.one("StatefulSet")["spec"]["replicas"] = "three"


@planted("a kind that Kubernetes does not know", "single", forms, "is unknown")
def _(overlay):
    overlay.one("PodDisruptionBudget")["kind"] = "PodDisruptionLimit"


@planted("an API version that is gone", "single", forms, "is unknown")
def _(overlay):
    overlay.one("PodDisruptionBudget")["apiVersion"] = "policy/v1beta1"


@planted("a misspelt field of a custom resource's metadata", "istio", forms, "label")
def _(overlay):
    overlay.one("WasmPlugin")["metadata"]["label"] = {}


@planted("a value that an enumeration does not have", "istio", forms, "FAIL_RETRY")
def _(overlay):
    overlay.one("WasmPlugin")["spec"]["failStrategy"] = "FAIL_RETRY"


@planted("a field of the old API in the new one", "istio-traffic-extension", forms, "pluginConfig")
def _(overlay):
    overlay.one("TrafficExtension")["spec"]["pluginConfig"] = {}


@planted("a custom resource without a namespace", "istio", forms, "has a namespace, or has none")
def _(overlay):
    del overlay.one("EnvoyFilter")["metadata"]["namespace"]


@planted("a deeply nested misspelt field", "envoy-gateway", forms, "uri")
def _(overlay):
    image = overlay.one("EnvoyExtensionPolicy")["spec"]["wasm"][0]["code"]["image"]
    image["uri"] = image.pop("url")


@planted("an object that is there twice", "single", forms, "is there twice")
def _(overlay):
    overlay.documents.append(overlay.one("Service"))


@planted("a probe of a port that is not there", "single", names, "no port is called web")
def _(overlay):
    container(overlay)["livenessProbe"]["httpGet"]["port"] = "web"


@planted("a ConfigMap of another name", "single", names, "there is no ConfigMap tollgate")
def _(overlay):
    overlay.one("ConfigMap")["metadata"]["name"] = "tollgate-1"


@planted("a file that Kubernetes never updates", "single", names, "subPath")
def _(overlay):
    container(overlay)["volumeMounts"][0]["subPath"] = "tollgate.yaml"


@planted("a policy for no pods", "cluster", names, "NetworkPolicy tollgate-etcd: selects no pods")
def _(overlay):
    overlay.one("NetworkPolicy", "tollgate-etcd")["spec"]["podSelector"]["matchLabels"] = {"app": "etcd"}


@planted("a host name that is too long", "cluster", names, "is longer than 64 characters")
def _(overlay):
    for each in overlay.documents:
        each["metadata"]["namespace"] = "a-namespace-with-a-long-name"


@planted("a policy that keeps the proxies away", "sidecar", names, "no NetworkPolicy lets hello")
def _(overlay):
    del overlay.one("Namespace", "hello")["metadata"]["labels"]["tollgate/client"]


@planted("a cluster without a Service", "envoy-gateway", names, "there is no Service")
def _(overlay):
    overlay.one("Service", "tollgate-nodes")["metadata"]["name"] = "tollgate-peers"


@planted("a port that Istio does not take for gRPC", "istio", names, "there is no Service with a port for gRPC")
def _(overlay):
    overlay.one("Service")["spec"]["ports"][0]["name"] = "leases"


@planted("a module that no proxy may load", "envoy-gateway-module", names, "no EnvoyProxy has a module")
def _(overlay):
    overlay.one("EnvoyProxy")["spec"]["dynamicModules"][0]["name"] = "tollgate-1"


@planted("a proxy that is not there", "envoy-gateway-module", names, "there is no EnvoyProxy")
def _(overlay):
    overlay.one("EnvoyProxy")["metadata"]["name"] = "proxy"


@planted("a file system that can be written", "single", pods, "readOnlyRootFilesystem is not True")
def _(overlay):
    container(overlay)["securityContext"]["readOnlyRootFilesystem"] = False


@planted("a container without a limit of memory", "sidecar", pods, "container envoy: has no limits.memory")
def _(overlay):
    containers = overlay.one("Deployment", "hello")["spec"]["template"]["spec"]["containers"]
    next(each for each in containers if each["name"] == "envoy")["resources"] = {"requests": {"cpu": 1, "memory": 1}}


@planted("an image of another version", "istio", pods, "image tollgate/filter:latest")
def _(overlay):
    overlay.one("WasmPlugin")["spec"]["url"] = "oci://tollgate/filter:latest"


@planted("a misspelt field of the coordinator's configuration", "single", playing.check, "limit")
def _(overlay):
    data = overlay.one("ConfigMap")["data"]
    data["tollgate.yaml"] = data["tollgate.yaml"].replace("limits:", "limit:")


@planted("an exposed port without a word about it", "cluster", playing.check, "insecure")
def _(overlay):
    data = overlay.one("ConfigMap")["data"]
    data["tollgate.yaml"] = data["tollgate.yaml"].replace("insecure_grpc: true", "insecure_grpc: false")


@planted("a misspelt field of the filter's configuration", "istio", playing.play, "saef_capacity (did you mean safe_capacity?) is not known")
def _(overlay):
    overlay.filter["scopes"][0]["saef_capacity"] = 1


@planted("a wrong value in the filter's configuration", "envoy-gateway", playing.play, "scopes")
def _(overlay):
    overlay.filter["scopes"] = []


@planted("a filter that asks another cluster", "envoy-gateway", playing.play, "cluster missing")
def _(overlay):
    overlay.filter["coordinator"] = "coordinators"


@planted("a filter that asks a cluster without a patch", "envoy-gateway", names, "asks a cluster that is not there")
def _(overlay):
    overlay.one("EnvoyPatchPolicy")["spec"]["jsonPatches"] = []
