"""Overlays played on this machine: the pods' programs with the pods' configuration."""

import contextlib
import http.client
import http.server
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass

from envoys import Ports, bootstrap

# Time after which a program that does not do what it should has failed; none needs a tenth of it.
PATIENCE_S = 30

# Parts of log lines in which a filter finds fault with a configuration that it takes.
COMPLAINTS = ["ignored unknown fields", "cluster missing"]


@dataclass
class Programs:
    """Paths of the coordinator, Envoy, and the filter as wasm and as a dynamic module."""

    tollgate: str
    envoy: str
    module: str
    library: str


def check(programs, overlay):
    """Returns what `tollgate check` finds wrong with the coordinator's configuration."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tollgate.yaml")
        with open(path, "w") as file:
            file.write(overlay.configuration)
        output = subprocess.run([programs.tollgate, "check", path], capture_output=True, text=True)
    return [] if output.returncode == 0 else output.stderr.splitlines() or ["tollgate check failed"]


def play(programs, overlay):
    """Returns what keeps a client of the overlay's proxy from a 429 by a lease."""
    with tempfile.TemporaryDirectory() as folder, upstream() as served, Coordinator(programs, overlay, folder) as asked:
        ports = Ports(asked.grpc, served)
        with Envoy(programs, overlay, ports, folder) as envoy:
            found = course(overlay, ports, envoy, asked)
        complaints, last = envoy.complaints(), envoy.lines()[-12:]
    return found + (complaints or last if found else complaints)


def course(overlay, ports, envoy, coordinator):
    """Returns what goes otherwise than it should from the first request to a 429."""
    if not envoy.serves(ports.main):
        return ["Envoy does not serve"]
    found = until_refused(ports.main)
    # A filter that complains may wait for leases in vain.
    return found or envoy.complaints() or coordinator.without_leases() + probes(overlay, ports)


def follow(programs, overlay):
    """Returns what is wrong with probes, metrics, access, and with the way in which a changed ConfigMap is followed."""
    with tempfile.TemporaryDirectory() as folder, Coordinator(programs, overlay, folder) as asked:
        [container] = overlay.one("StatefulSet")["spec"]["template"]["spec"]["containers"]
        paths = [container[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
        paths += [each["path"] for each in overlay.one("ServiceMonitor")["spec"]["endpoints"]]
        found = [f"{path} is answered with {status}" for path in paths if (status := asked.get(path)[0]) != 200]
        # The manifests come with a token that nobody has.
        written = request(asked.http, "PUT", "/v1/groups/gold", '{"requests": {"rate": 1}}')[0]
        found += [] if written == 401 else [f"a write without a token is answered with {written}"]
        more = asked.text + '  - match: "tenant/acme"\n    requests: {rate: 7}\n'
        asked.mount(more.replace('  - match: "*"\n    requests: {rate: unlimited}\n', ""))
        followed = asked.until(r'tollgate_reloads_total\{result="taken"\} 1$')
        return found + ([] if followed else ["the changed ConfigMap is not followed"])


class Coordinator:
    """A coordinator with the configuration and the arguments of the pod, on ports of its own."""

    def __init__(self, programs, overlay, folder):
        self.folder = os.path.join(folder, "configuration")
        os.makedirs(os.path.join(folder, "state"))
        text = overlay.configuration.replace("/var/lib/tollgate", os.path.join(folder, "state"))
        self.text = re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", text)
        self.versions = 0
        self.mount(self.text)
        [container] = overlay.one("StatefulSet")["spec"]["template"]["spec"]["containers"]
        arguments = [each.replace("/etc/tollgate", self.folder) for each in container["args"]]
        # Envoys hold no leases of an earlier run.
        self.command = [programs.tollgate, *arguments, "--skip-learning"]
        self.log = open(os.path.join(folder, "coordinator.log"), "w")

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        ready = dict(word.split("=") for word in self.process.stdout.readline().split()[2:])
        assert ready, open(self.log.name).read()
        self.grpc, self.http = (int(ready[name].rsplit(":", 1)[1]) for name in ("grpc", "http"))
        return self

    def __exit__(self, *_):
        end(self.process)
        self.log.close()

    def mount(self, text):
        """Puts the configuration where it is, as kubelet does: in a new folder, to which it turns the link `..data`."""
        self.versions += 1
        version = f"..version-{self.versions}"
        os.makedirs(os.path.join(self.folder, version))
        with open(os.path.join(self.folder, version, "tollgate.yaml"), "w") as file:
            file.write(text)
        path = {name: os.path.join(self.folder, name) for name in ("..data", "..data_tmp", "tollgate.yaml")}
        os.symlink(version, path["..data_tmp"])
        os.rename(path["..data_tmp"], path["..data"])
        if not os.path.lexists(path["tollgate.yaml"]):
            os.symlink("..data/tollgate.yaml", path["tollgate.yaml"])

    def get(self, path):
        return request(self.http, "GET", path)

    def until(self, line):
        """Returns whether the metrics come to have a line of this form."""
        return eventually(lambda: re.search(line, self.get("/metrics")[2], re.MULTILINE))

    def without_leases(self):
        """Returns a problem if the coordinator has lent nothing: then a refusal came from the safe capacity."""
        lent = self.until(r'tollgate_(leased\{unit="requests"\}|drawn_total) [1-9]')
        return [] if lent else ["the coordinator has lent nothing"]


class Envoy:
    """An Envoy with the overlay's configuration."""

    def __init__(self, programs, overlay, ports, folder):
        path, self.log = os.path.join(folder, "envoy.json"), os.path.join(folder, "envoy.log")
        with open(path, "w") as file:
            json.dump(bootstrap(overlay, programs, ports), file)
        self.command = [programs.envoy, "--config-path", path, "--disable-hot-restart", "--service-node", "hello-0"]
        self.command += ["--service-cluster", "hello", "--concurrency", "1", "--log-level", "warning"]

    def __enter__(self):
        with open(self.log, "w") as file:
            self.process = subprocess.Popen(self.command, stdout=file, stderr=file)
        return self

    def __exit__(self, *_):
        end(self.process)

    def serves(self, port):
        """Returns whether a request of another tenant comes to be answered by the service."""
        eventually(lambda: self.process.poll() is not None or answer(port, "warm-up")[0] == 200)
        return self.process.poll() is None

    def complaints(self):
        """Returns the lines of its log in which the filter is not content with its configuration."""
        return [line for line in self.lines() if any(each in line for each in COMPLAINTS)]

    def lines(self):
        with open(self.log) as file:
            return file.read().splitlines()


@contextlib.contextmanager
def upstream():
    """Runs the service that is to be limited; gives its port."""

    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-length", "6")
            self.end_headers()
            self.wfile.write(b"hello\n")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


def until_refused(port):
    """Sends requests of a tenant until one is refused for its limit; returns what was answered instead."""
    statuses = []
    for _ in range(200):
        status, headers, _ = answer(port, "acme")
        statuses.append(status)
        if status == 429:
            reason = headers.get("tollgate-reason")
            wrong = [] if reason == "tenant/requests" else [f"the reason is {reason}"]
            return wrong + ([] if statuses[0] == 200 else ["not even the first request passed"])
    return [f"no 429 in {len(statuses)} requests, but {sorted(set(statuses))}"]


def probes(overlay, ports):
    """Returns what is wrong with the paths that the sidecar offers to kubelet and Prometheus."""
    containers = [each for _, template in overlay.pods for each in template["spec"]["containers"]]
    sidecars = [each for each in containers if each["name"] == "envoy"]
    paths = [each[kind]["httpGet"]["path"] for each in sidecars for kind in ("startupProbe", "readinessProbe")]
    wanted = {**dict.fromkeys(paths, 200), "/stats/prometheus": 200, "/quitquitquit": 404} if sidecars else {}
    answered = {path: request(ports.probes, "GET", path)[0] for path in wanted}
    return [f"{path} is answered with {status}" for path, status in answered.items() if status != wanted[path]]


def answer(port, tenant):
    return request(port, "GET", "/", headers={"x-tenant": tenant})


def request(port, method, path, body=None, headers=None):
    """Returns status, headers and body of an answer; status 0 if nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    headers = {"content-type": "application/json", **(headers or {})}
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    except OSError:
        return 0, {}, ""
    finally:
        connection.close()


def eventually(condition):
    """Returns whether the condition comes to hold in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(holds)


def end(process):
    """Ends a process that this program started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
