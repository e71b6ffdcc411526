"""Rendered overlays."""

import functools
import os
import re
import subprocess
import tempfile

import yaml

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
FOLDER = os.path.join(ROOT, "envoy/kubernetes")
OVERLAYS = sorted(os.listdir(os.path.join(FOLDER, "overlays")))

# The name of the overlay that the documentation shows.
DOCUMENTED = "docs/kubernetes.md"

# Kinds of a custom resource that configures the filter, and the fields that lead to its configuration.
PLUGINS = {
    "WasmPlugin": ("pluginConfig",),
    "TrafficExtension": ("wasm", "pluginConfig"),
    "EnvoyExtensionPolicy": ("wasm", 0, "config"),
}
OF_MODULE = ("dynamicModule", 0, "config")


class Overlay:
    """One overlay, rendered."""

    def __init__(self, name, documents=None):
        self.name = name
        self._documents = documents

    @functools.cached_property
    def documents(self):
        """Returns the objects that the overlay consists of."""
        return rendered(self.name) if self._documents is None else self._documents

    def all(self, kind):
        return [each for each in self.documents if each["kind"] == kind]

    def one(self, kind, name="tollgate"):
        found = [each for each in self.all(kind) if each["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} objects are {kind} {name}"
        return found[0]

    @property
    def configuration(self):
        """Returns the coordinator's configuration file."""
        return self.one("ConfigMap")["data"]["tollgate.yaml"]

    @property
    def pods(self):
        """Returns the objects that make pods, each with its pods' template."""
        makers = [each for each in self.documents if "template" in each.get("spec", {})]
        return [(maker, maker["spec"]["template"]) for maker in makers]

    @property
    def proxy(self):
        """Returns the object that configures an Envoy: a control plane's, or the map with Envoy's own file; else None."""
        plugins = [each for each in self.documents if each["kind"] in PLUGINS]
        files = [each for each in self.all("ConfigMap") if "envoy.yaml" in each["data"]]
        assert len(plugins) + len(files) <= 1, "requests would be charged twice"
        return (plugins + files or [None])[0]

    @property
    def filter(self):
        """Returns the filter's configuration in the object of a control plane."""
        value = self.proxy["spec"]
        for field in OF_MODULE if self.module else PLUGINS[self.proxy["kind"]]:
            value = value[field]
        return value

    @property
    def module(self):
        """Returns the dynamic module in the object of a control plane, if the filter is one; else None."""
        return self.proxy.get("spec", {}).get("dynamicModule", [None])[0]

    @property
    def library(self):
        """Returns the entry that allows proxies to load the dynamic module."""
        allowed = [entry for each in self.all("EnvoyProxy") for entry in each["spec"]["dynamicModules"]]
        return next((each for each in allowed if each["name"] == self.module["name"]), None)


@functools.cache
def rendered(name):
    """Returns the objects that `kubectl kustomize` renders."""
    if name == DOCUMENTED:
        with tempfile.TemporaryDirectory() as folder:
            write_documented(folder)
            return kustomized(folder)
    return kustomized(os.path.join(FOLDER, "overlays", name))


def kustomized(folder):
    output = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
    assert output.returncode == 0 and not output.stderr, output.stderr
    return list(yaml.safe_load_all(output.stdout))


def write_documented(folder):
    """Writes the files that the documentation shows, each of which begins with its name, beside a clone."""
    with open(os.path.join(ROOT, DOCUMENTED)) as page:
        files = re.findall(r"```yaml\n# (\S+)\n(.*?)```", page.read(), re.DOTALL)
    assert len(files) == 2, f"{len(files)} files are shown"
    for name, text in files:
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    os.symlink(ROOT, os.path.join(folder, "tollgate"))


def label(document):
    """Returns the name by which problems of an object are reported."""
    return f"{document.get('kind')} {document.get('metadata', {}).get('name')}"
