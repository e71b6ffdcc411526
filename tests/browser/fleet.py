"""A coordinator, and the leases that its pages show."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request

# Scopes with one client each, beside those below: 2004 resources in all.
SHOPS = 1991

# Names that try to be more than a text, and one that is long.
HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror=alert(1)>',
    "' onfocus='alert(1)' autofocus='",
    "../../v1/status?x=<b>#y",
    "\u202egnitrats\u202c/\u05d0\u05d1\u05d2",
    "javascript:alert(1)//%22%00",
    "x" * 180,
]

# Scopes with several clients: what each client wants, of a limit of 100 a second.
SHARED = {
    "busy": [90, 60, 30],
    "calm": [10, 20],
    "blocked": [5],
}

# Pause between two refreshes of a client: longer than `min_refresh`, so that each refresh counts.
PAUSE_S = 0.02

# Members of the group gold, which has 100 a second.
MEMBERS = {"acme": 90, "bee": 60, "cat": 5}

CONFIG = """
listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
store: {path: memory}
groups:
  gold: {requests: {rate: 100, lease: 1h, refresh: 10s, min_refresh: 10ms, headroom: 0}, fair_between: members}
attach: {tenants: {acme: gold, bee: gold, cat: gold}}
doorman: {scopes: {acme: tenant/acme, bee: tenant/bee, cat: tenant/cat}}
limits:
- {match: doorman/blocked, requests: {rate: 0, lease: 1h, refresh: 10s}}
- {match: 'tenant/*', requests: {rate: unlimited, lease: 1h, refresh: 10s, min_refresh: 10ms}}
- {match: '*', requests: {rate: 100, lease: 1h, refresh: 10s, min_refresh: 10ms, headroom: 0}}
"""


def doorman_stubs(proto, folder):
    """Generates the modules of `proto` with grpcio-tools: messages and services."""
    name = os.path.splitext(os.path.basename(proto))[0]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{os.path.dirname(proto)}"]
    subprocess.run([*command, f"--python_out={folder}", f"--grpc_python_out={folder}", proto], check=True)
    sys.path.insert(0, folder)
    return importlib.import_module(f"{name}_pb2"), importlib.import_module(f"{name}_pb2_grpc")


class Fleet:
    """A coordinator with clients. Leases last for an hour, so that none has to be refreshed."""

    def __init__(self, tollgate, stubs, folder):
        self.tollgate, self.stubs, self.folder = tollgate, stubs, folder
        self.messages, services = stubs
        config = os.path.join(folder, "tollgate.yaml")
        with open(config, "w") as file:
            file.write(CONFIG)
        self.process = subprocess.Popen(
            [tollgate, "serve", "--config", config, "--skip-learning", "--log", "error"],
            stdout=subprocess.PIPE,
            text=True,
        )
        ready = dict(word.split("=") for word in self.process.stdout.readline().split()[2:])
        self.url = f"http://{ready['http']}"
        grpc = importlib.import_module("grpc")
        # Proxies in the environment are not for this machine's own ports.
        self.channel = grpc.insecure_channel(ready["grpc"], [("grpc.enable_http_proxy", 0)])
        self.capacity = services.CapacityStub(self.channel)
        self.leases = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)

    def end(self, by):
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(by)
            self.process.wait(20)

    def another(self):
        """Returns a second coordinator of the same kind, without leases."""
        return Fleet(self.tollgate, self.stubs, self.folder)

    def ask(self, client, wants):
        """Refreshes the resources of `wants` for `client`, with the leases of its last call."""
        requests = []
        for resource, amount in wants.items():
            request = self.messages.ResourceRequest(resource_id=resource, priority=0, wants=amount)
            if (client, resource) in self.leases:
                request.has.CopyFrom(self.leases[client, resource])
            requests.append(request)
        call = self.messages.GetCapacityRequest(client_id=client, resource=requests)
        for response in self.capacity.GetCapacity(call, timeout=10).response:
            self.leases[client, response.resource_id] = response.gets

    def lease_all(self):
        """Leases every scope of this file, all but `SHOPS` of them several times until shares have settled."""
        shops = [f"shop-{i:04}" for i in range(SHOPS)]
        for start in range(0, SHOPS, 200):
            self.ask("envoy-shops", {shop: 1 for shop in shops[start : start + 200]})
        self.ask("envoy-hostile", {name: 7 for name in HOSTILE})
        for _ in range(4):
            self.settle()

    def settle(self):
        """Refreshes all that several clients share, once."""
        time.sleep(PAUSE_S)
        for resource, wants in SHARED.items():
            for i, amount in enumerate(wants):
                self.ask(f"envoy-{i}", {resource: amount})
        self.ask("envoy-0", dict(MEMBERS))

    def scope_url(self, scope):
        return f"{self.url}/scopes/{urllib.parse.quote(scope)}"

    def read(self, path):
        """Returns the JSON at `path` of the admin API."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(self.url + path, timeout=10) as answer:
            return json.load(answer)
