"""Tests the coordinator's pages in a real Chromium, against a real coordinator with real leases.

usage: browser TOLLGATE SELENIUM GRPCIO PROTO SCREENSHOTS [NAME]

Starts the program TOLLGATE, leases 2004 scopes over the Doorman API (PROTO, with the grpcio-tools installed in GRPCIO),
and drives Chromium through Selenium (installed in SELENIUM). Each page is also photographed, for people, into the folder
SCREENSHOTS. NAME selects tests. The last line has the form of cargo's `test result:`, for tests/run.sh.
"""

import os
import sys
import tempfile

sys.dont_write_bytecode = True


def main(tollgate, selenium, grpcio, proto, screenshots, name=""):
    sys.path[:0] = [selenium, grpcio]
    os.environ["PYTHONPATH"] = grpcio
    from browser import Browser
    from fleet import Fleet, doorman_stubs

    with tempfile.TemporaryDirectory() as folder, Browser(screenshots) as browser:
        stubs = doorman_stubs(os.path.abspath(proto), folder)
        with Fleet(tollgate, stubs, folder) as fleet:
            fleet.lease_all()
            results = [browser.passes(test, fleet) for test in tests(name)]
    passed = sum(results)
    failed = len(results) - passed
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


def tests(name):
    """Returns the tests of all files whose names contain `name`, in the order in which they are to run."""
    import forms
    import hostile
    import keeping
    import layout
    import scope_page
    import status_page

    files = [status_page, forms, keeping, scope_page, hostile, layout]
    found = [test for file in files for test in file.TESTS if name in test.__name__]
    if not found:
        sys.exit(f"no test has {name!r} in its name")
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
