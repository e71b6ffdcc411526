"""Writes OCI image layouts, each as one tar archive: the coordinator's image, the dynamic module's, or the filter's in
both forms.

usage: oci.py coordinator OUT VERSION CA_BUNDLE NOTICES ARCH=PROGRAM...   ARCH as in Go: amd64, arm64
       oci.py module OUT VERSION NOTICES ARCH=LIBRARY...   the dynamic module, to copy or mount into Envoy's image
       oci.py filter-compat OUT VERSION MODULE     the module as /plugin.wasm of an image
       oci.py filter-artifact OUT VERSION MODULE   the module itself as a layer

Docker and Buildah write no artifacts, and need a daemon or root. Equal inputs give equal bytes: times are those of
SOURCE_DATE_EPOCH, entries are in order, owners are numbers.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
WASM_CONFIG = "application/vnd.module.wasm.config.v1+json"
WASM_LAYER = "application/vnd.module.wasm.content.layer.v1+wasm"

# The user of distroless images, so that volumes are shared with them.
NONROOT = 65532
TIME = int(os.environ.get("SOURCE_DATE_EPOCH", 0))
CREATED = datetime.datetime.fromtimestamp(TIME, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
SOURCE = {"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.created": CREATED}


def tar(entries):
    """An archive of (name, mode, owner, content) in their order; content None is a directory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, mode, owner, content in entries:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.uid, entry.gid, entry.mtime = mode, owner, owner, TIME
            if content is None:
                entry.type = tarfile.DIRTYPE
            else:
                entry.size = len(content)
            archive.addfile(entry, None if content is None else io.BytesIO(content))
    return out.getvalue()


class Layout:
    """The blobs of one layout, and its root."""

    def __init__(self):
        self.blobs = {}

    def blob(self, media_type, content, **more):
        """Adds a blob, bytes or an object for JSON, and returns its descriptor."""
        if not isinstance(content, bytes):
            content = json.dumps(content, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    def manifest(self, config, layers, annotations, **more):
        content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        return self.blob(MANIFEST, content | {"annotations": annotations}, **more)

    def image(self, arch, entries, run, annotations, **more):
        """Adds an image of one layer for `arch`; `run` says how to start it."""
        layer = tar(entries)
        history = [{"created": CREATED, "created_by": "coordinator/packaging/oci.py"}]
        config = {
            "architecture": arch, "os": "linux", "created": CREATED, "config": run, "history": history,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        packed = self.blob(LAYER, gzip.compress(layer, 9, mtime=0))
        return self.manifest(self.blob(CONFIG, config), [packed], annotations, **more)

    def write(self, out, root, version):
        """Writes the archive; `root` is what its tag `version` names."""
        root = root | {"annotations": {"org.opencontainers.image.ref.name": version}}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [root]}
        files = {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(index, sort_keys=True).encode(),
        }
        files |= {f"blobs/sha256/{digest}": content for digest, content in self.blobs.items()}
        folders = [(name, 0o755, 0, None) for name in ("blobs", "blobs/sha256")]
        content = folders + [(name, 0o644, 0, files[name]) for name in sorted(files)]
        pathlib.Path(out).write_bytes(tar(content))


def annotations(version, title, description):
    names = {"version": version, "title": title, "description": description}
    return SOURCE | {f"org.opencontainers.image.{name}": text for name, text in names.items()}


def root_filesystem(program, ca_bundle, notices):
    """The coordinator's files: itself, licences, the public CAs, a user, and directories to mount on."""
    user = f"tollgate:x:{NONROOT}:{NONROOT}::/var/lib/tollgate:/sbin/nologin\n"
    folders = ["etc", "etc/ssl", "etc/ssl/certs", "etc/tollgate", "usr", "usr/local", "usr/local/bin", "usr/share"]
    folders += ["usr/share/doc", "usr/share/doc/tollgate", "var", "var/lib"]
    return [(name, 0o755, 0, None) for name in folders] + [
        ("etc/group", 0o644, 0, f"tollgate:x:{NONROOT}:\n".encode()),
        ("etc/passwd", 0o644, 0, user.encode()),
        ("etc/ssl/certs/ca-certificates.crt", 0o644, 0, ca_bundle),
        ("usr/local/bin/tollgate", 0o755, 0, program),
        ("usr/share/doc/tollgate/NOTICES.txt", 0o644, 0, notices),
        ("var/lib/tollgate", 0o750, NONROOT, None),
    ]


def coordinator(out, version, ca_bundle, notices, *programs):
    layout = Layout()
    about = annotations(version, "tollgate-coordinator", "Leases capacity to Envoys")
    run = {
        "User": f"{NONROOT}:{NONROOT}", "WorkingDir": "/var/lib/tollgate", "Env": ["PATH=/usr/local/bin"],
        "Entrypoint": ["/usr/local/bin/tollgate"], "Cmd": ["serve", "--config", "/etc/tollgate/tollgate.yaml"],
        "ExposedPorts": {"7710/tcp": {}, "7711/tcp": {}}, "Labels": about,
    }
    ca_bundle, notices = pathlib.Path(ca_bundle).read_bytes(), pathlib.Path(notices).read_bytes()
    each_machine(layout, (out, version), (run, about), programs, lambda data: root_filesystem(data, ca_bundle, notices))


def each_machine(layout, to, about, built, entries):
    """Writes an image for each ARCH=FILE of `built`, with the `entries` of the file's content."""
    images = []
    for arch, file in (file.split("=", 1) for file in built):
        platform = {"os": "linux", "architecture": arch}
        images.append(layout.image(arch, entries(pathlib.Path(file).read_bytes()), *about, platform=platform))
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": images, "annotations": about[1]}
    layout.write(to[0], layout.blob(INDEX, index), to[1])


def module(out, version, notices, *libraries):
    about = annotations(version, "tollgate-envoy-module", "Fair-share rate limits as a dynamic module of Envoy's")
    notices = pathlib.Path(notices).read_bytes()
    folders = ["usr", "usr/lib", "usr/lib/envoy", "usr/share", "usr/share/doc", "usr/share/doc/tollgate-envoy-module"]
    folders = [(name, 0o755, 0, None) for name in folders]

    def entries(library):
        return folders + [
            ("usr/lib/envoy/libtollgate.so", 0o644, 0, library),
            ("usr/share/doc/tollgate-envoy-module/NOTICES.txt", 0o644, 0, notices),
        ]

    each_machine(Layout(), (out, version), ({"Labels": about}, about), libraries, entries)


def filter_compat(out, version, module):
    """The form for tools that know images only; proxies read plugin.wasm out of the last layer."""
    layout = Layout()
    about = annotations(version, "tollgate-filter", "Fair-share rate limits inside Envoy")
    about["module.wasm.image/variant"] = "compat"
    entries = [("plugin.wasm", 0o644, 0, pathlib.Path(module).read_bytes())]
    # Nothing in it depends on a machine; Istio and Envoy Gateway ask for the default platform.
    layout.write(out, layout.image("amd64", entries, {"Labels": about}, about), version)


def filter_artifact(out, version, module):
    """The form of the Wasm artifact specification; Istio and Envoy Gateway want exactly these two layers."""
    layout = Layout()
    about = annotations(version, "tollgate-filter", "Fair-share rate limits inside Envoy")
    runtime = {"type": "envoy_proxy", "abiVersions": ["0.2.1"], "config": {"root_ids": []}}
    name = "org.opencontainers.image.title"
    config = layout.blob(WASM_CONFIG, runtime)
    layers = [
        config | {"annotations": {name: "runtime-config.json"}},
        layout.blob(WASM_LAYER, pathlib.Path(module).read_bytes(), annotations={name: "plugin.wasm"}),
    ]
    layout.write(out, layout.manifest(config, layers, about), version)


if __name__ == "__main__":
    commands = {"coordinator": coordinator, "module": module, "filter-compat": filter_compat, "filter-artifact": filter_artifact}
    if len(sys.argv) < 5 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
