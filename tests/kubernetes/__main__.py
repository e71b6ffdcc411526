"""Tests the manifests of `envoy/kubernetes`.

usage: python3 tests/kubernetes TOLLGATE ENVOY FILTER LIBRARY [NAME]

Renders each overlay with kubectl and checks the result: against the schemas of Kubernetes and of the custom resources,
for references that lead nowhere, for hardening, and the coordinator's configuration with `tollgate check`. Then plays
each overlay on this machine: the program TOLLGATE with the configuration, the arguments and the probes of the pod, and
ENVOY with FILTER or LIBRARY, configured as Istio, Envoy Gateway or the sidecar's file configure it, up to the first 429. NAME
selects tests. The last line has the form of cargo's `test result:`, for tests/run.sh.
"""

import sys
import traceback

import hardening
import mistakes
import playing
import references
import schemas
from overlays import DOCUMENTED, OVERLAYS, Overlay


def main(tollgate, envoy, module, library, name=""):
    programs = playing.Programs(tollgate, envoy, module, library)
    tests = {title: test for title, test in all_tests(programs).items() if name in title}
    failed = [title for title, test in tests.items() if not passes(title, test)]
    word = "FAILED" if failed or not tests else "ok"
    print(f"test result: {word}. {len(tests) - len(failed)} passed; {len(failed)} failed; 0 ignored")
    return 1 if failed or not tests else 0


def all_tests(programs):
    """Returns the tests by title: functions that return what is wrong, one line each."""
    tests = {}
    for name in [*OVERLAYS, DOCUMENTED]:
        overlay = Overlay(name)
        tests[f"{name}: fits the schemas"] = lambda of=overlay: schemas.problems(of.documents)
        tests[f"{name}: references lead somewhere"] = lambda of=overlay: references.problems(of)
        tests[f"{name}: pods are hardened"] = lambda of=overlay: hardening.problems(of)
        tests[f"{name}: tollgate check"] = lambda of=overlay: playing.check(programs, of)
        if overlay.proxy:
            tests[f"{name}: up to a 429"] = lambda of=overlay: playing.play(programs, of)
    tests["single: probes, metrics and a changed ConfigMap"] = lambda: playing.follow(programs, Overlay("single"))
    for title, mistake in mistakes.MISTAKES.items():
        tests[f"a mistake is found: {title}"] = lambda test=mistake: test(programs)
    return tests


def passes(title, test):
    """Runs a test, prints how it ended, and returns whether it passed."""
    try:
        problems = test()
    except Exception:
        problems = traceback.format_exc().splitlines()
    print(f"test {title} ... {'FAILED' if problems else 'ok'}", flush=True)
    for problem in problems:
        print(f"    {problem}", flush=True)
    return not problems


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
