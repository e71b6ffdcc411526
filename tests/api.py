"""Tests the admin API against its OpenAPI description.

usage: api.py TOLLGATE SCHEMATHESIS_DIR [SECONDS]

Starts the program TOLLGATE. Schemathesis (installed in SCHEMATHESIS_DIR) generates valid and invalid requests from
the description that it serves, and checks every answer: no server error; no status, body or header that is not
described; no invalid request accepted; nothing open without a token. The last line has the form of cargo's
`test result:`, for tests/run.sh: an operation in one phase counts as a test.
"""

import hashlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

# Defines a limit, a group and an attachment, which the API must refuse to change.
CONFIG = """
listen: {{grpc: '127.0.0.1:0', http: '127.0.0.1:0'}}
admin: {{tokens: [{{name: tests, role: admin, sha256: {hash}}}]}}
limits:
- {{match: tenant/acme, requests: {{rate: 100}}}}
- {{match: '*', requests: {{rate: unlimited}}}}
groups:
  gold: {{requests: {{rate: 1000}}}}
attach:
  tenants: {{acme: gold}}
"""

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "ignored_auth",
]


# An invalid request may also be refused because of its precondition.
SCHEMATHESIS = """
[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 412, 415, 422, 428, 429, "5xx"]
"""


def main(tollgate, schemathesis, seconds="60"):
    with tempfile.TemporaryDirectory() as folder:
        token = secrets.token_hex(32)
        config = os.path.join(folder, "tollgate.yaml")
        with open(config, "w") as file:
            file.write(CONFIG.format(hash=hashlib.sha256(token.encode()).hexdigest()))
        with open(os.path.join(folder, "schemathesis.toml"), "w") as file:
            file.write(SCHEMATHESIS)
        server = subprocess.Popen(
            [tollgate, "serve", "--config", config, "--log", "warn"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            ready = dict(word.split("=") for word in server.stdout.readline().split()[2:])
            report = os.path.join(folder, "report.xml")
            status = fuzz(schemathesis, ready["http"], token, seconds, report, folder)
            alive = server.poll() is None
        finally:
            server.send_signal(signal.SIGTERM)
        ended = server.wait(20)
        passed, failed, skipped = counts(report)
        if not alive or ended != 0:
            print(f"the server ended with {ended}")
            failed += 1
        if status != 0 and failed == 0:
            print(f"schemathesis ended with {status}")
            failed = 1
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; {skipped} ignored")
    return 1 if failed else 0


def fuzz(schemathesis, address, token, seconds, report, folder):
    """Runs schemathesis against the server on `address` and returns its exit code."""
    command = [
        *[sys.executable, "-m", "schemathesis.cli", "run"],
        f"http://{address}/v1/openapi.json",
        *["--header", f"Authorization: Bearer {token}"],
        *["--checks", ",".join(CHECKS)],
        *["--max-time", seconds, "--workers", "1", "--continue-on-failure"],
        *["--report", "junit", "--report-junit-path", report],
        # The same random choices in each run, for stable results; another seed tries other requests.
        *["--seed", os.environ.get("TOLLGATE_SEED") or "1"],
    ]
    environment = {**os.environ, "PYTHONPATH": schemathesis, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=environment, cwd=folder).returncode


def counts(report):
    """Returns the numbers of passed, failed and skipped tests in the report."""
    passed = failed = skipped = 0
    for case in xml.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
