"""Leases capacity as a Doorman client does, with code that grpcio-tools generates from `doorman.proto`.

usage: doorman_client.py TOLLGATE PACKAGES PROTO

Starts the program TOLLGATE, compiles PROTO (proto2) with the grpcio-tools installed in PACKAGES, and calls each
method of `doorman.Capacity` over real HTTP/2. This client uses a foreign implementation of proto2, so it checks what a
Doorman client relies on: required fields, zeros on the wire, seconds since 1970. The last line has the form of cargo's
`test result:`, for tests/run.sh.
"""

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

CAPACITY = 100
# Pause between two refreshes of a client: longer than `min_refresh`, so that each refresh counts.
PAUSE_S = 0.12

CONFIG = """
listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
store: {path: memory}
doorman: {scopes: {shared: tenant/acme}}
limits:
- {match: doorman/blocked, requests: {rate: 0}}
- {match: doorman/safe, requests: {rate: 100, safe: 7}}
- {match: '*', requests: {rate: 100, lease: 10s, refresh: 2s, min_refresh: 100ms, headroom: 0}}
"""

TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Client:
    """A client like Doorman's own: makes one call at a time, and sends the last answer's lease with the next request."""

    def __init__(self, server, client_id):
        self.server = server
        self.id = client_id
        self.leases = {}

    def ask(self, resource, wants, priority=0):
        """Refreshes `resource` and returns the response to it."""
        response = self.send([self.request(resource, wants, priority)]).response
        assert len(response) == 1, response
        return response[0]

    def request(self, resource, wants, priority=0):
        request = self.server.messages.ResourceRequest(resource_id=resource, priority=priority, wants=wants)
        if resource in self.leases:
            request.has.CopyFrom(self.leases[resource])
        return request

    def send(self, resources):
        call = self.server.messages.GetCapacityRequest(client_id=self.id, resource=resources)
        answer = self.server.capacity.GetCapacity(call, timeout=5)
        assert not answer.HasField("mastership"), "the only coordinator is the master"
        for response in answer.response:
            self.leases[response.resource_id] = response.gets
        return answer

    def uses(self, resource):
        """Returns the capacity that this client may use now, by its own clock."""
        lease = self.leases.get(resource)
        return lease.capacity if lease is not None and lease.expiry_time > time.time() else 0

    def release(self, *resources):
        call = self.server.messages.ReleaseCapacityRequest(client_id=self.id, resource_id=resources)
        answer = self.server.capacity.ReleaseCapacity(call, timeout=5)
        assert not answer.HasField("mastership"), answer
        for resource in resources:
            self.leases.pop(resource, None)


class Server:
    """A running coordinator, and the generated code to call it."""

    def __init__(self, grpc, ready, messages, services):
        self.grpc = grpc
        self.address = ready["grpc"]
        self.http = ready["http"]
        self.messages = messages
        # Proxies in the environment are not for this machine's own ports.
        self.channel = grpc.insecure_channel(self.address, [("grpc.enable_http_proxy", 0)])
        self.capacity = services.CapacityStub(self.channel)

    def client(self, client_id):
        return Client(self, client_id)

    def bytes_of(self, method, request):
        """Returns the bytes of the answer to `request`."""
        path = f"/doorman.Capacity/{method}"
        return self.channel.unary_unary(path)(request.SerializeToString(), timeout=5)

    def refusal(self, method, request):
        """Returns the status that refuses `request`."""
        try:
            answer = getattr(self.capacity, method)(request, timeout=5)
        except self.grpc.RpcError as error:
            return error.code(), error.details()
        raise AssertionError(f"expected a refusal, got {answer}")


@test
def discovery_names_this_server_as_master(server):
    answer = server.capacity.Discovery(server.messages.DiscoveryRequest(), timeout=5)
    assert answer.is_master
    assert answer.mastership.master_address == server.address, answer


@test
def a_client_gets_a_lease(server):
    before = time.time()
    response = server.client("lease").ask("alone", 40)
    lease = response.gets
    assert response.resource_id == "alone"
    assert lease.capacity == 40, lease
    assert lease.refresh_interval == 2, lease
    # Ten seconds from when the request arrived, rounded down to whole ones.
    assert math.floor(before) + 10 <= lease.expiry_time <= time.time() + 10, (before, lease)
    assert response.safe_capacity == CAPACITY, "the capacity over the one client"


@test
def zeros_are_on_the_wire(server):
    messages = server.messages
    request = messages.ResourceRequest(resource_id="zero", priority=0, wants=0)
    assert b"\x10\x00" in request.SerializeToString(), "the client sends its zero priority"
    call = messages.GetCapacityRequest(client_id="zeros", resource=[request])
    lease = messages.GetCapacityResponse.FromString(server.bytes_of("GetCapacity", call)).response[0].gets
    assert lease.HasField("capacity") and lease.capacity == 0, lease
    # Field 3, eight bytes: an encoder of proto3 would leave these out, and Doorman's client would refuse the lease.
    assert b"\x19" + bytes(8) in server.bytes_of("GetCapacity", call)


@test
def what_is_blocked_has_nothing_and_says_so(server):
    messages = server.messages
    request = messages.ResourceRequest(resource_id="blocked", priority=0, wants=10)
    call = messages.GetCapacityRequest(client_id="blocked", resource=[request])
    answer = server.bytes_of("GetCapacity", call)
    response = messages.GetCapacityResponse.FromString(answer).response[0]
    assert response.gets.HasField("capacity") and response.gets.capacity == 0, response
    assert response.HasField("safe_capacity") and response.safe_capacity == 0, response


@test
def a_safe_capacity_is_as_configured_or_the_capacity_over_the_clients(server):
    assert server.client("safe").ask("safe", 1).safe_capacity == 7
    safe = [server.client(f"dynamic{i}").ask("dynamic", 1).safe_capacity for i in range(3)]
    assert [round(each, 3) for each in safe] == [100, 50, 33.333], safe


@test
def two_clients_never_have_more_than_there_is(server):
    a, b = server.client("a"), server.client("b")
    clients = [a, b]
    # Wants of both by round: both over the capacity; then one of them little; then the other.
    rounds = [(80, 80)] * 6 + [(10, 500)] * 6 + [(500, 10)] * 6
    for number, wants in enumerate(rounds):
        for client, wanted in zip(clients, wants):
            client.ask("both", wanted)
            together = sum(client.uses("both") for client in clients)
            assert together <= CAPACITY, f"round {number}: {together}"
        if number % 6 == 5:
            shares = [client.uses("both") for client in clients]
            expected = {80: [50, 50], 10: [10, 90], 500: [90, 10]}[wants[0]]
            assert shares == expected, f"round {number}: {shares}"
        time.sleep(PAUSE_S)


@test
def what_is_released_is_free(server):
    a, b = server.client("first"), server.client("second")
    assert a.ask("released", 100).gets.capacity == 100
    assert b.ask("released", 100).gets.capacity == 0, "all of it is lent"
    # Doorman's own client sends empty names when it ends.
    a.release("", "released", "never asked for")
    time.sleep(PAUSE_S)
    assert b.ask("released", 100).gets.capacity == 100


@test
def a_server_leases_for_its_bands(server):
    messages = server.messages
    bands = [
        messages.PriorityBandAggregate(priority=0, num_clients=2, wants=30),
        messages.PriorityBandAggregate(priority=5, num_clients=3, wants=40),
    ]
    resource = messages.ServerCapacityResourceRequest(resource_id="bands", wants=bands)
    call = messages.GetServerCapacityRequest(server_id="leaf", resource=[resource])
    response = server.capacity.GetServerCapacity(call, timeout=5).response[0]
    assert response.gets.capacity == 70, response
    assert response.algorithm.kind == messages.Algorithm.FAIR_SHARE, response
    assert (response.algorithm.lease_length, response.algorithm.refresh_interval) == (10, 2), response
    assert response.safe_capacity == CAPACITY / 5, "of five subclients"
    for band in bands:
        band.wants *= 10
    resource = messages.ServerCapacityResourceRequest(resource_id="bands", wants=bands, has=response.gets)
    call = messages.GetServerCapacityRequest(server_id="leaf", resource=[resource])
    time.sleep(PAUSE_S)
    assert server.capacity.GetServerCapacity(call, timeout=5).response[0].gets.capacity == CAPACITY


@test
def one_call_asks_for_many_and_the_same_twice(server):
    client = server.client("many")
    resources = [client.request(name, 5) for name in ("one", "two", "two", "tenant/with/slashes", "")]
    answer = client.send(resources)
    names = sorted(response.resource_id for response in answer.response)
    assert names == ["", "one", "tenant/with/slashes", "two", "two"], names
    assert server.client("none").send([]).response == []


@test
def what_is_no_amount_is_refused_by_name(server):
    messages = server.messages
    code = server.grpc.StatusCode.INVALID_ARGUMENT
    for wants in (math.nan, -5, math.inf):
        good = messages.ResourceRequest(resource_id="good", priority=0, wants=1)
        bad = messages.ResourceRequest(resource_id="refused", priority=0, wants=wants)
        call = messages.GetCapacityRequest(client_id="bad", resource=[good, bad])
        status, details = server.refusal("GetCapacity", call)
        assert status == code and "resource[1].wants" in details, (wants, status, details)
    band = messages.PriorityBandAggregate(priority=0, num_clients=0, wants=1)
    resource = messages.ServerCapacityResourceRequest(resource_id="refused", wants=[band])
    call = messages.GetServerCapacityRequest(server_id="bad", resource=[resource])
    status, details = server.refusal("GetServerCapacity", call)
    assert status == code and "resource[0].wants[0].num_clients" in details, (status, details)
    status, details = server.refusal("GetCapacity", messages.GetCapacityRequest(client_id=""))
    assert status == code and "client_id" in details, (status, details)
    # A refused call changes nothing, and other clients go on.
    assert server.client("after").ask("refused", 100).gets.capacity == 100


@test
def a_resource_is_the_scope_that_is_configured(server):
    server.client("mapped").ask("shared", 30)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://{server.http}/v1/scopes/tenant/acme", timeout=5) as answer:
        scope = json.load(answer)
    clients = {client["client"]: client["has"] for client in scope["units"]["requests"]["clients"]}
    assert clients == {"doorman/mapped": 30}, scope


def generated(proto, folder):
    """Generates the modules of `proto` with grpcio-tools: messages and services."""
    name = os.path.splitext(os.path.basename(proto))[0]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{os.path.dirname(proto)}"]
    subprocess.run([*command, f"--python_out={folder}", f"--grpc_python_out={folder}", proto], check=True)
    sys.path.insert(0, folder)
    return importlib.import_module(f"{name}_pb2"), importlib.import_module(f"{name}_pb2_grpc")


def passes(function, server):
    name = function.__name__
    try:
        function(server)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(f"test {name} ... FAILED")
        return False
    print(f"test {name} ... ok")
    return True


def main(tollgate, packages, proto):
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = packages
    sys.path.insert(0, packages)
    grpc = importlib.import_module("grpc")
    with tempfile.TemporaryDirectory() as folder:
        messages, services = generated(os.path.abspath(proto), folder)
        config = os.path.join(folder, "tollgate.yaml")
        with open(config, "w") as file:
            file.write(CONFIG)
        process = subprocess.Popen(
            [tollgate, "serve", "--config", config, "--skip-learning", "--log", "warn"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            ready = dict(word.split("=") for word in process.stdout.readline().split()[2:])
            server = Server(grpc, ready, messages, services)
            results = [passes(function, server) for function in TESTS]
            server.channel.close()
        finally:
            process.send_signal(signal.SIGTERM)
        ended = process.wait(20)
    passed = sum(results)
    failed = len(results) - passed
    if ended != 0:
        print(f"the server ended with {ended}")
        failed += 1
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
