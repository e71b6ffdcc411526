"""Objects against the schemas of Kubernetes and of custom resources."""

import functools
import glob
import json
import os

import jsonschema
import kubernetes_validate

from overlays import label

# The oldest and the newest Kubernetes for which the manifests are meant.
VERSIONS = ["1.30", "1.37"]

# Where a schema describes fields by alternatives; the fields themselves are described beside these.
ALTERNATIVES = {"allOf", "anyOf", "oneOf", "not"}


def problems(documents):
    """Returns what is wrong with the form of the objects."""
    names = [(each["apiVersion"], label(each), each["metadata"].get("namespace")) for each in documents]
    twice = sorted({f"{name[1]} is there twice" for name in names if names.count(name) > 1})
    return twice + [f"{label(each)}: {problem}" for each in documents for problem in form(json.dumps(each))]


@functools.cache
def form(text):
    """Returns what is wrong with the form of one object; cached, because overlays have many in common."""
    document = json.loads(text)
    fields = custom_resources().get((document["apiVersion"], document["kind"]))
    return builtin(document) if fields is None else custom(document, fields)


def builtin(document):
    """Returns what is wrong with an object of Kubernetes itself."""
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(map(str, error.path))
            found.append(f"Kubernetes {version}: {path}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError:
            found.append(f"Kubernetes {version}: {document['apiVersion']} is unknown, and crds/ has no field list")
    return found


def custom(document, fields):
    """Returns what is wrong with a custom resource."""
    found = [f"{field} is required" for field in fields["required"] if field not in document]
    known = {"apiVersion", "kind", "metadata", "spec"}
    found += [f"{field} is not a field" for field in sorted(document.keys() - known)]
    if fields["namespaced"] != ("namespace" in document["metadata"]):
        found.append("has a namespace, or has none, against its definition")
    # The metadata of all objects have the same form.
    found += builtin({"apiVersion": "v1", "kind": "ConfigMap", "metadata": document["metadata"]})
    validator = jsonschema.Draft202012Validator(strict(fields["spec"]))
    for error in validator.iter_errors(document.get("spec", {})):
        path = ".".join(["spec", *map(str, error.path)])
        found.append(f"{fields['source']}: {path}: {error.message}")
    return found


@functools.cache
def custom_resources():
    """Returns the field lists of `crds/`, by API version and kind."""
    lists = {}
    for path in glob.glob(os.path.join(os.path.dirname(__file__), "crds/*.json")):
        with open(path) as file:
            fields = json.load(file)
        lists[fields["apiVersion"], fields["kind"]] = fields
    return lists


def strict(schema):
    """Returns a structural schema of Kubernetes as a JSON schema that accepts no unknown field."""
    schema = {name: converted(name, value) for name, value in schema.items()}
    kept = schema.pop("x-kubernetes-preserve-unknown-fields", False)
    if "properties" in schema and not kept:
        schema.setdefault("additionalProperties", False)
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("anyOf", None)
        schema["type"] = ["integer", "string"]
    if schema.pop("nullable", False):
        schema["type"] = [schema["type"], "null"]
    return schema


def converted(name, value):
    if name == "properties":
        return {field: strict(schema) for field, schema in value.items()}
    if name in ("items", "additionalProperties") and isinstance(value, dict):
        return strict(value)
    assert name in ALTERNATIVES or not isinstance(value, dict), f"{name} is a schema of an unknown place"
    return value
