"""Makes a field list for `crds/` from a published CustomResourceDefinition.

usage: trim_crd.py SOURCE KIND VERSION [FIELD...] <FILE

Reads a YAML file with the definition of KIND on standard input and prints its schema as JSON, without descriptions,
status and the rules in CEL, which only an API server evaluates. SOURCE says where the file came from: project,
version and path. With FIELDs, each a path with dots, only these are kept of the specification, for those that are
far longer than what is used of them.
"""

import json
import sys

import yaml

# Texts for people, and what only an API server evaluates.
DROPPED = {"default", "description", "example", "title", "externalDocs"}


def main(source, kind, version, *fields):
    for crd in yaml.load_all(sys.stdin, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if crd and crd.get("kind") == "CustomResourceDefinition" and crd["spec"]["names"]["kind"] == kind:
            served = {each["name"]: each for each in crd["spec"]["versions"] if each["served"]}
            schema = served[version]["schema"]["openAPIV3Schema"]
            kept = {
                "source": source,
                "apiVersion": f"{crd['spec']['group']}/{version}",
                "kind": kind,
                "namespaced": crd["spec"]["scope"] == "Namespaced",
                "required": schema.get("required", []),
                "spec": only(trimmed(schema["properties"]["spec"]), [each.split(".") for each in fields]),
            }
            return print(json.dumps(kept, separators=(",", ":"), sort_keys=True))
    sys.exit(f"there is no definition of {kind}")


def only(schema, paths):
    """Returns `schema` with the properties at these paths and no others; with all if there are none."""
    if not paths or [] in paths:
        return schema
    names = {path[0] for path in paths}
    properties = {
        name: only(schema["properties"][name], [path[1:] for path in paths if path[0] == name]) for name in names
    }
    required = [name for name in schema.get("required", []) if name in names]
    return {**schema, "properties": properties, "required": required}


def trimmed(schema):
    """Returns `schema` without what does not decide whether a value is valid."""
    if isinstance(schema, list):
        return [trimmed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {field: trimmed(each) for field, each in value.items()} if name == "properties" else trimmed(value)
        for name, value in schema.items()
        if name not in DROPPED and (not name.startswith("x-kubernetes-") or name in KEPT)
    }


# Extensions that widen what a schema accepts.
KEPT = {"x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"}


if __name__ == "__main__":
    main(*sys.argv[1:])
