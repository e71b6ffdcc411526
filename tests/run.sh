#!/usr/bin/env bash
# Runs all of Tollgate's checks and tests as separate steps, also after a failure, and prints a summary.
# Tests of real processes, which mostly wait, run beside lints and tests that compute; their output comes at the end.
#
# usage: tests/run.sh [checks] [tests]
#
# The last line is `N passed, N failed` (`, N skipped` when a test was skipped): the sum over all test runners.
# A step that fails without naming a failed test, or that runs no test, counts as one failure.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# A fresh checkout compiles everything once, so nothing is kept for a second time.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'trap - TERM; kill 0' INT TERM
: >"$work/report"
: >"$work/failures"

# counts FILE: prints the sums of all `test result:` lines (cargo's, and others of the same form) in FILE.
counts() {
    awk '/^test result:/ {
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) passed += $(i - 1)
            if ($i ~ /^failed/) failed += $(i - 1)
            if ($i ~ /^ignored/) ignored += $(i - 1)
        }
    }
    END { print passed + 0, failed + 0, ignored + 0 }' "$1"
}

# report PASSED FAILED SKIPPED LINE: adds a line of the summary, which ends with the sums.
report() { printf '%s\t%s\t%s\t%s\n' "$@" >>"$work/report"; }

# failures NAME FILE: prints the failed tests in FILE, output of the step NAME, each with the first line of its message.
# Of inconclusive ones those that stayed so, which stand at the end.
failures() {
    awk -v step="$1" '
        /^---- .* stdout ----$/ { name = $2 }
        message { if (!/^INCONCLUSIVE:/) print step ": " name ": " substr($0, 1, 300); message = 0 }
        / panicked at .*:$/ { message = name != "" }
        /^INCONCLUSIVE AT FIRST:/ { last = 1 }
        last && /^INCONCLUSIVE: / { print step ": " substr($0, 1, 300) }
        /^(FAIL|ERROR): / { print step ": " substr($0, 1, 300) }' "$2"
}

# step KIND NAME COMMAND...: runs a step. KIND is `check` (passes or fails as a whole) or `suite` (counts its
# tests).
step() {
    local kind=$1 name=$2 started=$SECONDS status p=0 f=0 s=0 figures="" output
    shift 2
    output=$(mktemp -p "$work")
    printf '\n=== %s: %s\n' "$name" "$*"
    "$@" </dev/null 2>&1 | tee "$output"
    status=${PIPESTATUS[0]}
    if [ "$kind" = suite ]; then
        read -r p f s < <(counts "$output")
        figures="$p passed, $f failed, $s skipped$(sed -n 's/^INCONCLUSIVE AT FIRST: /, inconclusive at first: /p' "$output")"
        if [ "$((p + s))" = 0 ] && [ "$status" = 0 ]; then
            echo "$name ran no test" >&2
            status=1
        fi
    fi
    if [ "$status" != 0 ] && [ "$f" = 0 ]; then f=1; fi
    if [ "$f" != 0 ]; then failures "$name" "$output" >>"$work/failures"; fi
    report "$p" "$f" "$s" "$(printf '%-8s %-34s %5ds  %s' "$([ "$f" = 0 ] && echo ok || echo FAILED)" "$name" $((SECONDS - started)) "$figures")"
    [ "$f" = 0 ]
}

checks() {
    step check "format" just lint-format
    step check "licences, sources, duplicates" just lint-deny
    step check "generated code" just lint-generated
    step check "lints" just lint-native
    step check "lints for wasm" just lint-wasm
    step check "documentation" just lint-doc
}

# Tests that need the cores but no punctual answers.
computing_tests() {
    step suite "alerts" just test-alerts
    step suite "native" just test-native
    step suite "wasip1" just test-wasip1
    step suite "wasm-bindgen" just test-wasm-bindgen
    step suite "playground" just test-playground
    step suite "simulation" just sim
    if [ "$built" = yes ]; then step suite "packages and images" just test-dist; fi
}

# Tests of real processes, which mostly wait: two at a time. None of them builds again what all of them load.
waiting_tests() {
    {
        step suite "dynamic module in real Envoys" just --no-deps e2e-native quick
        step suite "faults" just --no-deps test-cluster 2
        step suite "Kubernetes" just --no-deps test-kubernetes
        step suite "docker-compose demos" just --no-deps test-compose
        step suite "admin API" just test-api
        step suite "Doorman client" just test-doorman-client
        step suite "pages in Chromium" just test-browser
    } >"$work/waiting" 2>&1 &
    step suite "real Envoys" just --no-deps e2e
    wait $!
    cat "$work/waiting"
}

(($#)) || set -- checks tests
parts=" $* "
for part in "$@"; do
    case $part in
    checks | tests) ;;
    *)
        echo "usage: tests/run.sh [checks] [tests]" >&2
        exit 2
        ;;
    esac
done

built=no
step check "setup" just _setup-packages
step check "build" just build _build-tests && built=yes

# Real processes wait most of the time. Lints and the tests that compute use the cores meanwhile, at the lowest
# priority.
{
    renice -n 19 "$BASHPID"
    # Cargo locks its folder while it compiles; the tests of real processes are to find theirs built first.
    sleep 10
    step check "tools" just setup
    if [[ $parts == *" checks "* ]]; then checks; fi
    if [[ $parts == *" tests "* ]]; then computing_tests; fi
} >"$work/computing" 2>&1 &
if [[ $parts == *" tests "* ]] && [ "$built" = yes ]; then
    waiting_tests
elif [[ $parts == *" tests "* ]]; then
    report 0 9 0 "FAILED   real Envoys, dynamic module, faults, admin API, Doorman client, pages, Kubernetes, packages, demos: not run because the build failed"
fi
printf '\n=== waiting for what runs beside\n'
wait
cat "$work/computing"

printf '\n=== summary\n'
cut -f 4 "$work/report"
if [ -s "$work/failures" ]; then
    printf '\n'
    cat "$work/failures"
fi
read -r passed failed skipped < <(awk -F '\t' '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$work/report")
if [ "$skipped" -gt 0 ]; then
    printf '\n%d TESTS WERE SKIPPED\n' "$skipped"
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
else
    printf '%d passed, %d failed\n' "$passed" "$failed"
fi
[ "$failed" = 0 ]
