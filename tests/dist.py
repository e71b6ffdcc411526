"""Tests what a release consists of: programs, modules, Debian packages, images, manual pages, completions, checksums.

usage: dist.py DIR [--release]   DIR as coordinator/packaging/package.sh fills it

With --release the programs have to be static, small and without paths of this machine, there have to be SBOMs, and
the coordinator's image is started if Docker runs here. Images are read with skopeo and umoci, which did not write
them, and the filter's as Istio and Envoy Gateway read them. The last line has the form of cargo's `test result:`, for
tests/run.sh.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

DIST = pathlib.Path(sys.argv[1]).resolve()
RELEASE = "--release" in sys.argv[2:]
ROOT = pathlib.Path(__file__).resolve().parent.parent

COMPAT_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
ARTIFACT_LAYER = "application/vnd.module.wasm.content.layer.v1+wasm"
IMAGE_BYTES_MAX = 40_000_000
# Machine numbers of ELF, by the names of Rust and of images and Debian.
MACHINES = {"x86_64": ("amd64", 62), "aarch64": ("arm64", 183)}


def run(*command, **more):
    """Returns what a command prints; an exit code other than 0 is an error with all that it said."""
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def needs(*tools):
    """Skips a test whose tools are missing."""
    missing = [tool for tool in tools if not shutil.which(tool)]
    return unittest.skipIf(missing, f"there is no {', '.join(missing)}")


def only(pattern):
    found = list(DIST.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


def archives():
    found = sorted(DIST.glob("tollgate-*-linux-*.tar.gz"))
    assert found, f"no archives in {DIST}"
    return found


def content(archive):
    """The files of a tar archive by name, without the folder that all are in."""
    with tarfile.open(archive) as tar:
        return {entry.name.split("/", 1)[1]: tar.extractfile(entry).read() for entry in tar if entry.isfile()}


def machines():
    """What the machines of the archives are called by images and Debian."""
    return {MACHINES[archive.name.split("-")[2]][0] for archive in archives()}


def native_archive():
    """The archive whose program runs here."""
    return next(archive for archive in archives() if os.uname().machine in archive.name)


def libraries():
    """The dynamic modules by what Debian and images call their machines."""
    start = f"libtollgate-{VERSION}-"
    found = sorted(DIST.glob(f"{start}*.so"))
    assert found, f"no dynamic modules in {DIST}"
    return {MACHINES[file.name.removeprefix(start).split("-")[0]][0]: file for file in found}


def glibc():
    """The glibc that the package of the dynamic module asks for."""
    manifest = (ROOT / "filter/native/Cargo.toml").read_text()
    return re.search(r'^depends = "libc6 \(>= ([0-9.]+)\)"$', manifest, re.MULTILINE)[1]


class Elf:
    """The machine of a program, and whether it needs a loader or libraries."""

    def __init__(self, data):
        assert data[:6] == b"\x7fELF\x02\x01", data[:6]
        self.machine = struct.unpack_from("<H", data, 18)[0]
        offset, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        headers = [struct.unpack_from("<IIQQQQ", data, offset + n * size) for n in range(count)]
        self.has_loader = any(header[0] == 3 for header in headers)
        dynamic = [data[header[2]:header[2] + header[5]] for header in headers if header[0] == 2]
        entries = [struct.unpack_from("<QQ", part, at) for part in dynamic for at in range(0, len(part), 16)]
        self.needs_libraries = any(tag == 1 for tag, _ in entries)
        # DF_BIND_NOW in DT_FLAGS, or DF_1_NOW in DT_FLAGS_1.
        now = {30: 8, 0x6ffffffb: 1}
        self.binds_at_load = any(value & now.get(tag, 0) for tag, value in entries)


class Archives(unittest.TestCase):
    def test_each_has_the_program_for_its_machine_and_what_belongs_to_it(self):
        for archive in archives():
            files = content(archive)
            rust_name = archive.name.split("-")[2]
            self.assertEqual(Elf(files["tollgate"]).machine, MACHINES[rust_name][1], archive)
            documents = {"LICENSE", "NOTICES.txt", "README.md", "tollgate.service", "man/tollgate.1", "completions/_tollgate"}
            self.assertLessEqual(documents, files.keys(), archive)

    def test_the_program_says_the_version_of_the_file_name(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "tollgate")
            program.write_bytes(content(native_archive())["tollgate"])
            program.chmod(0o755)
            self.assertEqual(run(program, "--version"), f"tollgate {VERSION}\n")

    def test_notices_have_the_licences_of_what_is_linked_only(self):
        for notices, inside, outside in (
            (content(native_archive())["NOTICES.txt"].decode(), ["tokio", "ring", "libmimalloc-sys"], "proptest"),
            (only(f"tollgate_filter-{VERSION}.notices.txt").read_text(), ["proxy-wasm", "prost"], "tokio"),
            (only(f"libtollgate-{VERSION}.notices.txt").read_text(), ["tokio", "tonic"], "redb"),
        ):
            for name in inside:
                self.assertRegex(notices, rf"(?m)^{name} [0-9]+\.[0-9.]+ \(")
            self.assertNotRegex(notices, rf"(?m)^{outside} [0-9]+\.")
            self.assertIn("WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND", notices)

    def test_same_documents_in_all(self):
        documents = [content(archive) for archive in archives()]
        for files in documents:
            files.pop("tollgate")
            self.assertEqual(files, documents[0])

    def test_checksums_are_of_all_files(self):
        sums = [line.split("  ") for line in (DIST / "SHA256SUMS").read_text().splitlines()]
        files = {file.name for file in DIST.iterdir()} - {"SHA256SUMS"}
        self.assertEqual({name for _, name in sums}, files)
        for digest, name in sums:
            self.assertEqual(hashlib.sha256((DIST / name).read_bytes()).hexdigest(), digest, name)


# Completes as bash does at the tab key. Arguments: the script, the last word and the one before, all words.
BASH_COMPLETION = """
source "$1"
COMP_WORDS=("${@:4}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_tollgate tollgate "$2" "$3"
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Documents(unittest.TestCase):
    """Manual pages and completions, of the program that runs here."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        for name, data in content(native_archive()).items():
            file = cls.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        (cls.path / "tollgate").chmod(0o755)
        help_text = run(cls.path / "tollgate", "help")
        listed = help_text.split("Commands:\n")[1].split("\n\n")[0]
        cls.commands = re.findall(r"^  ([a-z]+)", listed, re.MULTILINE)

    def test_each_command_has_a_page(self):
        pages = {page.name for page in (self.path / "man").iterdir()}
        self.assertGreater(len(self.commands), 12)
        self.assertLessEqual({f"tollgate-{name}.1" for name in self.commands if name != "help"}, pages)

    @needs("mandoc")
    def test_pages_are_good_and_readable(self):
        for page in (self.path / "man").iterdir():
            run("mandoc", "-T", "lint", "-W", "error", page)
            # Bold letters are printed twice, with a backspace between.
            text = re.sub(".\b", "", run("mandoc", "-T", "ascii", page))
            # Commands may have hyphens as well.
            self.assertIn(page.stem.replace("-", " "), text.replace("-", " "), page)
            self.assertIn("DESCRIPTION", text, page)

    @needs("bash")
    def test_bash_completes_commands_options_and_kinds(self):
        for line, expected in (
            ("tollgate ", set(self.commands)),
            ("tollgate dr", {"drain"}),
            ("tollgate put ", {"group", "override"}),
            ("tollgate serve --skip", {"--skip-learning"}),
        ):
            script = self.path / "completions/tollgate.bash"
            words = line.split(" ")
            found = run("bash", "-c", BASH_COMPLETION, "bash", script, words[-1], words[-2], *words)
            self.assertLessEqual(expected, set(found.split()), line)

    @needs("zsh")
    def test_zsh_reads_its_completions(self):
        run("zsh", "-n", self.path / "completions/_tollgate")

    @needs("fish")
    def test_fish_completes_commands(self):
        script = f"source {self.path}/completions/tollgate.fish; complete -C 'tollgate dr'"
        self.assertIn("drain", run("fish", "-c", script))


@needs("dpkg-deb")
class Debian(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "root")

    def packages(self):
        return {name: only(f"tollgate_{VERSION}_{name}.deb") for name in machines()}

    def native(self):
        return self.packages()[MACHINES[os.uname().machine][0]]

    def unpack(self):
        run("dpkg-deb", "-x", self.native(), self.root)

    def test_packages_say_what_they_are(self):
        for arch, package in self.packages().items():
            fields = run("dpkg-deb", "--field", package).splitlines()
            depends = "systemd | systemd-standalone-sysusers | systemd-sysusers"
            expected = {"Package": "tollgate", "Version": VERSION, "Architecture": arch, "Depends": depends}
            self.assertLessEqual({f"{name}: {value}" for name, value in expected.items()}, set(fields))

    def test_files_are_where_debian_has_them_and_are_roots(self):
        lines = [line.split(None, 5) for line in run("dpkg-deb", "--contents", self.native()).splitlines()]
        modes = {line[5].removeprefix("./"): line[0] for line in lines}
        expected = {
            "usr/bin/tollgate": "-rwxr-xr-x", "etc/tollgate/tollgate.yaml": "-rw-r--r--",
            "usr/lib/systemd/system/tollgate.service": "-rw-r--r--", "usr/lib/sysusers.d/tollgate.conf": "-rw-r--r--",
            "usr/share/man/man1/tollgate-serve.1.gz": "-rw-r--r--", "usr/share/doc/tollgate/copyright": "-rw-r--r--",
            "usr/share/doc/tollgate/NOTICES.txt": "-rw-r--r--",
            "usr/share/bash-completion/completions/tollgate": "-rw-r--r--",
            "usr/share/zsh/vendor-completions/_tollgate": "-rw-r--r--",
            "usr/share/fish/vendor_completions.d/tollgate.fish": "-rw-r--r--",
        }
        self.assertLessEqual(expected.items(), modes.items())
        self.assertEqual({line[1] for line in lines}, {"0/0"})

    def test_the_program_is_that_of_the_archive(self):
        self.unpack()
        self.assertEqual((self.root / "usr/bin/tollgate").read_bytes(), content(native_archive())["tollgate"])

    def test_the_configuration_is_good_and_kept_on_upgrades(self):
        self.unpack()
        self.assertIn("good", run(self.root / "usr/bin/tollgate", "check", self.root / "etc/tollgate/tollgate.yaml"))
        self.assertEqual(run("dpkg-deb", "--info", self.native(), "conffiles").split(), ["/etc/tollgate/tollgate.yaml"])

    @needs("systemd-analyze")
    def test_the_unit_is_good_and_hardened(self):
        self.unpack()
        units = self.root / "usr/lib/systemd/system"
        # Targets that it names, and the program of its reload.
        for unit in ("network-online.target", "multi-user.target", "sysinit.target", "basic.target", "shutdown.target"):
            (units / unit).write_text("[Unit]\n")
        (self.root / "bin").mkdir()
        shutil.copy(shutil.which("true"), self.root / "bin/kill")
        verify = ["systemd-analyze", "verify", "--man=no", f"--root={self.root}", "tollgate.service"]
        verified = subprocess.run(verify, capture_output=True, text=True)
        self.assertEqual((verified.returncode, verified.stdout + verified.stderr), (0, ""))
        run("systemd-analyze", "security", "--offline=true", "--threshold=15", units / "tollgate.service")

    @needs("dpkg", "systemd-sysusers", "deb-systemd-helper")
    @unittest.skipIf(os.path.isdir("/run/systemd/system"), "its scripts would start the service of this machine")
    @unittest.skipIf(os.getuid() != 0, "only root installs packages")
    def test_install_enables_the_service_and_purge_leaves_nothing(self):
        self.dpkg("--install", self.native())
        enabled = self.root / "etc/systemd/system/multi-user.target.wants/tollgate.service"
        self.assertTrue(enabled.is_symlink())
        users = (self.root / "etc/passwd").read_text()
        self.assertRegex(users, r"(?m)^tollgate:.*:/var/lib/tollgate:/usr/sbin/nologin$")
        state = self.root / "var/lib/tollgate/tollgate.redb"
        state.parent.mkdir()
        state.write_bytes(b"")
        self.dpkg("--remove", "tollgate")
        self.assertFalse((self.root / "usr/bin/tollgate").exists())
        self.assertTrue((self.root / "etc/tollgate/tollgate.yaml").exists())
        self.assertTrue(state.exists())
        self.dpkg("--purge", "tollgate")
        for path in ("etc/tollgate", "var/lib/tollgate", "etc/systemd/system/multi-user.target.wants/tollgate.service"):
            self.assertFalse(os.path.lexists(self.root / path), path)

    def dpkg(self, *arguments):
        for path in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"):
            (self.root / path).mkdir(parents=True, exist_ok=True)
        (self.root / "var/lib/dpkg/status").touch()
        run("dpkg", f"--root={self.root}", "--force-script-chrootless", "--force-depends", *arguments)


class DynamicModules(unittest.TestCase):
    """The filter as a library, by itself, in a Debian package and in an image."""

    def test_each_is_a_module_of_envoys_for_its_machine(self):
        numbers = dict(MACHINES.values())
        for arch, library in libraries().items():
            data = library.read_bytes()
            elf = Elf(data)
            self.assertEqual(elf.machine, numbers[arch], library)
            # An Envoy that lacks a function which the module calls must say so, not crash in the first call.
            self.assertTrue(elf.binds_at_load, library)
            for hook in (b"envoy_dynamic_module_on_program_init\0", b"envoy_dynamic_module_on_http_filter_new\0"):
                self.assertIn(hook, data, library)

    @needs("dpkg-deb")
    def test_packages_have_the_library_where_the_documentation_says(self):
        for arch, library in libraries().items():
            package = only(f"tollgate-envoy-module_{VERSION}_{arch}.deb")
            fields = set(run("dpkg-deb", "--field", package).splitlines())
            expected = {"Package: tollgate-envoy-module", f"Architecture: {arch}", f"Depends: libc6 (>= {glibc()})"}
            self.assertLessEqual(expected, fields)
            with tempfile.TemporaryDirectory() as folder:
                run("dpkg-deb", "-x", package, folder)
                packed = pathlib.Path(folder, "usr/lib/envoy/libtollgate.so")
                self.assertEqual(packed.read_bytes(), library.read_bytes())
                self.assertEqual(stat.S_IMODE(packed.stat().st_mode), 0o644)
                documents = pathlib.Path(folder, "usr/share/doc/tollgate-envoy-module")
                self.assertLessEqual({"copyright", "NOTICES.txt"}, {file.name for file in documents.iterdir()})

    def test_the_image_has_the_library_for_each_machine(self):
        layout = Layout(modules())
        images = layout.json(layout.root)["manifests"]
        expected = libraries()
        self.assertEqual({image["platform"]["architecture"] for image in images}, set(expected))
        for image in images:
            layer, = layout.json(image)["layers"]
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layout.blob(layer)))) as tar:
                packed = tar.extractfile("usr/lib/envoy/libtollgate.so").read()
            self.assertEqual(packed, expected[image["platform"]["architecture"]].read_bytes())


class Layout:
    """An image layout as a reader sees it, who checks every digest."""

    def __init__(self, archive):
        self.files = {}
        with tarfile.open(archive) as tar:
            self.files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}
        assert json.loads(self.files["oci-layout"])["imageLayoutVersion"] == "1.0.0"
        index = json.loads(self.files["index.json"])
        self.root, = index["manifests"]
        assert self.root["annotations"]["org.opencontainers.image.ref.name"] == VERSION

    def blob(self, descriptor):
        data = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == descriptor["digest"], descriptor
        assert len(data) == descriptor["size"], descriptor
        return data

    def json(self, descriptor):
        return json.loads(self.blob(descriptor))

    def plugin(self):
        """The module, as Istio 1.2x and Envoy Gateway 1.9 look for it: their imagefetcher.go."""
        layers = self.json(self.root)["layers"]
        last = layers[-1]
        if last["mediaType"] == COMPAT_LAYER:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(self.blob(last)))) as tar:
                names = [entry for entry in tar if os.path.basename(entry.name) == "plugin.wasm"]
                return tar.extractfile(names[0]).read()
        assert len(layers) == 2, "an artifact has two layers"
        return self.blob(next(layer for layer in layers if layer["mediaType"] == ARTIFACT_LAYER))


def skopeo_copy(archive, to, *options):
    run("skopeo", "copy", "--quiet", *options, f"oci-archive:{archive}:{VERSION}", to)


def coordinator():
    return only(f"tollgate-coordinator-{VERSION}.oci.tar")


def modules():
    return only(f"tollgate-envoy-module-{VERSION}.oci.tar")


class Images(unittest.TestCase):
    def filters(self):
        return [only(f"tollgate-filter-{VERSION}-{form}.oci.tar") for form in ("compat", "artifact")]

    def test_proxies_find_the_module_in_both_forms(self):
        module = only(f"tollgate_filter-{VERSION}.wasm").read_bytes()
        self.assertEqual(module[:8], b"\0asm\1\0\0\0")
        types = []
        for archive in self.filters():
            layout = Layout(archive)
            self.assertEqual(layout.plugin(), module, archive)
            types.append(layout.json(layout.root)["layers"][-1]["mediaType"])
        self.assertEqual(types, [COMPAT_LAYER, ARTIFACT_LAYER])

    @needs("skopeo")
    def test_skopeo_copies_each_as_it_is(self):
        for archive in [coordinator(), modules(), *self.filters()]:
            with tempfile.TemporaryDirectory() as folder:
                skopeo_copy(archive, f"oci:{folder}/copy:{VERSION}", "--all")
                blobs = pathlib.Path(folder, "copy/blobs/sha256")
                copied = {f"blobs/sha256/{file.name}": file.read_bytes() for file in blobs.iterdir()}
            files = Layout(archive).files
            self.assertEqual(copied, {name: files[name] for name in files if name.startswith("blobs/")})

    def test_the_coordinator_is_there_for_each_machine_and_small(self):
        layout = Layout(coordinator())
        images = layout.json(layout.root)["manifests"]
        self.assertEqual({image["platform"]["architecture"] for image in images}, machines())
        for image in images:
            manifest = layout.json(image)
            config = layout.json(manifest["config"])
            layer = gzip.decompress(layout.blob(manifest["layers"][0]))
            self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(layer).hexdigest()}"])
            self.assertEqual(config["architecture"], image["platform"]["architecture"])
            self.assertEqual(config["config"]["User"], "65532:65532")
            if RELEASE:
                self.assertLessEqual(len(layer), IMAGE_BYTES_MAX)

    @needs("skopeo", "umoci")
    def test_umoci_unpacks_the_program_the_certificates_and_a_state_directory(self):
        with tempfile.TemporaryDirectory() as folder:
            one, bundle = f"{folder}/one", pathlib.Path(folder, "bundle")
            skopeo_copy(coordinator(), f"oci:{one}:{VERSION}")
            owners = [] if os.getuid() == 0 else ["--rootless"]
            run("umoci", "unpack", *owners, "--image", f"{one}:{VERSION}", bundle)
            root = bundle / "rootfs"
            program = root / "usr/local/bin/tollgate"
            self.assertEqual(program.read_bytes(), content(native_archive())["tollgate"])
            self.assertEqual(stat.S_IMODE(program.stat().st_mode), 0o755)
            self.assertGreater((root / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE"), 100)
            process = json.loads((bundle / "config.json").read_text())["process"]
            arguments = ["serve", "--config", "/etc/tollgate/tollgate.yaml"]
            self.assertEqual(process["args"], ["/usr/local/bin/tollgate", *arguments])
            if os.getuid() == 0:
                self.assertEqual((process["user"]["uid"], process["user"]["gid"]), (65532, 65532))
                self.assertEqual((root / "var/lib/tollgate").stat().st_uid, 65532)
                self.assertEqual(program.stat().st_uid, 0)


class Release(unittest.TestCase):
    """What holds only of programs that `just dist` built."""

    def test_programs_are_static_and_say_nothing_of_this_machine(self):
        home = os.path.expanduser("~").encode() + b"/.cargo"
        for archive in archives():
            program = content(archive)["tollgate"]
            elf = Elf(program)
            self.assertFalse(elf.has_loader or elf.needs_libraries, archive)
            self.assertNotIn(home, program, archive)
            self.assertNotIn(os.fsencode(ROOT) + b"/", program, archive)
            self.assertLess(len(program), IMAGE_BYTES_MAX, archive)
        for library in libraries().values():
            data = library.read_bytes()
            self.assertNotIn(home, data, library)
            self.assertNotIn(os.fsencode(ROOT) + b"/", data, library)

    def test_dynamic_modules_need_no_newer_glibc_than_the_package_says(self):
        said = tuple(int(number) for number in glibc().split("."))
        for library in libraries().values():
            versions = re.findall(rb"GLIBC_([0-9]+)\.([0-9]+)", library.read_bytes())
            self.assertTrue(versions, library)
            self.assertLessEqual(max(tuple(map(int, version)) for version in versions), said, library)

    def test_sboms_name_what_is_linked_and_nothing_else(self):
        lock = dict(re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', (ROOT / "Cargo.lock").read_text()))
        for name, inside, outside in (
            ("tollgate-cli", {"tokio", "tonic", "rustls", "mimalloc", "etcd-client"}, {"proptest", "proxy-wasm"}),
            ("tollgate-filter", {"proxy-wasm", "tollgate-engine"}, {"proptest", "tokio"}),
            ("tollgate-native", {"tonic", "tokio", "tollgate-engine"}, {"proptest", "redb"}),
        ):
            bom = json.loads((DIST / f"{name}-{VERSION}.cdx.json").read_text())
            self.assertEqual(bom["bomFormat"], "CycloneDX")
            components = {component["name"]: component for component in bom["components"]}
            self.assertLessEqual(inside, components.keys())
            self.assertFalse(outside & components.keys())
            for component in inside:
                self.assertEqual(components[component]["version"], lock[component], component)
                self.assertIn("licenses", components[component])

    @needs("skopeo", "docker")
    def test_docker_runs_the_coordinator_read_only(self):
        if subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
            self.skipTest("Docker does not run here")
        name = f"tollgate-dist-{os.getpid()}"
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder).chmod(0o755)
            config = "limits: [{match: '*', requests: {rate: 5}}]\nstore: {path: memory}\n"
            pathlib.Path(folder, "tollgate.yaml").write_text(config)
            image = f"{folder}/image.tar"
            skopeo_copy(coordinator(), f"docker-archive:{image}:{name}:test")
            run("docker", "load", "--quiet", "--input", image)
            self.addCleanup(subprocess.run, ["docker", "image", "rm", "--force", f"{name}:test"], capture_output=True)
            self.addCleanup(subprocess.run, ["docker", "rm", "--force", name], capture_output=True)
            options = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none"]
            options += ["--name", name, "--volume", f"{folder}:/etc/tollgate:ro"]
            run("docker", "run", "--detach", *options, f"{name}:test")
            ready = f"until docker logs {name} | grep -q '^tollgate ready'; do :; done"
            run("timeout", "30", "sh", "-c", ready)
            self.assertEqual(run("docker", "exec", name, "/usr/local/bin/tollgate", "ready"), "ready\n")
            run("docker", "stop", name)
            self.assertEqual(run("docker", "inspect", "--format", "{{.State.ExitCode}}", name).strip(), "0")


VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]

if __name__ == "__main__":
    cases = [Archives, Documents, Debian, DynamicModules, Images] + ([Release] if RELEASE else [])
    suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, cases))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    passed = result.testsRun - failed - skipped
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; {skipped} ignored")
    sys.exit(failed != 0)
